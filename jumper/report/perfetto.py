"""A run as a trace for ui.perfetto.dev: attempts as slices on the lanes of their workers, and counters of each node.

The JSON trace event format, in pieces: processes are nodes, threads are lanes. Slices on one
track may not overlap, which the lanes see to. Times are microseconds since the start of the
run, with three decimals: to the nanosecond.

Source: "Trace Event Format" of Chromium, and "JSON trace format" in Perfetto's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from jumper.analysis.lanes import pack_nodes
from jumper.analysis.summary import lists
from jumper.analysis.tables import RunTables, floats, interval_of, texts, times
from jumper.analysis.timeline import Grid, make_grid, span_of, total_gauge, total_rates

if TYPE_CHECKING:
    import pandas as pd

    from jumper.analysis.tables import Floats, Ints

#: Most values of a counter: more than a screen has points, and the trace stays small.
MOST_VALUES = 2000
#: Slices encoded at once.
CHUNK = 20_000
#: name of the counter: stream, column, factor to its unit, whether the column is a counter
_COUNTERS = {
    "busy cores": ("process", "cpu_ns", 1e-9, True),
    "memory (GiB)": ("process", "memory_bytes", 2.0**-30, False),
    "read (MB/s)": ("process", "read_chars", 1e-6, True),
    "written (MB/s)": ("process", "write_chars", 1e-6, True),
    "busy cores of the node": ("system", "cpu_ns", 1e-9, True),
    "memory of the node (GiB)": ("system", "memory_bytes", 2.0**-30, False),
    "received (MB/s)": ("system", "net_recv_bytes", 1e-6, True),
    "sent (MB/s)": ("system", "net_sent_bytes", 1e-6, True),
    "busy GPUs of the node": ("system", "gpu_busy_ns", 1e-9, True),
    "GPU memory of the node (GiB)": ("system", "gpu_memory_bytes", 2.0**-30, False),
    "CPU power of the node (W)": ("system", "energy_uj", 1e-6, True),
}
_NUMBERS = ("wall_s", "cpu_s", "memory_peak_bytes", "memory_asked_bytes", "read_chars", "write_chars", "threads_asked")
_encode = msgspec.json.Encoder(enc_hook=str).encode


def pieces(run: RunTables) -> Iterator[tuple[bytes, int]]:
    """Yield the trace in pieces, each with how many attempts it holds.

    An attempt without a start is left out; one without an end reaches to the end of the run.
    """
    span = span_of(run) or (0, 1)
    head = {"run": run.info.get("run"), "start_ns": str(span[0]), "made by": "jumper"}
    yield b'{"displayTimeUnit":"ms","otherData":' + _encode(head) + b',"traceEvents":[', 0
    between = b"\n"
    for events, attempts in _events(run, *span):
        if events:
            yield between + b",\n".join(map(_encode, events)), attempts
            between = b",\n"
    yield b"\n]}\n", 0


def _events(run: RunTables, begin_ns: int, end_ns: int) -> Iterator[tuple[list[dict[str, Any]], int]]:
    tasks = run.tasks
    start, stop = times(tasks, "start_ns"), times(tasks, "stop_ns", end_ns)
    kept = np.flatnonzero(start > 0)
    start, stop = start[kept], np.maximum(stop[kept], start[kept])
    node, worker = ([names[i] for i in kept] for names in (texts(tasks, "node"), texts(tasks, "worker")))
    rows, lanes = pack_nodes(node, worker, start, stop)
    number = {name: index + 1 for index, name in enumerate(sorted({*lanes, *run.nodes}))}
    first_thread = len(number) + 1  # a thread whose number is its process's would be its main thread
    for name, pid in number.items():
        yield _named("process", name or "(no node)", {"pid": pid}, pid), 0
    owners = {int(row): (node[i], worker[i]) for i, row in enumerate(rows)}
    for row, (where, who) in sorted(owners.items()):
        yield _named("thread", who or "lane", {"pid": number[where], "tid": first_thread + row}, row), 0
    for begin in range(0, len(kept), CHUNK):
        part = slice(begin, begin + CHUNK)
        places = [{"pid": number[name], "tid": first_thread + int(row)}
                  for name, row in zip(node[part], rows[part], strict=True)]  # fmt: skip
        chunk = tasks.iloc[kept[part]]
        yield _slices(chunk, places, start[part] - begin_ns, stop[part] - start[part]), len(chunk)
    interval_s = interval_of(run)
    grid = make_grid(begin_ns, end_ns, min(MOST_VALUES, math.ceil((end_ns - begin_ns) / 1e9 / interval_s)))
    for stream in dict.fromkeys(stream for stream, *_ in _COUNTERS.values()):
        samples = run.samples(stream)
        for key, mine in samples.groupby("node") if "node" in samples else ():
            yield _counters(stream, mine, number[str(key)], grid, interval_s), 0


def _named(what: str, name: str, place: dict[str, int], order: int) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": f"{what}_name", **place, "args": {"name": name}},
        {"ph": "M", "name": f"{what}_sort_index", **place, "args": {"sort_index": order}},
    ]


def _slices(tasks: pd.DataFrame, places: list[dict[str, int]], start: Ints, length: Ints) -> list[dict[str, Any]]:
    keys, groups, states = (texts(tasks, name) for name in ("key", "group", "state"))
    reasons, flags = texts(tasks, "reason"), lists(tasks, "flags")
    numbers = {name: floats(tasks, name) for name in _NUMBERS}
    events = []
    for i, place in enumerate(places):
        args: dict[str, Any] = {"key": keys[i], "state": states[i] or "unfinished"}
        args |= {name: float(values[i]) for name, values in numbers.items() if np.isfinite(values[i])}
        if reasons[i]:
            args["reason"] = reasons[i]
        if flags[i]:
            args["flags"] = ", ".join(map(str, flags[i]))
        events.append({
            "ph": "X", "name": groups[i] or keys[i] or "(no name)", "cat": states[i] or "unfinished",
            **place, "ts": _microseconds(int(start[i])), "dur": _microseconds(int(length[i])),
            "args": args,
        })  # fmt: skip
    return events


def _microseconds(ns: int) -> msgspec.Raw:
    return msgspec.Raw(f"{ns // 1000}.{ns % 1000:03d}".encode())


def _counters(stream: str, samples: pd.DataFrame, pid: int, grid: Grid, interval_s: float) -> list[dict[str, Any]]:
    at = np.round(grid.edges[:-1] * 1e9).astype("int64")
    events = []
    for name, (source, column, factor, counter) in _COUNTERS.items():
        values = _line(samples, column, grid, interval_s, counter) if source == stream else None
        if values is None:
            continue
        for i in np.flatnonzero(np.isfinite(values)):
            shown = {"value": round(float(values[i]) * factor, 6)}
            events.append({"ph": "C", "name": name, "pid": pid, "ts": _microseconds(int(at[i])), "args": shown})
    return events


def _line(samples: pd.DataFrame, column: str, grid: Grid, interval_s: float, counter: bool) -> Floats | None:
    if counter:
        return total_rates(samples, [column], grid, interval_s)[0]
    line = total_gauge(samples, column, grid, interval_s)
    return np.where(line > 0, line, np.nan) if line.any() else None  # 0 is where nothing was seen
