"""What attempts held over time, by group: the memory of their processes, and what they had asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.rates import GAP_INTERVALS
from jumper.analysis.tables import RunTables, floats, in_series, texts, times
from jumper.analysis.timeline import OUTSIDE, Grid, Grouping, group_codes, spread, targets, total_gauge

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints


def asked(run: RunTables, grid: Grid, column: str) -> Floats | None:
    """Return what the running attempts had asked for together, mean of each bin; None where none of them asked.

    Parameters
    ----------
    run : RunTables
    grid : Grid
    column : {"threads_asked", "memory_asked_bytes"}
    """
    value = floats(run.tasks, column)
    start = times(run.tasks, "start_ns")
    known = np.isfinite(value) & (start > 0)
    if not known.any():
        return None
    begin = grid.seconds(start)[known]
    end = np.maximum(grid.seconds(times(run.tasks, "stop_ns", grid.stop_ns))[known], begin)
    return spread(begin, end, value[known] * (end - begin), grid.edges) / grid.width_s


def memory_by_group(
    run: RunTables, grid: Grid, interval_s: float, grouping: Grouping | None = None,
    samples: pd.DataFrame | None = None,
) -> dict[str, Floats]:  # fmt: skip
    """Return the memory in use by group in each bin, bytes, shape (bins,), and of :data:`OUTSIDE` while none ran.

    The sum over the groups is the highest sum over all processes in the bin. A process
    counts for the attempts that ran in it; where several did at once, nobody can say
    whose memory is whose, and each of them counts for an equal part. ``samples`` are those of
    :func:`jumper.analysis.timeline.processes`, where the caller has them.
    """
    samples = targets(run, samples)
    known_at = np.isfinite(floats(samples, "memory_bytes"))
    samples = samples if known_at.all() else samples[known_at]
    if samples.empty or "pid" not in samples or not floats(samples, "memory_bytes").any():
        return {}
    highest = total_gauge(samples, "memory_bytes", grid, interval_s)
    group, names = grouping or group_codes(run.tasks)
    held = np.zeros((len(names) + 1, grid.bins))
    at, until, value, process, known = _intervals(samples, grid, interval_s)
    begin, end, of_attempt, rows = _attempts(run, grid, known)
    # all processes one after the other on one axis, each on a stretch of its own
    length = grid.bins * grid.width_s * 1.01 + 1.0
    at, until = (np.clip(time, 0, length - 1.0) + process * length for time in (at, until))
    begin, end = (np.clip(time, 0, length - 1.0) + of_attempt * length for time in (begin, end))
    knots = np.unique(np.concatenate([at, until, begin, end, _edges(at, until, process, grid, length)]))
    left, width = knots[:-1], np.diff(knots)
    sample = np.searchsorted(at, left, side="right") - 1
    covered = (sample >= 0) & (left < until[np.maximum(sample, 0)])
    amount = np.where(covered, value[np.maximum(sample, 0)] * width, 0.0)
    where = np.clip(((left + width / 2) % length / grid.width_s).astype("int64"), 0, grid.bins - 1)
    from_knot, to_knot = np.searchsorted(knots, begin), np.searchsorted(knots, end)
    running = _running(len(knots), from_knot, to_knot)
    held[-1] = np.bincount(where, np.where(running > 0, 0.0, amount), minlength=grid.bins)
    each = np.divide(amount, running, out=np.zeros(len(left)), where=running > 0)
    for code in np.unique(group[rows]):
        mine = group[rows] == code
        held[code] = np.bincount(
            where, each * _running(len(knots), from_knot[mine], to_knot[mine]), minlength=grid.bins
        )
    total = held.sum(axis=0)
    share = np.divide(held, total, out=np.zeros(held.shape), where=total > 0)
    return {name: line for name, line in zip([*names, OUTSIDE], share * highest, strict=True) if line.any()}


def _intervals(samples: pd.DataFrame, grid: Grid, interval_s: float) -> tuple[Floats, Floats, Floats, Ints, pd.Index]:
    """Return from when until when each value stands, by process and time, the number of its process, and all of them.

    A value stands until the next one of its series, for up to 2.5 intervals.
    """
    order, number = in_series(samples)
    at, value = grid.seconds(times(samples, "time_ns")[order]), floats(samples, "memory_bytes")[order]
    until = at + GAP_INTERVALS * interval_s
    follows = np.flatnonzero(np.diff(number) == 0)
    until[follows] = np.minimum(until[follows], at[follows + 1])
    firsts = samples[["node", "pid"]].iloc[order[np.flatnonzero(np.diff(number, prepend=-1))]]
    one_each, known = pd.factorize(pd.MultiIndex.from_arrays([_nodes(firsts), times(firsts, "pid")]))
    process = one_each[number]
    some = value > 0  # the last sample of a process that has ended is 0, and holds nothing
    at, until, value, process = at[some], until[some], value[some], process[some]
    # of a process's values in one bin, the highest stands for as long as they all do
    where = np.clip((at / grid.width_s).astype("int64"), 0, grid.bins - 1) + process * grid.bins
    turn = np.lexsort((at, where))
    first = np.flatnonzero(np.diff(where[turn], prepend=-1))
    held = [reduce.reduceat(column[turn], first) for reduce, column in
            ((np.minimum, at), (np.maximum, until), (np.maximum, value))]  # fmt: skip
    return held[0], held[1], held[2], where[turn][first] // grid.bins, known


def _edges(at: Floats, until: Floats, process: Ints, grid: Grid, length: float) -> Floats:
    """Return the edges of bins on the stretch of each process, as far as it was there."""
    firsts = np.flatnonzero(np.diff(process, prepend=-1))
    start = process[firsts] * length
    low = ((at[firsts] - start) / grid.width_s).astype("int64")
    high = np.ceil((np.maximum.reduceat(until, firsts) - start) / grid.width_s).astype("int64")
    count = np.minimum(high, grid.bins) - np.minimum(low, grid.bins) + 1
    of = np.repeat(np.arange(len(firsts)), count)
    number = low[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(start[of] + number * grid.width_s, dtype="float64")


def _attempts(run: RunTables, grid: Grid, processes: pd.Index) -> tuple[Floats, Floats, Ints, Ints]:
    """Return start and stop of the attempts that ran in these processes, the number of the process, and their rows."""
    tasks = run.tasks
    start = times(tasks, "start_ns")
    keys = pd.MultiIndex.from_arrays([_nodes(tasks), times(tasks, "pid")])
    process = processes.get_indexer(keys)
    rows = np.flatnonzero((process >= 0) & (start > 0))
    begin = grid.seconds(start[rows])
    end = np.maximum(grid.seconds(times(tasks, "stop_ns", grid.stop_ns)[rows]), begin)
    return begin, end, process[rows].astype("int64"), rows.astype("int64")


def _nodes(frame: pd.DataFrame) -> Any:
    """Return the nodes of a table as an array of objects."""
    return np.array(texts(frame, "node"), dtype=object)


def _running(knots: int, begin: Ints, end: Ints) -> Floats:
    """Return how many intervals, from one knot to another, cover each stretch between two knots."""
    change = np.bincount(begin, minlength=knots) - np.bincount(end, minlength=knots)
    return np.cumsum(change)[:-1].astype("float64")
