"""What a notebook and a prompt show of a `Run`: small static text, every word of it escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from jumper.analysis.units import digits, human_bytes, human_seconds
from jumper.schema.errors import MissingExtraError

if TYPE_CHECKING:
    from jumper.analysis.findings import Finding

_MOST_GROUPS, _MOST_FINDINGS = 8, 3
_DOTS = {"high": "#D55E00", "medium": "#E69F00", "info": "#56B4E9"}


def repr_text(run: Any) -> str:
    """Return one line: what ran, when it is known how much, and where it lies. Reads no table.

    Examples
    --------
    >>> class Example:
    ...     path, info = "runs/a", {"run": "a", "kind": "dask", "nodes": {"n1": {}}}
    >>> repr_text(Example())
    "<jumper run 'a': dask, 1 node, at runs/a>"
    """
    info = run.info
    nodes = len(info.get("nodes") or {})
    parts = [str(info.get("kind", "unknown"))]
    tasks = vars(run).get("tasks")
    if tasks is not None:
        parts.append(f"{len(tasks):,} task{'s' * (len(tasks) != 1)}")
    parts.append(f"{nodes} node{'s' * (nodes != 1)}")
    created, finished = info.get("created_ns"), info.get("finished_ns")
    if created and finished:
        parts.append(human_seconds((finished - created) / 1e9))
    return f"<jumper run {str(info.get('run', ''))!r}: {', '.join(parts)}, at {run.path}>"


def repr_terminal(run: Any) -> str:
    """Return what a prompt of IPython shows: the line of :func:`repr_text`, the table by group, what stands out."""
    try:
        run.tasks  # noqa: B018
    except MissingExtraError:
        return repr_text(run)
    from io import StringIO

    from rich.console import Console

    from jumper.report.terminal import summary_table

    # in a notebook it would show the table there
    console = Console(file=StringIO(), width=Console().width, color_system=None, force_jupyter=False)
    console.print(summary_table(run))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join([repr_text(run), "", *(line.rstrip() for line in lines)]).rstrip()


def repr_html(run: Any) -> str:
    """Return a card: the first sentence of the report, key figures, what else stands out, the groups that cost most.

    Reads the tasks table and of the samples what the findings need; draws nothing, loads no plotting library.
    """
    head = f"<b>{escape(str(run.info.get('kind', 'run')))} run {escape(str(run.info.get('run', '')))}</b>"
    try:
        tasks = run.tasks
    except MissingExtraError as error:
        return _frame(head + f"<div>{escape(str(error))}</div>")
    from jumper.analysis.findings import findings
    from jumper.analysis.summary import headline, summarize
    from jumper.analysis.tables import Cached
    from jumper.report.found import lead
    from jumper.report.page.words import calm

    run = Cached(run)
    key, table, found = headline(run), summarize(tasks), findings(run)
    bad = key["failed"] + key["lost"]
    figures = [f"{len(tasks):,} task{'s' * (len(tasks) != 1)}", f"{bad:,} failed or lost" if bad else "",
               f"{key['running']:,} running" if key["running"] else "",
               f"{key['nodes']:,} node{'s' * (key['nodes'] != 1)}", human_seconds(key["wall_s"]),
               f"{human_seconds(key['cpu_s'])} of CPU" if key["cpu_s"] is not None else ""]  # fmt: skip
    first = lead(found)
    rest = [one for one in found if one is not first]
    body = [head, _sentence(first) if first is not None else f"<div>{escape(calm(key))}</div>"]
    if first is not None and first.snippet:
        body.append(f"<pre style='margin:4px 0 4px 14px'>{escape(first.snippet)}</pre>")
    body += map(_sentence, rest[: _MOST_FINDINGS - 1])
    if len(rest) >= _MOST_FINDINGS:
        body.append(f"<div style='opacity:.7'>and {len(rest) - _MOST_FINDINGS + 1} more in the report</div>")
    body.append(f"<div style='opacity:.7'>{escape(' · '.join(f for f in figures if f))}</div>")
    body.append(_groups(table))
    body.append(f"<div style='opacity:.7'>{escape(str(run.path))}</div>")
    return _frame("".join(body))


def _sentence(found: Finding) -> str:
    return (
        f"<div><span style='color:{_DOTS[found.severity]}'>&#9679;</span> <b>{escape(found.subject)}</b> "
        f"{escape(found.text)} <span style='opacity:.7'>{escape(found.action)}</span></div>"
    )


def _groups(table: Any) -> str:
    if table.empty:
        return ""
    heads = ("group", "tasks", "failed", "CPU time", "cores", "memory peak")
    lines = ["<tr>" + "".join(f"<th style='{_cell(i)}'>{h}</th>" for i, h in enumerate(heads)) + "</tr>"]
    for name, row in table.head(_MOST_GROUPS).iterrows():
        known = {key: float(value) for key, value in row.items() if row.notna()[key]}
        cells = [str(name) or "(no name)", f"{known['attempts']:,.0f}", f"{known['failed']:,.0f}",
                 human_seconds(known.get("cpu_s")), digits(known["cores"]) if "cores" in known else "",
                 human_bytes(known.get("memory_peak_bytes"))]  # fmt: skip
        lines.append("<tr>" + "".join(
            f"<td style='{_cell(i)}'>{escape(cell)}</td>" for i, cell in enumerate(cells)
        ) + "</tr>")  # fmt: skip
    more = len(table) - _MOST_GROUPS
    note = f"<div style='opacity:.7'>and {more} more groups</div>" if more > 0 else ""
    return f"<table style='margin:6px 0;font-size:inherit'>{''.join(lines)}</table>{note}"


def _cell(index: int) -> str:
    return f"text-align:{'left' if index == 0 else 'right'};padding:1px {6 if index else 0}px"


def _frame(body: str) -> str:
    border = "border:1px solid rgba(128,128,128,.35);border-radius:8px"
    style = f"{border};padding:10px 14px;display:inline-block;max-width:900px"
    return f"<div style='{style}'>{body}</div>"
