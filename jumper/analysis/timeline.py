"""Timelines: counters, gauges and attempts brought onto one grid of at most 600 bins.

A counter is taken as growing evenly between two samples, so that the area under a
curve of rates is the counter's increase, whatever the width of a bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.rates import GAP_INTERVALS, increments
from jumper.analysis.tables import KEYS, RunTables, floats, in_series, interval_of, texts, times
from jumper.schema.columns import COLUMNS

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

MOST_BINS = 600
#: No run rests for so long (30 days): what lies beyond was placed by a clock that jumped.
FAR_NS = 30 * 86_400 * 10**9
#: Name of the CPU time that belongs to no attempt.
OUTSIDE = "outside tasks"
#: What a group without a name is called.
NO_NAME = "(no name)"


#: The number of each attempt's group, and the names.
Grouping = tuple["Ints", list[str]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins of one width over the time of a run.

    Attributes
    ----------
    start_ns : int
        UTC ns of the first edge.
    width_s : float
    bins : int
    """

    start_ns: int
    width_s: float
    bins: int

    @property
    def edges(self) -> Floats:
        """Edges in seconds since ``start_ns``, shape (bins + 1,)."""
        return np.arange(self.bins + 1, dtype="float64") * self.width_s

    @property
    def centers(self) -> Floats:
        """Middles in seconds since ``start_ns``, shape (bins,)."""
        return (np.arange(self.bins, dtype="float64") + 0.5) * self.width_s

    @property
    def stop_ns(self) -> int:
        """UTC ns of the last edge."""
        return self.start_ns + round(self.bins * self.width_s * 1e9)

    def seconds(self, time_ns: Ints) -> Floats:
        """Return UTC ns as seconds since ``start_ns``."""
        return (time_ns - self.start_ns) / 1e9


def make_grid(start_ns: int, stop_ns: int, bins: int = MOST_BINS) -> Grid:
    """Return a grid from start to stop (UTC ns); never narrower than 1 ms.

    Examples
    --------
    >>> make_grid(0, 60 * 10**9).width_s
    0.1
    """
    return Grid(start_ns, max((stop_ns - start_ns) / 1e9, 1e-3) / bins, bins)


def span_of(run: RunTables) -> tuple[int, int] | None:
    """Return (first, last) UTC ns that attempts and samples of the targets cover, or None where there is neither.

    What lies :data:`FAR_NS` from the rest, by a clock that jumped, is left out.
    """
    start, stop = times(run.tasks, "start_ns"), times(run.tasks, "stop_ns")
    found = _together(np.concatenate([start, stop, times(run.samples("process"), "time_ns")]))
    if not len(found):
        found = _together(times(run.samples("system"), "time_ns"))
    return (int(found[0]), int(found[-1])) if len(found) else None


def _together(time_ns: Ints) -> Ints:
    """Return the times in order, of several stretches far from each other the one that holds most.

    Examples
    --------
    >>> _together(np.array([5, 4, 10**18, 0])).tolist()
    [4, 5]
    """
    time_ns = time_ns[time_ns > 0]
    if len(time_ns) and time_ns.max() - time_ns.min() <= FAR_NS:
        return np.array([time_ns.min(), time_ns.max()])
    time_ns = np.sort(time_ns)
    cuts = np.flatnonzero(np.diff(time_ns) > FAR_NS) + 1
    return max(np.split(time_ns, cuts), key=len) if len(cuts) else time_ns


def spread(begin: Floats, end: Floats, amount: Floats, edges: Floats) -> Floats:
    """Spread amounts evenly over their intervals; return the amount in each bin.

    Parameters
    ----------
    begin, end, amount : arrays, shape (n,)
        Intervals in seconds; one of no length counts in the bin where it lies.
    edges : array, shape (bins + 1,)
        Rising.

    Examples
    --------
    >>> spread(np.array([0.5]), np.array([2.5]), np.array([4.0]), np.array([0.0, 1, 2, 3])).tolist()
    [1.0, 2.0, 1.0]
    """
    bins = len(edges) - 1
    keep = np.isfinite(amount) & (end >= edges[0]) & (begin <= edges[-1])
    if not keep.all():
        begin, end, amount = begin[keep], end[keep], amount[keep]
    point = end <= begin
    slope = amount / np.where(point, 1.0, end - begin)
    begin, end = np.maximum(begin, edges[0]), np.minimum(end, edges[-1])
    first = np.minimum(np.searchsorted(edges, begin, side="right") - 1, bins - 1)
    last = np.maximum(np.searchsorted(edges, end, side="left") - 1, first)
    inside = np.where(point, 1.0, np.minimum(end, edges[first + 1]) - begin)
    out = np.bincount(first, slope * inside, minlength=bins)
    more = np.flatnonzero(last > first)
    out += np.bincount(last[more], slope[more] * (end[more] - edges[last[more]]), minlength=bins)
    through = more[last[more] > first[more] + 1]
    change = np.bincount(first[through] + 1, slope[through], minlength=bins)
    change -= np.bincount(last[through], slope[through], minlength=bins)
    return np.asarray(np.maximum(out + np.cumsum(change) * np.diff(edges), 0.0), dtype="float64")


def counter_bins(time_s: Floats, counter: Floats, interval_s: float, edges: Floats) -> Floats:
    """Return the rate per second of one counter in each bin, shape (bins,), NaN where it is not known.

    Parameters
    ----------
    time_s, counter : array of float64, shape (n,)
    interval_s : float
        Seconds between two ticks.
    edges : array of float64, shape (bins + 1,)
        In the seconds of ``time_s``.

    Examples
    --------
    >>> counter_bins(np.array([0.0, 1, 9, 10]), np.array([0.0, 2, 3, 4]), 1.0, np.array([0.0, 0.5, 2, 8, 10])).tolist()
    [2.0, 2.0, nan, 1.0]
    """
    seconds, increase = increments(np.asarray(np.round(time_s * 1e9), dtype="int64"), counter, interval_s)
    known = np.isfinite(increase)
    begin, end = (time_s - np.where(known, seconds, 0))[known], time_s[known]
    amount = spread(begin, end, increase[known], edges)
    covered = spread(begin, end, end - begin, edges)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(covered > 1e-6 * np.diff(edges), amount / covered, np.nan), dtype="float64")


def gauge_bins(time_s: Floats, value: Floats, interval_s: float, edges: Floats) -> Floats:
    """Return the highest value of one gauge in each bin, NaN where there is none; one stands for up to 2.5 intervals.

    Parameters and shapes are those of :func:`counter_bins`.

    Examples
    --------
    >>> gauge_bins(np.array([0.1, 0.2, 3.1]), np.array([5.0, 7, 1]), 1.0, np.arange(7.0)).tolist()
    [7.0, 7.0, 7.0, 1.0, 1.0, 1.0]
    """
    keep = np.isfinite(value)
    time_s, value = time_s[keep], value[keep]
    bins = len(edges) - 1
    out = np.full(bins, np.nan)
    if not len(time_s):
        return out
    where = np.clip(np.searchsorted(edges, time_s, side="right") - 1, 0, bins - 1)
    np.fmax.at(out, where, value)
    centers = (edges[:-1] + edges[1:]) / 2
    last = np.searchsorted(time_s, centers, side="right") - 1
    fresh = (last >= 0) & (centers - time_s[np.maximum(last, 0)] <= GAP_INTERVALS * interval_s)
    held = np.isnan(out) & fresh
    out[held] = value[last[held]]
    return out


def total_rates(samples: pd.DataFrame, columns: Sequence[str], grid: Grid, interval_s: float) -> list[Floats | None]:
    """Return the rate per second of each counter in each bin, summed over all its series; None where none has a value.

    A bin of which only a part is known (by any of them) has the rate of that part.
    """
    out: list[Floats | None] = [None] * len(columns)
    there = [name for name in columns if name in samples]
    order, number = in_series(samples) if there else (np.zeros(0, dtype="int64"),) * 2
    time_ns = times(samples, "time_ns")[order]
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    before, covered = np.zeros(len(order), dtype=bool), np.zeros(grid.bins)
    for name in there:
        seconds, increase = increments(time_ns, floats(samples, name)[order], interval_s)
        increase[firsts] = np.nan
        known = np.isfinite(increase)
        if not known.any():
            continue
        end = grid.seconds(time_ns[known])
        begin = end - seconds[known]
        if not np.array_equal(known, before):
            first, last = _union(begin, end)
            before, covered = known, spread(first, last, last - first, grid.edges)
        amount = spread(begin, end, increase[known], grid.edges)
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.where(covered > 1e-6 * grid.width_s, amount / covered, 0.0)
        out[columns.index(name)] = np.asarray(rate, dtype="float64")
    return out


def _union(begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return intervals that cover the same, and do not overlap.

    Examples
    --------
    >>> [part.tolist() for part in _union(np.array([4.0, 0, 1]), np.array([5.0, 2, 3]))]
    [[0.0, 4.0], [3.0, 5.0]]
    """
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    new = np.concatenate([[True], begin[1:] > reach[:-1]])
    return begin[new], reach[np.concatenate([new[1:], [True]])]


def total_gauge(samples: pd.DataFrame, column: str, grid: Grid, interval_s: float) -> Floats:
    """Return the highest sum of a gauge over all its series in each bin, shape (bins,), 0 where there is none.

    A value stands until the next one of its series, for up to 2.5 intervals.
    """
    order, number = in_series(samples)
    at, value = grid.seconds(times(samples, "time_ns")[order]), floats(samples, column)[order]
    known = np.isfinite(value)
    at, value, number = at[known], value[known], number[known]
    last = np.diff(number, append=-1) != 0
    until = at + GAP_INTERVALS * interval_s
    last[:-1] |= until[:-1] < at[1:]
    change = np.diff(value, prepend=0.0)
    fresh = np.concatenate([[True], last[:-1]])[: len(at)]
    change[fresh] = value[fresh]
    knots, change = np.concatenate([at, until[last]]), np.concatenate([change, -value[last]])
    turn = np.argsort(knots, kind="stable")
    knots, level = knots[turn], np.cumsum(change[turn])
    at_once = np.diff(knots, append=np.inf) > 0  # of one moment, all changes together
    return np.maximum(_highest(knots[at_once], level[at_once], grid.edges), 0.0)


def _highest(at: Floats, level: Floats, edges: Floats) -> Floats:
    """Return the highest level in each bin; ``level[i]`` is in force from ``at[i]`` to ``at[i + 1]``."""
    if not len(at):
        return np.zeros(len(edges) - 1)
    in_force = np.searchsorted(at, edges[:-1], side="right") - 1
    out = np.where(in_force >= 0, level[np.maximum(in_force, 0)], 0.0)
    where = np.searchsorted(edges, at, side="right") - 1
    inside = (where >= 0) & (where < len(out))
    np.maximum.at(out, where[inside], level[inside])
    return out


def by_series(
    samples: pd.DataFrame, column: str, grid: Grid, interval_s: float, *, counter: bool
) -> dict[tuple[str, int | None], Floats]:
    """Return one line a node and process, by node, of shape (bins,); NaN where it is not known.

    A counter has its rate per second in each bin, a gauge its highest value.
    """
    lines: dict[tuple[str, int | None], Floats] = {}
    bins = counter_bins if counter else gauge_bins
    order, number = in_series(samples)
    at, value = grid.seconds(times(samples, "time_ns")[order]), floats(samples, column)[order]
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    head = samples.iloc[order[firsts]]
    nodes, pids = texts(head, "node"), [int(pid) if pid >= 0 else None for pid in times(head, "pid", -1)]
    lasts = np.append(firsts, len(order))[1:]
    for key, low, high in zip(zip(nodes, pids, strict=True), firsts, lasts, strict=True):
        one = bins(at[low:high], value[low:high], interval_s, grid.edges)
        if np.isfinite(one).any():
            lines[key] = np.fmax(lines[key], one) if key in lines else one
    return dict(sorted(lines.items(), key=lambda item: item[0][0]))


def group_codes(tasks: pd.DataFrame) -> Grouping:
    """Return the number of each attempt's group, and the names; a group without one is ``(no name)``."""
    codes, names = pd.factorize(np.array(texts(tasks, "group"), dtype=object))
    return codes.astype("int64"), [str(name) or NO_NAME for name in names]


def targets(run: RunTables, samples: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return what ran attempts of :func:`processes` (or of these): of a Snakemake run not those that ran none."""
    samples = processes(run) if samples is None else samples
    if run.info.get("kind") == "snakemake" and "pid" in samples:
        samples = samples[samples["pid"].isin(set(times(run.tasks, "pid")))]
    return samples


def processes(run: RunTables) -> pd.DataFrame:
    """Return the samples of processes; those that were begun for a job of Snakemake have a row at its start.

    Their first sample is up to an interval younger than they are, and they had used nothing when they began:
    in that row counters are 0, and their memory is null. Such an attempt has a process, and no thread that ran it.
    """
    samples, tasks = run.samples("process"), run.tasks
    if run.info.get("kind") != "snakemake" or "pid" not in samples or samples.empty:
        return samples
    start, pid = times(tasks, "start_ns"), times(tasks, "pid", -1)
    begun = np.flatnonzero((start > 0) & (pid >= 0) & (times(tasks, "thread", -1) < 0))
    at = times(samples, "time_ns")
    known = pd.DataFrame({"time_ns": at, "pid": times(samples, "pid", -1), "node": texts(samples, "node")})
    known = known.assign(row=np.arange(len(at))).iloc[np.argsort(at, kind="stable")]
    jobs = pd.DataFrame({"time_ns": start, "pid": pid, "node": texts(tasks, "node")}).iloc[begun]
    jobs = pd.merge_asof(jobs.sort_values("time_ns"), known, on="time_ns", by=["node", "pid"], direction="forward",
                         tolerance=round(GAP_INTERVALS * interval_of(run) * 1e9)).dropna()  # fmt: skip
    counters = {column.name for column in COLUMNS if column.kind == "counter"}.intersection(samples.columns)
    samples = samples[[name for name in samples if name in {*KEYS, *counters, "memory_bytes"} - {"mono_ns"}]]
    unused = {**dict.fromkeys(counters, 0), "memory_bytes": np.nan}
    rows = samples.iloc[jobs["row"].to_numpy(dtype="int64")].assign(time_ns=jobs["time_ns"].to_numpy(), **unused)
    out = pd.concat([rows, samples], ignore_index=True)
    return out.iloc[np.argsort(times(out, "time_ns"), kind="stable")]
