"""`jumper findings`: what stands out in a run, as text for a terminal and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from jumper.analysis.findings import Finding
    from jumper.analysis.tables import RunTables

#: Version of the document of :func:`as_json`.
SCHEMA = 1
_STYLE = {"high": "bold red", "medium": "bold yellow", "info": "bold cyan"}


def found_in(run: RunTables) -> list[Finding]:
    """Return the findings of a run.

    Raises
    ------
    MissingExtraError
        Where the extra ``report`` is not installed.
    """
    need("numpy", "pandas")
    from jumper.analysis.findings import findings

    return findings(run)


def lead(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding whose change is most worthwhile, or None where none says what to do or is severe.

    The first by rank with a change to paste, else the first that says what to do or is severe.

    Examples
    --------
    >>> from jumper.analysis.findings import Finding
    >>> lead([Finding("medium", "a", "is odd"), Finding("medium", "b", "asks for too much", "Ask for less.")]).subject
    'b'
    """
    said = next((one for one in findings if one.action or one.severity == "high"), None)
    return next((one for one in findings if one.snippet), said)


def as_json(run: RunTables) -> dict[str, Any]:
    """Return all findings as one JSON document.

    Returns
    -------
    dict
        ``schema`` (1), ``run``, and ``findings``: the attributes of
        :class:`~jumper.analysis.findings.Finding`, in the order of rank.
    """
    return {"schema": SCHEMA, "run": str(run.info.get("run", "")), "findings": [asdict(one) for one in found_in(run)]}


class FindingsText:
    """Findings as rich prints them, one paragraph each.

    Parameters
    ----------
    findings : sequence of Finding
    most : int, optional
        How many are printed; what is left out is counted.
    """

    def __init__(self, findings: Sequence[Finding], most: int | None = None) -> None:
        self.findings = findings
        self.most = len(findings) if most is None else most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield severity, subject, evidence, what to do, and what to paste."""
        from rich.padding import Padding
        from rich.text import Text

        if not self.findings:
            yield Text("Nothing stands out.")
        for finding in self.findings[: self.most]:
            yield Text.assemble(
                (f"{finding.severity:<7}", _STYLE[finding.severity]), (finding.subject, "bold"), " ", finding.text
            )
            if finding.action:
                yield Padding(Text(finding.action), (0, 0, 0, 7))
            if finding.snippet:
                yield Padding(Text(finding.snippet, style="cyan"), (0, 0, 0, 7))
        left_out = len(self.findings) - self.most
        if left_out > 0:
            yield Text(f"and {left_out:,} more: jumper findings RUN", style="dim")
