"""`jumper summary`: what groups, nodes or attempts cost, as a table for a terminal and as a JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jumper.analysis.units import digits, human_bytes, human_seconds, percent
from jumper.report.extra import need
from jumper.report.found import FindingsText, as_json, found_in
from jumper.schema.tasks import TASK_COLUMNS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from jumper.analysis.tables import RunTables

#: Version of the document of :func:`summary_json`.
SCHEMA = 1
#: Findings below a summary; `jumper findings` prints all.
_MOST_FINDINGS = 3
_TITLES = {"group": "group", "node": "node", "key": "task"}


#: What a narrow terminal leaves out first.
_LESS = ("flagged", "median", "longest", "read", "written", "asked", "allowed")


class Summary:
    """A summary that fits itself into the width of the console it is printed on."""

    def __init__(self, heads: list[str], rows: list[list[str]], line: str, findings: FindingsText | None) -> None:
        self.heads, self.rows, self.line, self.findings = heads, rows, line, findings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, the key figures, which columns had no room, and what stands out."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        left_out: list[str] = []
        for name in ("", *_LESS):
            if name in self.heads:
                left_out.append(name)
            kept = [i for i, head in enumerate(self.heads) if head not in left_out]
            widths = [max(len(row[i]) for row in [self.heads, *self.rows]) for i in kept]
            if min(widths[0], 24) + sum(widths[1:]) + 3 * (len(widths) - 1) <= options.max_width:
                break
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for i in kept:
            table.add_column(self.heads[i], justify="right" if i else "left", no_wrap=i > 0, overflow="fold",
                             min_width=0 if i else min(widths[0], 24))  # fmt: skip
        for row in self.rows:
            bad = [self.heads[i] == "failed" and row[i] not in ("", "0") for i in kept]
            table.add_row(*(Text(row[i], style="bold red" if red else "") for i, red in zip(kept, bad, strict=True)))
        yield table
        yield Text()
        yield Text(self.line, style="dim")
        if left_out:
            yield Text(f"no room here for: {', '.join(left_out)} (--json has all)", style="dim")
        if self.findings is not None and self.findings.findings:
            yield Text()
            yield self.findings


def summary_table(run: RunTables, by: str = "group") -> Summary:
    """Return what rich prints for a summary: a table, the key figures below it, and by group what stands out most.

    Parameters
    ----------
    run : Run
    by : {"group", "node", "key"}

    Raises
    ------
    JumperError
        Where ``by`` is something else.
    MissingExtraError
        Where the extra ``report`` is not installed.
    """
    need("numpy", "pandas")
    from jumper.analysis.summary import headline, summarize
    from jumper.analysis.tables import Cached

    run = Cached(run)
    rows = summarize(run.tasks, by=by)
    asked = "memory_asked_bytes" if rows["memory_asked_bytes"].notna().any() else "memory_limit_bytes"
    # title, column, format; a column that no row has is left out
    columns = [
        ("tasks", "attempts", _count), ("failed", "failed", _count), ("CPU time", "cpu_s", human_seconds),
        ("cores", "cores", digits), ("median", "wall_median_s", human_seconds),
        ("longest", "wall_max_s", human_seconds), ("memory peak", "memory_peak_bytes", human_bytes),
        ("asked" if asked == "memory_asked_bytes" else "allowed", asked, human_bytes),
        ("read", "read_chars", human_bytes), ("written", "write_chars", human_bytes), ("flagged", "flagged", _count),
    ]  # fmt: skip
    columns = [column for column in columns if rows[column[1]].notna().any()]
    cells = [
        [str(name) or "(no name)"]
        + [show(float(row[column])) if row.notna()[column] else "" for _, column, show in columns]
        for name, row in rows.iterrows()
    ]
    heads = [_TITLES[by], *(title for title, _, _ in columns)]
    findings = FindingsText(found_in(run), _MOST_FINDINGS) if by == "group" else None
    return Summary(heads, cells, _line(headline(run)), findings)


def summary_json(run: RunTables, by: str = "group") -> dict[str, Any]:
    """Return a summary as one JSON document; unknown figures are null.

    Returns
    -------
    dict
        ``schema`` (1), ``run``, ``by``, ``headline``, ``findings`` (as :func:`jumper.report.found.as_json`
        has them), and ``groups``: the rows of
        :func:`jumper.analysis.summary.summarize`; for ``by="key"`` instead ``tasks``:
        one object an attempt with the columns of the tasks table.
    """
    need("numpy", "pandas")
    from jumper.analysis.summary import headline, summarize
    from jumper.analysis.tables import Cached

    run = Cached(run)
    document = {
        "schema": SCHEMA,
        "run": str(run.info.get("run", "")),
        "by": by,
        "headline": {name: _plain(value) for name, value in headline(run).items()},
        "findings": as_json(run)["findings"],
    }
    rows = summarize(run.tasks, by=by)
    if by == "key":
        tasks = run.tasks
        names = [column.name for column in TASK_COLUMNS if column.name in tasks]
        return {**document, "tasks": [{n: _plain(row[n]) for n in names} for row in tasks[names].to_dict("records")]}
    return {**document, "groups": [
        {by: str(name), **{str(column): _plain(value) for column, value in row.items()}}
        for name, row in rows.iterrows()
    ]}  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a cell of a table as JSON has it."""
    import numpy as np
    import pandas as pd

    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if value is None or pd.isna(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _line(key: dict[str, Any]) -> str:
    bad = key["failed"] + key["lost"]
    tasks = f"{key['attempts']:,} task{'s' * (key['attempts'] != 1)}"
    parts = [human_seconds(key["wall_s"]), tasks + (f", {key['running']:,} running" if key["running"] else "")]
    parts.append(f"{bad} failed or lost" if bad else "")
    parts.append(f"{key['nodes']} node{'s' * (key['nodes'] != 1)}")
    if key["busy_cores"] is not None:
        parts.append(f"{digits(key['busy_cores'])} cores busy" + (f" of {key['cores']}" if key["cores"] else ""))
    if key["memory_used_share"] is not None:
        parts.append(f"{percent(key['memory_used_share'])} of the memory asked for used")
    if key["monitor_share"]:
        parts.append(f"measuring took {key['monitor_share']:.2%} of one core")
    return " · ".join(part for part in parts if part)
