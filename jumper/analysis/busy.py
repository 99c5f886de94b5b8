"""Busy cores over time: those of each group of attempts, and those that were busy outside of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.rates import increments
from jumper.analysis.tables import RunTables, floats, in_series, texts, times
from jumper.analysis.timeline import OUTSIDE, Grid, Grouping, group_codes, spread, targets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jumper.analysis.tables import Floats, Ints

    Bools = NDArray[np.bool_]

#: Bins within which the shape of a curve is not looked at.
BRIEF = 2.0


@dataclass(frozen=True, slots=True)
class Counters:
    """CPU counters of threads or processes, one after the other.

    Attributes
    ----------
    keys : MultiIndex
        Node, process, and thread (or process again) of each counter.
    at, value : arrays, shape (samples,)
        Seconds of the grid, and CPU seconds.
    number : array, shape (samples,)
        Position of its counter in ``keys``, rising.
    seconds, increase : arrays, shape (samples,)
        Since the sample before; NaN where not known, see :func:`jumper.analysis.rates.increments`.
    """

    keys: pd.MultiIndex
    at: Floats
    value: Floats
    number: Ints
    seconds: Floats
    increase: Floats

    @property
    def firsts(self) -> Ints:
        """First sample of each counter."""
        return np.flatnonzero(np.diff(self.number, prepend=-1))

    @property
    def lasts(self) -> Ints:
        """Last sample of each counter."""
        return np.flatnonzero(np.diff(self.number, append=len(self.keys)))


@dataclass(frozen=True, slots=True)
class Pieces:
    """CPU seconds that attempts used evenly from ``begin`` to ``end``; ``owner`` is the attempt's row; shape (n,)."""

    begin: Floats
    end: Floats
    amount: Floats
    owner: Ints


def cpu_by_group(
    run: RunTables, grid: Grid, interval_s: float, grouping: Grouping | None = None,
    samples: pd.DataFrame | None = None,
) -> dict[str, Floats]:  # fmt: skip
    """Return busy cores of each task group in each bin, shape (bins,), and of :data:`OUTSIDE`.

    The area of a group is the ``cpu_s`` of its attempts. Its shape follows the counter
    of the thread that ran the attempt (or of the process, where it ran one attempt at a
    time); what that counter does not hold (sub-processes) is spread over the attempt.
    ``samples`` are those of :func:`jumper.analysis.timeline.processes`, where the caller has them.
    """
    tasks = run.tasks
    group, groups = grouping or group_codes(tasks)
    trees = _counters(targets(run, samples), grid, interval_s, "pid")
    process = np.asarray(trees.keys.get_indexer(_keys(tasks, "pid")), dtype="int64")
    pieces = _pieces(run, grid, interval_s, trees, process)
    out = {}
    of_group = group[pieces.owner]
    for code in np.unique(of_group):
        mine = of_group == code
        out[groups[code]] = spread(pieces.begin[mine], pieces.end[mine], pieces.amount[mine], grid.edges) / grid.width_s
    if len(trees.keys):
        outside = _outside(trees, pieces, process[pieces.owner], grid)
        if outside.any():
            out[OUTSIDE] = outside
    return out


def _keys(frame: pd.DataFrame, last: str, missing: int = 0) -> pd.MultiIndex:
    columns = [np.array(texts(frame, "node"), dtype=object), times(frame, "pid", missing), times(frame, last, missing)]
    return pd.MultiIndex.from_arrays(columns)


def _counters(samples: pd.DataFrame, grid: Grid, interval_s: float, last: str) -> Counters:
    """Return the CPU counters of samples; of several of one thread, as of a pid that came again, the first."""
    if last not in samples:
        samples = pd.DataFrame({"time_ns": [], last: []}, dtype="int64")
    order, series = in_series(samples)
    value = floats(samples, "cpu_ns")[order] / 1e9
    known = np.isfinite(value)
    keys = _keys(samples.iloc[order[np.flatnonzero(np.diff(series, prepend=-1))]], last, -1)
    kept = np.bincount(series[known], minlength=len(keys)) > 1
    for level in (1, 2):
        kept &= keys.get_level_values(level) != -1
    kept[np.flatnonzero(kept)[keys[kept].duplicated()]] = False
    known &= kept[series]
    time_ns, value = times(samples, "time_ns")[order[known]], value[known]
    number = (np.cumsum(kept) - 1)[series[known]]
    seconds, increase = increments(time_ns, value, interval_s)
    increase[np.diff(number, prepend=-1) != 0] = np.nan
    return Counters(keys[kept], grid.seconds(time_ns), value, number, seconds, increase)


def _pieces(run: RunTables, grid: Grid, interval_s: float, trees: Counters, process: Ints) -> Pieces:
    """Return what the attempts used, cut at the samples of their counters where they have a shape.

    Parameters
    ----------
    trees : Counters
        Those of processes.
    process : array, shape (attempts,)
        The number of the counter of each attempt's process, -1 where there is none.
    """
    tasks = run.tasks
    start = times(tasks, "start_ns")
    begin = grid.seconds(times(tasks, "start_ns", grid.start_ns))
    end = np.maximum(grid.seconds(times(tasks, "stop_ns", grid.stop_ns)), begin)
    cpu = floats(tasks, "cpu_s")
    threads = _counters(run.samples("thread"), grid, interval_s, "tid")
    process = np.where(times(tasks, "thread") == 0, process, -1)
    thread = threads.keys.get_indexer(_keys(tasks, "thread")) if len(threads.keys) else np.full(len(tasks), -1)
    order = np.flatnonzero(start > 0)
    pieces = []
    shaped = np.zeros(len(order), dtype=bool)
    if (np.maximum(process, thread)[order] >= 0).any():
        # attempts of one thread one after the other
        keys = _keys(tasks, "thread")
        chain = np.ravel_multi_index([*map(np.asarray, keys.codes)], tuple(map(len, keys.levels)))
        order = order[np.lexsort((begin[order], chain[order]))]
        fit = _fit(chain[order], begin[order], end[order], cpu[order], grid)
        for counters, which in ((threads, thread), (trees, process)):
            here = fit & ~shaped & (which[order] >= 0)
            shaped |= here
            chosen = order[here]
            one = _shaped(begin[chosen], end[chosen], cpu[chosen], which[chosen], counters)
            pieces.append(Pieces(one.begin, one.end, one.amount, chosen[one.owner]))
    rest = order[~shaped]
    pieces.append(Pieces(begin[rest], end[rest], cpu[rest], rest))
    columns: Any = ([getattr(one, name) for one in pieces] for name in ("begin", "end", "amount", "owner"))
    return Pieces(*map(np.concatenate, columns))


def _fit(chain: Ints, begin: Floats, end: Floats, cpu: Floats, grid: Grid) -> Bools:
    """Return which attempts have a shape to show: those of threads that ran one at a time, and for long.

    What is as short as a bin has none, and a run may have a hundred thousand of these.
    """
    firsts = np.flatnonzero(np.diff(chain, prepend=-1))
    crowded = np.zeros(len(chain), dtype=bool)
    crowded[1:] = begin[1:] < end[:-1] - 1e-6
    crowded[firsts] = False
    length = np.maximum.reduceat(end, firsts) - begin[firsts]
    brief = (length <= BRIEF * grid.width_s) & np.logical_and.reduceat(np.isfinite(cpu), firsts)
    fit = ~brief & ~np.logical_or.reduceat(crowded, firsts)
    return np.repeat(fit, np.diff(firsts, append=len(chain)))


def _shaped(begin: Floats, end: Floats, cpu: Floats, which: Ints, counters: Counters) -> Pieces:
    """Cut attempts at the samples of their counters.

    Parameters
    ----------
    begin, end, cpu, which : arrays, shape (n,)
        Those of one counter follow each other; ``which`` is the number of the counter.

    Returns
    -------
    Pieces
        ``owner`` is the position of its attempt here. The sum over an attempt is its
        ``cpu``; where that is not known, what the counter says.
    """
    turn = np.argsort(which, kind="stable")
    begin, end, cpu, which = begin[turn], end[turn], cpu[turn], which[turn]
    count = len(begin)
    used = np.zeros(len(counters.keys) + 1, dtype=bool)
    used[which] = True
    rows = np.flatnonzero(used[counters.number])
    knots = np.concatenate([counters.at[rows], begin, end])
    whose = np.concatenate([counters.number[rows], which, which])
    order = np.lexsort((knots, whose))
    left, right = knots[order][:-1], knots[order][1:]
    begun = np.cumsum((order >= len(rows)) & (order < len(rows) + count))[:-1] - 1
    sample = np.cumsum(order < len(rows))[:-1]  # the first one behind the left knot
    counter, of = whose[order][:-1], np.maximum(begun, 0)
    inside = (right > left) & (counter == whose[order][1:]) & (begun >= 0) & (which[of] == counter) & (left < end[of])
    left, right, counter, sample, of = (part[inside] for part in (left, right, counter, sample, of))
    row = rows[np.minimum(sample, len(rows) - 1)]
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = np.where((sample < len(rows)) & (counters.number[row] == counter),
                         counters.increase[row] / counters.seconds[row], np.nan)  # fmt: skip
        amount = np.nan_to_num(speed * (right - left))
        seen = np.bincount(of, amount, minlength=count)
        wanted = np.where(np.isfinite(cpu), cpu, seen)
        scale = np.where(seen > wanted, wanted / seen, 1.0)
        rest = np.maximum(wanted - seen * scale, 0.0)
        even = np.where(end > begin, rest / (end - begin), 0.0)
    return Pieces(left, right, amount * scale[of] + even[of] * (right - left), turn[of])


def _outside(trees: Counters, pieces: Pieces, process: Ints, grid: Grid) -> Floats:
    """Return cores that processes kept busy beyond their attempts, in each bin.

    Parameters
    ----------
    process : array, shape (pieces,)
        The number of the counter of each piece's process, -1 where there is none.
    """
    mine = (process >= 0) & np.isfinite(pieces.amount)
    process, begin, end, amount = process[mine], pieces.begin[mine], pieces.end[mine], pieces.amount[mine]
    firsts, lasts = trees.firsts, trees.lasts
    first, last = trees.at[firsts], trees.at[lasts]
    brief = last - first <= BRIEF * grid.width_s
    beyond = trees.value[lasts] - trees.value[firsts] - np.bincount(process, amount, minlength=len(firsts))
    out = spread(first[brief], last[brief], np.maximum(beyond[brief], 0.0), grid.edges)
    # all processes one after the other on one axis, each on a stretch of its own
    stretch = np.concatenate([[0.0], np.cumsum(last - first + 1.0)[:-1]]) - first
    low, high = (np.clip(time, first[process], last[process]) for time in (begin, np.maximum(end, begin + 1e-9)))
    amount = amount * (high - low) / np.maximum(end - begin, 1e-9)
    low, high = low + stretch[process], high + stretch[process]
    turn = np.argsort(low)  # what is looked up in order is found in a fifth of the time
    spent = np.concatenate([[0.0], spread(low[turn], high[turn], amount[turn], trees.at + stretch[trees.number])])
    left = np.nan_to_num(trees.increase) - spent
    left[firsts] = 0.0
    used = pd.Series(left).groupby(trees.number).cumsum()
    # the largest rising curve below the difference: an attempt whose CPU was placed a little late is not "outside"
    floor = np.maximum(used[::-1].groupby(trees.number[::-1]).cummin()[::-1].to_numpy(), 0.0)
    follows = np.flatnonzero((np.diff(trees.number) == 0) & ~brief[trees.number[1:]])
    out += spread(trees.at[follows], trees.at[follows + 1], np.diff(floor)[follows], grid.edges)
    return out / grid.width_s
