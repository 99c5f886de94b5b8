"""`jumper compare`: the differences of two runs as a table, as a JSON document, and the limits that they break."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jumper.analysis.units import digits, human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from jumper.analysis.comparison import Comparison, Difference, Limit

#: Version of the document of :func:`as_json`.
SCHEMA = 1


def as_json(comparison: Comparison, limits: Sequence[Limit]) -> dict[str, Any]:
    """Return a comparison as one JSON document.

    Returns
    -------
    dict
        ``schema`` (1), ``differences``: the attributes of
        :class:`~jumper.analysis.comparison.Difference` and ``sure``, an infinite ratio as null;
        ``only_a``, ``only_b``; ``broken``: the limits that are broken, in words.
    """
    rows = [{**asdict(found), "sure": found.sure} for found in comparison.differences]
    for row in rows:
        row["ratio"] = row["ratio"] if row["ratio"] is not None and math.isfinite(row["ratio"]) else None
    return {
        "schema": SCHEMA,
        "differences": rows,
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "broken": broken(comparison, limits),
    }


def broken(comparison: Comparison, limits: Sequence[Limit]) -> list[str]:
    """Return a line for each limit and group that breaks it."""
    return [
        f"{found.group}: {found.column} {_change(found)}, from {_value(found.column, found.median_a)} to "
        f"{_value(found.column, found.median_b)} ({_sureness(found)}); the limit is {limit}"
        for limit in limits
        for found in comparison.differences
        if limit.broken(found)
    ]


class ComparisonTable:
    """A comparison as a table that rich prints; a difference that is sure is bold."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, and the groups that only one run has."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", overflow="fold")
        for head in ("first", "second", "change", "95 %", "tasks", "p"):
            table.add_column(head, justify="right", no_wrap=True)
        last = None
        for found in self.comparison.differences:
            if found.median_a is None and found.median_b is None:
                continue
            if found.group != last:
                last = found.group
                table.add_row(Text(last or "(no name)", style="bold underline"))
            cells = [
                found.column,
                _value(found.column, found.median_a),
                _value(found.column, found.median_b),
                _change(found),
                _interval(found),
                f"{found.attempts_a}, {found.attempts_b}",
                _p(found),
            ]
            table.add_row(*(Text(cell) for cell in cells), style="bold" if found.sure else None)
        yield table
        for words, groups in (("first", self.comparison.only_a), ("second", self.comparison.only_b)):
            if groups:
                yield Text(f"only in the {words}: {', '.join(group or '(no name)' for group in groups)}", style="dim")


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _change(found: Difference) -> str:
    if found.ratio is None:
        return "" if found.median_a is None or found.median_b is None else "+0.0 %"
    return _percent(found.ratio) if math.isfinite(found.ratio) else "from nothing"


def _interval(found: Difference) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{100 * (found.low - 1):+.0f} to {100 * (found.high - 1):+.0f} %"


def _p(found: Difference) -> str:
    if found.p is None or found.sure is None:
        return "" if found.p is None else "too few"
    return "< 0.001" if found.p < 0.001 else f"{found.p:.3f}"


def _sureness(found: Difference) -> str:
    counts = f"{found.attempts_a} and {found.attempts_b} attempts"
    return f"{counts}: too few to tell from chance" if found.sure is None else f"{counts}, p {_p(found)}"


def _value(column: str, value: float | None) -> str:
    if value is None:
        return ""
    if column.endswith(("_bytes", "_chars")):
        return human_bytes(value)
    return human_seconds(value) if column.endswith("_s") else digits(value)
