"""The tables of the page as plain rows: groups, tasks with their drill-down, nodes, provenance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.summary import lists, summarize
from jumper.analysis.tables import RunTables, floats, in_series, series, texts, times
from jumper.analysis.timeline import NO_NAME
from jumper.analysis.units import digits, human_bytes, human_seconds, percent
from jumper.report.charts import asked_of, ranged
from jumper.report.data import RunRows
from jumper.report.theme import OTHER
from jumper.schema.tasks import TASK_COLUMNS

if TYPE_CHECKING:
    from jumper.analysis.findings import Finding
    from jumper.analysis.tables import Floats, Ints

#: Attempts that the page carries: all that failed and the longest; the rest stays in tasks.parquet.
MOST_TASKS = 5000
#: Attempts with curves of their own in the drill-down, and points of such a curve.
MOST_CURVES, CURVE_POINTS = 1000, 48
#: Samples inside an attempt without which it has no curve.
LEAST_SAMPLES = 3


#: Heads of the table of groups, and what they mean.
GROUP_HEADS = (
    ("group", ""), ("tasks", ""), ("failed", "failed or lost"), ("CPU time", "of all tasks of the group"),
    ("median", "wall time"), ("longest", "wall time"), ("cores used", "CPU time over wall time, of threads asked for"),
    ("memory peak", "highest of any task"), ("asked", "memory asked for, else allowed"),
    ("used", "highest peak, of the most that was asked for or allowed"), ("read", "through system calls"),
    ("written", "through system calls"), ("limited by", "what keeps it from being faster, where the data say so"),
    ("flagged", "tasks that carry a flag: shared, estimated, truncated, ..."),
)  # fmt: skip
#: Rows of the tables of groups and nodes; the rest is counted.
MOST_ROWS = 200


def groups(rows: RunRows, found: Sequence[Finding] = ()) -> list[dict[str, Any]]:
    """Return the rows of the table of groups, texts and shares ready to show."""
    table = rows.by_group
    asked_threads, threads_between = _threads_asked(rows), asked_of(rows, "threads")
    bounds = asked_of(rows, "memory")
    limits = {one.subject: LIMITS[one.name] for one in found if one.name in LIMITS}
    out = []
    for name, row in table.head(MOST_ROWS).iterrows():
        value = {key: None if pd.isna(item) else float(item) for key, item in row.items()}
        shown = str(name) or NO_NAME
        least, asked, word = bounds.get(shown, (0.0, 0.0, ""))
        peak, cores, threads = value["memory_peak_bytes"], value["cores"], asked_threads.get(str(name))
        busy = cores / threads if cores is not None and threads else None
        used = peak / asked if peak is not None and asked else None
        between = ranged(*threads_between[shown][:2], "{:g}".format) if shown in threads_between else ""
        limit = limits.get(shown) or ("CPU" if busy is not None and busy >= CPU_BOUND else "")
        out.append({
            "name": shown, "colour": rows.colour.get(shown, OTHER), "attempts": f"{value['attempts']:,.0f}",
            "failed": f"{value['failed']:,.0f}", "bad": bool(value["failed"]),
            "cpu": human_seconds(value["cpu_s"]), "median": human_seconds(value["wall_median_s"]),
            "longest": human_seconds(value["wall_max_s"]),
            "busy_text": "" if cores is None else digits(cores) + (f" of {between}" if threads else ""),
            "busy_share": None if busy is None else 100 * busy, "peak": human_bytes(peak),
            "asked": "" if not asked else ranged(least, asked, human_bytes) + (" allowed" * (word == "allowed")),
            "used_text": "" if used is None else percent(used), "used_share": None if used is None else 100 * used,
            "read": human_bytes(value["read_bytes"] if value["read_chars"] is None else value["read_chars"]),
            "written": human_bytes(value["write_bytes"] if value["write_chars"] is None else value["write_chars"]),
            "limit": limit, "flagged": f"{value['flagged']:,.0f}",
        })  # fmt: skip
    return out


#: What limits a group that a finding is about.
LIMITS = {"io-bound": "I/O", "gpu-starved": "waiting for data", "memory-near": "memory", "network-bound": "network",
          "memory-pressure": "memory"}  # fmt: skip
#: Of the threads that a group asked for, what it keeps busy where the CPU limits it.
CPU_BOUND = 0.8


def _threads_asked(rows: RunRows) -> dict[str, float]:
    """Return the mean number of threads that each group asked for, where it did."""
    asked = pd.Series(floats(rows.run.tasks, "threads_asked"))
    mean = asked.groupby(np.array(texts(rows.run.tasks, "group"), dtype=object)).mean().dropna()
    return {str(name): float(value) for name, value in mean.items() if value > 0}


def tasks(rows: RunRows) -> dict[str, Any]:
    """Return the attempts as columns for the page's script, with curves of the longest.

    Returns
    -------
    dict
        ``columns``: name, unit, type and meaning of each column that holds a value;
        ``values``: name -> list; ``number``: positions in the tasks table; ``start``:
        milliseconds as the page's clock shows them; ``curves``: position -> ``cpu``,
        ``memory`` (percent of the highest) and those two; ``total``.
    """
    table = rows.run.tasks
    bad = np.isin(texts(table, "state"), ["failed", "lost"])
    wall = np.nan_to_num(floats(table, "wall_s"))
    chosen = np.lexsort((-wall, ~bad))[:MOST_TASKS]
    shown = table.iloc[chosen]
    columns, values = [], {}
    for column in TASK_COLUMNS:
        if column.name not in shown or not shown[column.name].notna().any():
            continue
        found = _plain(shown, column.name, column.dtype)
        if any(item not in (None, "") for item in found):
            columns.append({"name": column.name, "unit": column.unit, "type": column.dtype, "meaning": column.meaning})
            values[column.name] = found
    start = times(shown, "start_ns")
    clock = rows.clock(start).astype("datetime64[ms]").astype("int64")
    longest = chosen[np.argsort(-wall[chosen], kind="stable")][:MOST_CURVES]
    return {
        "columns": columns, "values": values, "number": chosen.tolist(), "total": len(table),
        "start": [int(ms) if ns > 0 else None for ms, ns in zip(clock, start, strict=True)],
        "colours": {str(name): rows.colour.get(str(name), OTHER) for name in set(texts(shown, "group"))},
        "curves": curves(rows, longest),
    }  # fmt: skip


def _plain(frame: pd.DataFrame, name: str, dtype: str) -> list[Any]:
    if dtype == "list":
        return [", ".join(map(str, flags)) or None for flags in lists(frame, name)]
    if dtype == "int":
        values = pd.to_numeric(frame[name], errors="coerce").astype("Int64")
        return [None if missing else value for value, missing in zip(values.tolist(), values.isna(), strict=True)]
    if dtype == "float":
        return [float(f"{value:.6g}") if value == value else None for value in floats(frame, name).tolist()]
    column = frame[name].astype(object)
    return [
        None if missing else value if isinstance(value, str) else json.dumps(value, default=str)
        for value, missing in zip(column.to_numpy(), column.isna(), strict=True)
    ]


def curves(rows: RunRows, chosen: Any) -> dict[str, dict[str, Any]]:
    """Return CPU of the thread (or process) and memory of the process during each chosen attempt."""
    run = rows.run
    table = run.tasks
    node, pid, thread = texts(table, "node"), times(table, "pid"), times(table, "thread")
    wanted = set(pid[list(map(int, chosen))])
    threads = _indexed(run.samples("thread"), "tid", wanted, ("cpu_ns",))
    processes = _indexed(run.samples("process"), "pid", wanted, ("cpu_ns", "memory_bytes"))
    start, stop = times(table, "start_ns"), times(table, "stop_ns")
    out: dict[str, dict[str, Any]] = {}
    for index in map(int, chosen):
        place = (node[index], int(pid[index]))
        tree = processes.get((*place, place[1]))
        counter = threads.get((*place, int(thread[index]))) or (tree if not thread[index] else None)
        found: dict[str, Any] = {}
        for name, source, column in (("cpu", counter, 0), ("memory", tree, 1)):
            if source is None or not start[index] or stop[index] <= start[index]:
                continue
            at, columns = source
            first, last = np.searchsorted(at, (start[index], stop[index]))
            if last - first < LEAST_SAMPLES:
                continue
            values = columns[column][max(first - 1, 0) : last + 1]
            if name == "cpu":
                values = np.diff(values) / np.maximum(np.diff(at[max(first - 1, 0) : last + 1]), 1)
            if np.isfinite(values).any():
                found[name] = _thinned(values)
        if found:
            out[str(index)] = found
    return out


#: (node, process, thread or process again) -> times in UTC ns, and the columns asked for
_Indexed = dict[tuple[str, int, int], tuple["Ints", list["Floats"]]]


def _indexed(samples: pd.DataFrame, last: str, pids: set[int], columns: tuple[str, ...]) -> _Indexed:
    out: _Indexed = {}
    if not {"node", "pid", last} <= set(samples.columns):
        return out
    mine = samples["pid"].isin(pids)
    samples = samples if mine.all() else samples[mine]
    order, number = in_series(samples)
    at, values = times(samples, "time_ns")[order], [floats(samples, name)[order] for name in columns]
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    head = samples.iloc[order[firsts]]
    keys = zip(texts(head, "node"), times(head, "pid").tolist(), times(head, last).tolist(), strict=True)
    parts: dict[tuple[str, int, int], list[slice]] = {}
    for key, low, high in zip(keys, firsts.tolist(), np.append(firsts, len(order))[1:].tolist(), strict=True):
        parts.setdefault(key, []).append(slice(low, high))
    for key, slices in parts.items():  # a pid may come again in another segment
        slices.sort(key=lambda part: at[part.start])
        out[key] = (np.concatenate([at[part] for part in slices]),
                    [np.concatenate([column[part] for part in slices]) for column in values])  # fmt: skip
    return out


def _thinned(values: Floats) -> dict[str, Any]:
    values = np.maximum(np.nan_to_num(values), 0.0)
    if len(values) > CURVE_POINTS:
        values = np.maximum.reduceat(values, np.arange(CURVE_POINTS) * len(values) // CURVE_POINTS)
    top = float(values.max())
    share = np.zeros(len(values)) if top <= 0 else values / top * 100
    return {"top": float(f"{top:.4g}"), "points": np.round(share).astype(int).tolist()}


def nodes(rows: RunRows) -> list[dict[str, Any]]:
    """Return the rows of the table of nodes."""
    run = rows.run
    by_node = {str(name): row for name, row in summarize(run.tasks, by="node").astype(object).to_dict("index").items()}
    silent = set(rows.silent) if len(run.samples("process")) + len(run.samples("system")) else set()
    used = _highest_by_node(run.samples("system"), "memory_bytes")
    out = []
    for name in sorted({*run.nodes, *by_node} - {""})[:MOST_ROWS]:
        facts = run.nodes.get(name, {})
        row = {key: value for key, value in by_node.get(name, {}).items() if pd.notna(value)}
        busy = rows.node_cpu.get(name)
        out.append({
            "name": name, "cpus": f"{facts.get('num_cpus') or ''}", "memory": human_bytes(facts.get("memory_bytes")),
            "attempts": f"{row.get('attempts', 0):,.0f}", "failed": f"{row.get('failed', 0):,.0f}",
            "cpu": human_seconds(row.get("cpu_s")),
            "busy": "" if busy is None or np.isnan(busy).all() else f"{np.nanmean(busy):.0f} %",
            "silent": name in silent, "used": human_bytes(used.get(name)), "kernel": str(facts.get("kernel") or ""),
        })  # fmt: skip
    return out


def _highest_by_node(samples: pd.DataFrame, column: str) -> dict[str, float]:
    if "node" not in samples or samples.empty:
        return {}
    order, number = in_series(samples)
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    highest = np.fmax.reduceat(floats(samples, column)[order], firsts)
    by_node = pd.Series(highest).groupby(texts(samples.iloc[order[firsts]], "node")).max().dropna()
    return {str(name): float(value) for name, value in by_node.items()}


def provenance(rows: RunRows, key: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was run and measured with what, and what measuring cost, as pairs of words."""
    run = rows.run
    info, monitor = run.info, run.samples("monitor")
    out = [("run", str(info.get("run", ""))), ("command", command_of(run))]
    out.append(("versions", ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items())))
    out.append(("sampling", f"every {digits(rows.interval_s)} s; {_coverage(run)}"))
    if text := _clocks(info.get("clocks") or {}, info.get("segments") or {}):
        out.append(("clocks", text))
    if key["monitor_cpu_s"] is not None:
        share = key["monitor_share"]
        text = f"{human_seconds(key['monitor_cpu_s'])} of CPU" + (f", {share:.2%} of one core" if share else "")
        top = floats(monitor, "rss_bytes")
        monitors = len({(str(k.get("node")), k.get("pid"), k.get("segment")) for k, _ in series(monitor)})
        text += f", by {monitors} monitor{'s' if monitors != 1 else ''}"
        text += f"; largest {human_bytes(float(np.nanmax(top)))}" if np.isfinite(top).any() else ""
        out.append(("own cost", text + " (not in the figures above)"))
    return [(name, text) for name, text in out if text]


def _clocks(clocks: dict[str, Any], segments: dict[str, Any]) -> str:
    """Say how well nodes are placed in time; nothing where there is one clock."""
    errors = [clock["error_ns"] for clock in clocks.values() if clock.get("error_ns")]
    node_of = {name: segments.get(name, {}).get("node") for name in clocks}
    unknown = len({node_of[name] for name, clock in clocks.items() if clock.get("error_ns") is None})
    placed = [f"placed within {human_seconds(max(errors) / 1e9)} of the reference clock"] if errors else []
    if unknown > 1:
        placed.append(f"{unknown} nodes by their own wall clocks")
    elif unknown and len(set(node_of.values())) > 1:
        placed.append("1 node by its own wall clock")
    return "; ".join(placed)


def command_of(run: RunTables) -> str:
    """Return what ran as one line, quoted for a shell where it is a list."""
    command = run.info.get("command")
    if isinstance(command, list | tuple):
        return shlex.join(map(str, command))
    return str(command or "")


def _coverage(run: RunTables) -> str:
    known = run.info.get("coverage") or {}
    counts = {name: len(value) if isinstance(value, list | dict) else value for name, value in known.items()}
    if counts.get("expected") is None:
        count = len(run.info.get("segments") or {})
        return f"{count} segment{'s' * (count != 1)}"
    text = f"{counts.get('came', 0)} of {counts['expected']} expected segments came"
    for name, words in (("missing", "missing"), ("torn", "torn"), ("dropped", "dropped"),
                        ("duplicates", "duplicates removed")):  # fmt: skip
        if counts.get(name):
            text += f", {counts[name]} {words}"
    return text
