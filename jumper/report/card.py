"""What a notebook and a prompt show of a `Run`: small static text, every word of it escaped."""

from __future__ import annotations

from html import escape
from typing import Any

from jumper.analysis.units import digits, human_bytes, human_seconds
from jumper.schema.errors import MissingExtraError

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


def repr_html(run: Any) -> str:
    """Return a card: key figures, what stands out, and the groups that cost most.

    Reads the tasks table and of the samples what the findings need; draws nothing, loads no plotting library.
    """
    head = f"<b>{escape(str(run.info.get('kind', 'run')))} run {escape(str(run.info.get('run', '')))}</b>"
    try:
        tasks = run.tasks
    except MissingExtraError as error:
        return _frame(head + f"<div>{escape(str(error))}</div>")
    from jumper.analysis.findings import findings
    from jumper.analysis.summary import summarize
    from jumper.analysis.tables import times

    start, stop = times(tasks, "start_ns"), times(tasks, "stop_ns")
    wall = (stop.max() - start[start > 0].min()) / 1e9 if (start > 0).any() and (stop > 0).any() else None
    table = summarize(tasks)
    bad = int(table["failed"].sum()) if len(table) else 0
    cpu = float(table["cpu_s"].sum()) if table["cpu_s"].notna().any() else None
    figures = [f"{len(tasks):,} task{'s' * (len(tasks) != 1)}", f"{bad} failed or lost" if bad else "",
               f"{len(run.nodes)} node{'s' * (len(run.nodes) != 1)}", human_seconds(wall),
               f"{human_seconds(cpu)} of CPU" if cpu is not None else ""]  # fmt: skip
    body = [head, f"<div style='opacity:.7'>{escape(' · '.join(f for f in figures if f))}</div>"]
    found = findings(run)
    body += [
        f"<div><span style='color:{_DOTS[f.severity]}'>&#9679;</span> <b>{escape(f.subject)}</b> "
        f"{escape(f.text)} <span style='opacity:.7'>{escape(f.action)}</span></div>"
        for f in found[:_MOST_FINDINGS]
    ]
    if len(found) > _MOST_FINDINGS:
        body.append(f"<div style='opacity:.7'>and {len(found) - _MOST_FINDINGS} more in the report</div>")
    body.append(_groups(table))
    body.append(f"<div style='opacity:.7'>{escape(str(run.path))}</div>")
    return _frame("".join(body))


def _groups(table: Any) -> str:
    if table.empty:
        return ""
    heads = ("group", "tasks", "failed", "CPU time", "cores", "memory peak")
    lines = ["<tr>" + "".join(f"<th style='text-align:{_side(i)}'>{h}</th>" for i, h in enumerate(heads)) + "</tr>"]
    for name, row in table.head(_MOST_GROUPS).iterrows():
        known = {key: float(value) for key, value in row.items() if row.notna()[key]}
        cells = [str(name) or "(no name)", f"{known['attempts']:,.0f}", f"{known['failed']:,.0f}",
                 human_seconds(known.get("cpu_s")), digits(known["cores"]) if "cores" in known else "",
                 human_bytes(known.get("memory_peak_bytes"))]  # fmt: skip
        lines.append("<tr>" + "".join(
            f"<td style='text-align:{_side(i)}'>{escape(cell)}</td>" for i, cell in enumerate(cells)
        ) + "</tr>")  # fmt: skip
    more = len(table) - _MOST_GROUPS
    note = f"<div style='opacity:.7'>and {more} more groups</div>" if more > 0 else ""
    return f"<table style='margin:6px 0'>{''.join(lines)}</table>{note}"


def _side(index: int) -> str:
    return "left" if index == 0 else "right"


def _frame(body: str) -> str:
    border = "border:1px solid rgba(128,128,128,.35);border-radius:8px"
    style = f"{border};padding:10px 14px;display:inline-block;max-width:900px"
    return f"<div style='{style}'>{body}</div>"
