"""What each node did over time, and which attempts had no idle CPU beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.rates import increments
from jumper.analysis.tables import RunTables, floats, in_series, interval_of, texts, times

if TYPE_CHECKING:
    from jumper.analysis.tables import Bools, Floats, Ints

#: From this part of a node's CPUs on, they are taken as all busy.
FULL = 0.9


@dataclass(frozen=True, eq=False, slots=True)
class NodeTime:
    """What a node did between its samples; shape (n,), in order, NaN where not known.

    Attributes
    ----------
    end_ns : array
        Time of the later sample, ns.
    seconds : array
        From sample to sample, gaps left out.
    busy : array
        Cores that were busy.
    cpu_pressure, io_pressure, memory_pressure : array
        Part of the time in which some thread waited for a CPU, for I/O, for memory (``some`` of /proc/pressure).
    """

    end_ns: Ints
    seconds: Floats
    busy: Floats
    cpu_pressure: Floats
    io_pressure: Floats
    memory_pressure: Floats

    def part_full(self, cpus: int, start_ns: Ints, stop_ns: Ints) -> Floats:
        """Return the part of each time span in which all CPUs were busy; NaN where no sample says.

        Parameters
        ----------
        cpus : int
        start_ns, stop_ns : array of int
            Time spans; shape (m,).

        Returns
        -------
        array of float
            Between 0 and 1; shape (m,).

        Examples
        --------
        >>> second, zero = np.ones(4), np.zeros(4)
        >>> busy = np.array([2.0, 2.0, 0.1, 0.1])
        >>> node = NodeTime(np.arange(1, 5) * 10**9, second, busy, zero, zero, zero)
        >>> node.part_full(2, np.array([0, 2, 9]) * 10**9, np.array([4, 4, 10]) * 10**9).tolist()
        [0.5, 0.0, nan]
        """
        step = np.round(self.seconds * 1e9).astype("int64")
        # time between samples, gaps left out, up to the two ends of each step
        at = np.column_stack([self.end_ns - step, self.end_ns]).ravel()
        known, full = ((np.column_stack([np.zeros(len(step)), each]).ravel().cumsum())
                       for each in (step, np.where(self.busy >= FULL * cpus, step, 0)))  # fmt: skip
        if not len(at):
            return np.full(len(start_ns), np.nan)
        spans = [np.interp(stop_ns, at, values) - np.interp(start_ns, at, values) for values in (known, full)]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(spans[0] > 0, spans[1] / spans[0], np.nan)


def node_times(run: RunTables) -> dict[str, NodeTime]:
    """Return what each node did, from the stream ``system``.

    Parameters
    ----------
    run : RunTables

    Returns
    -------
    dict of str to NodeTime
        By node; those without samples are left out.
    """
    samples = run.samples("system")
    if not {"node", "segment"} <= set(samples.columns) or samples.empty:
        return {}
    order, number = in_series(samples)
    at, same = times(samples, "time_ns")[order], np.diff(number, prepend=-1) == 0
    grown = [
        increments(at, floats(samples, name)[order], interval_of(run))
        for name in ("cpu_ns", "cpu_pressure_ns", "io_pressure_ns", "memory_pressure_ns")
    ]
    seconds = grown[0][0]
    rates = [np.where(same, increase / (seconds * 1e9), np.nan) for _, increase in grown]
    known = np.isfinite(rates[0])
    at = at[known]
    codes, nodes = pd.factorize(samples["node"])
    columns = [values[known] for values in (seconds, *rates)]
    found = {}
    for code, where in pd.Series(codes[order][known]).groupby(codes[order][known]).indices.items():
        rows = np.asarray(where)[np.argsort(at[where], kind="stable")]
        found[str(nodes[int(str(code))])] = NodeTime(at[rows], *(values[rows] for values in columns))
    return found


def cpus_of(run: RunTables, node: str) -> int | None:
    """Return how many CPUs a node has, or None."""
    facts: Any = run.nodes.get(node) or {}
    return int(facts.get("num_system_cpus") or facts.get("num_cpus") or 0) or None


def crowded(run: RunTables, known: dict[str, NodeTime] | None = None) -> Bools:
    """Return which attempts had all CPUs of their node busy for more than half of their time.

    How many cores such an attempt kept busy says what it got, not what it could have used.

    Parameters
    ----------
    run : RunTables
    known : dict of str to NodeTime, optional
        Of :func:`node_times`, where it was made before.

    Returns
    -------
    array of bool
        A value an attempt, in the order of the tasks table; False where no sample says.
    """
    tasks = run.tasks
    found = np.zeros(len(tasks), dtype=bool)
    nodes = np.array(texts(tasks, "node"), dtype=object)
    rows_of = pd.Series(range(len(nodes))).groupby(nodes).indices
    start, stop = times(tasks, "start_ns"), times(tasks, "stop_ns")
    for node, time in (node_times(run) if known is None else known).items():
        cpus, rows = cpus_of(run, node), rows_of.get(node)
        if cpus is not None and rows is not None:
            with np.errstate(invalid="ignore"):
                found[rows] = time.part_full(cpus, start[rows], stop[rows]) > 0.5
    return found
