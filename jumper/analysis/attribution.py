"""What each attempt cost: the boundaries that a front end recorded, joined with the samples between them.

This is the one place where a task's cost is computed. Joining is by host and
monotonic clock, so wall clocks do not matter to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jumper.analysis.deaths import NO_END, RUNS, ends_of, explain
from jumper.analysis.devices import device_cost
from jumper.analysis.lost import add_children
from jumper.analysis.parts import by_node
from jumper.analysis.peaks import memory_peaks
from jumper.analysis.series import Samples, Series
from jumper.schema.tasks import PART_COLUMNS, TASK_COLUMNS
from jumper.store.merge import Merged

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
IO = ("read_bytes", "write_bytes", "read_chars", "write_chars")
#: beyond this many intervals between two ticks there is a gap
GAP = 2.5
#: what a wait and a ledger may differ by through rounding
ROUNDING_NS = 20_000_000

_EMPTY: Row = dict.fromkeys(column.name for column in TASK_COLUMNS)


@dataclass(slots=True)
class Attempt:
    """What was recorded of one attempt: all its records, when it was ready to start, the first start, the last stop."""

    facts: Row = field(default_factory=dict)
    start: Row | None = None
    stop: Row | None = None
    ready: Row | None = None


def attempts_of(records: list[Row], kind: str = "task") -> list[Attempt]:
    """Put the records of each attempt together; later ones add to earlier ones.

    Parameters
    ----------
    records : list of dict
    kind : {"task", "part"}
        Those of attempts, or of what was followed apart from an attempt's own tree, each of these by itself.
    """
    found: dict[tuple[str, ...], Attempt] = {}
    for record in records:
        if record.get("type") != kind or "key" not in record:
            continue
        identity: tuple[str, ...] = (str(record["key"]), str(record.get("attempt_id", "")))
        if kind == "part":
            identity += (str(record.get("segment")), str(record["roots"][0][:2]))
        attempt = found.setdefault(identity, Attempt())
        flags = sorted({*attempt.facts.get("flags", ()), *record.get("flags", ())})
        # who ran it says most about it; a scheduler's word fills what is left open
        said = {name: value for name, value in record.items() if value is not None}
        if record.get("witness") is not None:
            attempt.facts = {**said, **attempt.facts, "flags": flags}
        else:
            attempt.facts = {**attempt.facts, **said, "flags": flags}
        if record.get("ready"):  # a scheduler gave it to a batch system
            attempt.ready = record
        if record.get("event") == "start" and _says_more(record, attempt.start):
            attempt.start = record
        if record.get("event") == "stop" and _says_more(record, attempt.stop, again=True):
            attempt.stop = record
            if record.get("begin_ns") is not None:  # it tells of the start, too
                attempt.start = {**record, "mono_ns": record["begin_ns"]}
    return list(found.values())


#: Who tells of a boundary, from the one who knows least: the scheduler, what was left in a spool, who ran it (None).
_WITNESSES = ("scheduler", "spool", None)


def _says_more(record: Row, known: Row | None, again: bool = False) -> bool:
    if known is None:
        return True
    new, old = (_WITNESSES.index(r.get("witness")) for r in (record, known))
    return new >= old if again else new > old


def attribute(merged: Merged, load: Callable[[str], pd.DataFrame]) -> tuple[list[Row], list[Row]]:
    """Compute the tasks and the parts of a run.

    Parameters
    ----------
    merged : Merged
        Records and clocks.
    load : callable
        ``load(stream)`` gives samples as a DataFrame.

    Returns
    -------
    tasks, parts : list of dict
        Rows with the columns of :data:`jumper.schema.TASK_COLUMNS` and ``PART_COLUMNS``;
        tasks by start.
    """
    samples = Samples(load, {name: str(state["boot"]) for name, state in merged.segments.items()})
    limits = {
        (r["node"], int(r["pid"])): r["memory_limit_bytes"]
        for r in merged.records
        if r.get("type") == "root" and r.get("memory_limit_bytes") and r.get("pid") is not None
    }
    lives = _lives(merged)
    attempts = attempts_of(merged.records)
    rows = [_cost(attempt, merged, samples, limits, lives) for attempt in attempts]
    add_children(rows, attempts, samples)
    apart = [_cost(attempt, merged, samples, limits, lives) for attempt in attempts_of(merged.records, "part")]
    nodes = by_node(rows, apart, [attempt.facts.get("nodes") or () for attempt in attempts])
    ends = ends_of(merged.records)
    for row in rows:
        explain(row, ends)
        row["flags"] = sorted(set(row["flags"]))
    rows.sort(key=lambda row: (row["start_ns"] is None, row["start_ns"] or 0))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["key"]] = counts.get(row["key"], 0) + 1
        row["attempt"] = row.get("attempt") or counts[row["key"]]
    parts = [{column.name: part.get(column.name) for column in PART_COLUMNS} for row in rows for part in nodes[id(row)]]
    return rows, parts


def _lives(merged: Merged) -> dict[object, int]:
    """Return until when each process wrote, in monotonic ns: by worker, whose pids may come again, else by process."""
    lives: dict[object, int] = {}
    for name, state in merged.segments.items():
        who = state.get("worker") or (str(state["boot"]), state.get("node"), state.get("pid"))
        lives[who] = max(lives.get(who, 0), merged.ends.get(name, 0))
    return lives


def _cost(
    attempt: Attempt,
    merged: Merged,
    samples: Samples,
    limits: Mapping[tuple[str, int], int],
    lives: Mapping[object, int],
) -> Row:
    facts = attempt.facts
    row = {**_EMPTY, **{name: value for name, value in facts.items() if name in _EMPTY}}
    row.update(key=str(facts["key"]), attempt_id=str(facts.get("attempt_id", "")))
    row["flags"] = list(facts.get("flags", ()))
    # a scheduler's record was made on the scheduler's node, by its clock
    start, stop = attempt.start, attempt.stop
    local = start is not None and start.get("witness") != "scheduler"
    node, boot = (start["node"], start["boot"]) if start is not None else (facts.get("node"), facts.get("boot"))
    row["node"] = facts.get("ran_on") or (node if local else facts.get("node"))
    pid = facts.get("pid")
    series = samples.process(str(node), str(boot), int(pid)) if local and pid is not None else None
    life = 0
    if start is not None:
        life = merged.ends.get(str(start.get("segment")), 0) if start.get("witness") is None else 0
        life = max(life, lives.get(facts.get("worker"), 0) or lives.get((str(boot), node, pid), 0))
    window = _place(row, facts, start, stop, merged, local, life)
    ready_ns = _when(attempt.ready, merged)
    if local and row["queued_s"] is None and ready_ns is not None and row["start_ns"] is not None:
        row["queued_s"] = max(0.0, (row["start_ns"] - ready_ns) / 1e9)
    if facts.get("ended_by"):  # the batch system's word, beside what the job could still say
        said = row.get("reason")
        row["reason"] = facts["ended_by"] if said in (None, NO_END) else f"{said}; {facts['ended_by']}"
    if local and facts.get("roots"):  # these ran it, not the process that waited for them
        row["pid"], row["thread"] = int(facts["roots"][0][0]), None
        series = samples.trees(str(node), str(boot), facts["roots"])
    if _is_whole(facts):
        _command_cpu(row, facts, series)
    else:
        _thread_cost(row, facts, samples, window, (str(node), str(boot)))
    held = None if "elsewhere" in row["flags"] else series
    memory_peaks(row, facts, held, window, _is_whole(facts))
    device_cost(row, series, window, _is_whole(facts))
    _seen(row, facts, series, window)
    if row.get("memory_limit_bytes") is None and pid is not None:
        row["memory_limit_bytes"] = limits.get((str(node), int(pid)))
    return row


def _is_whole(facts: Row) -> bool:
    """Whether the attempt is all that its series shows: processes of its own, begun and waited for by a front end."""
    return facts.get("kind") == "command" or bool(facts.get("roots"))


def _when(record: Row | None, merged: Merged) -> int | None:
    """Return when a record was made, in UTC ns by the reference clock."""
    if record is None:
        return None
    if record.get("time_ns") is not None:
        return int(record["time_ns"])
    return merged.time_ns(record["node"], record["boot"], int(record["mono_ns"]))


def _place(
    row: Row, facts: Row, start: Row | None, stop: Row | None, merged: Merged, local: bool, life: int
) -> tuple[int, int] | None:
    """Set start, stop, wall and state; return the window in the host's monotonic time.

    ``life``: until when its process gave a sign of life.
    """
    row["start_ns"], row["stop_ns"] = (None if record is None else _when(record, merged) for record in (start, stop))
    if start is None:
        return None
    begin = int(start["mono_ns"])
    if stop is not None and stop["boot"] == start["boot"] and stop["node"] == start["node"]:
        end = int(stop["mono_ns"])
        row["wall_s"] = (end - begin) / 1e9
    elif stop is not None and row["start_ns"] is not None and row["stop_ns"] is not None:
        end = begin + max(0, row["stop_ns"] - row["start_ns"])
        row["wall_s"] = (end - begin) / 1e9
    else:
        end = max(begin, life)
        row["stop_ns"] = merged.time_ns(start["node"], start["boot"], end)
        row["wall_s"] = (end - begin) / 1e9
        row["flags"].append("truncated")
        if row.get("state") is None and local and merged.segments.get(str(start.get("segment")), {}).get("live"):
            row["reason"] = RUNS
        elif row.get("state") is None:  # a scheduler may know that it was done
            row["state"] = "lost"
            row["reason"] = row.get("reason") or NO_END
    last = max(begin, life + round(float(facts.get("interval_s") or 1.0) * 1e9))
    if local and row["state"] == "lost" and life and end > last:  # a scheduler may miss a dead node for minutes
        end = last
        row["stop_ns"] = merged.time_ns(start["node"], start["boot"], end)
        row["wall_s"] = (end - begin) / 1e9
    return (begin, end) if local else None


def _command_cpu(row: Row, facts: Row, series: Series | None) -> None:
    """CPU and I/O of a command: the wait's word for CPU, the ledger for what was never waited for."""
    usage = facts.get("rusage") or {}
    count = len(series.mono) if series is not None else 0
    ledger = series.last("cpu_ns", 0, count) if series is not None else None
    waited = usage.get("cpu_user_ns", 0) + usage.get("cpu_system_ns", 0) if usage else None
    if waited is not None:
        row["cpu_user_s"], row["cpu_system_s"] = usage["cpu_user_ns"] / 1e9, usage["cpu_system_ns"] / 1e9
        row["cpu_s"] = waited / 1e9
    if facts.get("cpu_seen_ns") is not None:  # between two samples, where a front end looks more often
        ledger = max(ledger or 0, facts["cpu_seen_ns"])
    if ledger is not None and (waited is None or ledger > waited + ROUNDING_NS):
        row["cpu_s"] = ledger / 1e9
        row["cpu_user_s"] = row["cpu_system_s"] = None
        row["flags"].append("estimated")
    if series is None:
        return
    for name in IO:
        value = series.last(name, 0, count)
        row[name] = None if value is None else int(value)
    if facts.get("io"):
        for name in IO:
            row[name] = max(row[name] or 0, int(facts["io"].get(name, 0)))


def _thread_cost(row: Row, facts: Row, samples: Samples, window: tuple[int, int] | None, host: tuple[str, str]) -> None:
    """CPU and I/O of a task that a thread ran: its readings and its share of the children."""
    base, end = facts.get("base"), facts.get("end")
    children = facts.get("children") or {}
    if base and not end and window is not None and facts.get("pid") is not None and facts.get("thread") is not None:
        series = samples.thread(*host, int(facts["pid"]), int(facts["thread"]))
        if series is not None:
            low, high = series.window(*window)
            end = {name: series.last(name, low, high) for name in ("cpu_ns", *IO)}
            row["flags"].append("estimated")
    if children.get("estimated"):
        row["flags"].append("estimated")

    def spent(name: str) -> float | None:
        if base and end and base.get(name) is not None and end.get(name) is not None:
            return float(max(0, end[name] - base[name])) + float(children.get(name) or 0)
        return float(children[name]) if children.get(name) is not None else None

    for name in ("cpu", "cpu_user", "cpu_system"):
        value = spent(f"{name}_ns")
        row[f"{name}_s"] = None if value is None else value / 1e9
    if row["cpu_s"] is not None:
        row["cpu_s"] += float(facts.get("helpers_cpu_ns") or 0) / 1e9
    if base and end:
        for name in ("cpu_user", "cpu_system"):
            if f"{name}_ns" not in base:  # the thread's own split is not known, so neither is the sum's
                row[f"{name}_s"] = None
    for name in IO:
        value = spent(name)
        row[name] = None if value is None else int(value)


def _seen(row: Row, facts: Row, series: Series | None, window: tuple[int, int] | None) -> None:
    """How well the attempt was seen: ticks inside, gaps, processes."""
    if series is None or window is None:
        row["samples"] = 0 if window is not None else None
        row["gap_s"] = row["wall_s"] if window is not None else None
        return
    import numpy as np

    interval = float(facts.get("interval_s") or 1.0)
    # the last sample of processes that a front end waited for is taken after their end
    low, high = (0, len(series.mono)) if facts.get("roots") else series.window(*window)
    row["samples"] = high - low
    # the tick before and the tick after also tell about the time between
    around = series.mono[max(0, low - 1) : high + 1]
    if not len(around):
        row["gap_s"] = row["wall_s"]
    else:
        edges = np.empty(len(around) + 2, "i8")
        edges[0], edges[1:-1], edges[-1] = window[0], around, window[1]
        edges = np.minimum(np.maximum(edges, window[0]), window[1])
        steps = (edges[1:] - edges[:-1]) / 1e9
        row["gap_s"] = float(steps[steps > GAP * interval].sum())
    if row.get("processes") is None:
        seen = series.last("processes_seen", 0, len(series.mono)) if _is_whole(facts) else None
        most = seen if seen is not None else series.highest("processes", low, high)
        row["processes"] = None if most is None else int(most)
