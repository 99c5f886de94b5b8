"""Groups that hardly compute while the network of their nodes is busy with what they move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.findings.finding import Finding, hours, many
from jumper.analysis.findings.thresholds import NET_RATE, WAITS, WORTH
from jumper.analysis.findings.view import View
from jumper.analysis.rates import increments
from jumper.analysis.tables import floats, interval_of, times
from jumper.analysis.units import digits, human_bytes

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints


def bound(view: View) -> Iterator[Finding]:
    """Groups that wait for the network."""
    found = waiting(view)
    rates = traffic(view) if found else {}
    for group, rows in found:
        wall = float(view.wall[rows].sum())
        cores = float(view.floats("cpu_s")[rows].sum()) / wall
        idle = float(view.core_hours[rows].sum()) - cores * wall / 3600
        text = (f"keeps {digits(cores)} cores busy while it moves {human_bytes(rates[group])}/s over the network, in "
                f"{many(len(rows), 'attempt')}: {hours(idle, 'core')} waited.")  # fmt: skip
        action = "Put its data on the node first, ask for fewer bytes, or let more of it run where others compute."
        yield Finding("info", group, text, action, name="network-bound", core_hours=idle)


def waiting(view: View) -> list[tuple[str, Ints]]:
    """Return the groups that wait for the network, and the rows of their attempts."""
    cpu, total = view.floats("cpu_s"), float(view.core_hours.sum())
    found = []
    for group, rows in view.enough(view.worked):
        wall = float(view.wall[rows].sum())
        cores = float(cpu[rows].sum()) / wall
        idle = float(view.core_hours[rows].sum()) - cores * wall / 3600
        if cores <= WAITS and idle > WORTH * total:
            found.append((group, rows))
    rates = traffic(view) if found else {}  # looks at every sample of every node
    return [(group, rows) for group, rows in found if rates.get(group, 0.0) >= NET_RATE]


def traffic(view: View) -> dict[str, float]:
    """Return what each group moves over the network, bytes a second and attempt.

    The network counts by node: at each time, its traffic is shared out evenly over the attempts that run there.
    """
    samples = view.run.samples("system")
    if not {"node", "segment", "net_recv_bytes", "net_sent_bytes"} <= set(samples.columns):
        return {}
    start, stop = times(view.tasks, "start_ns"), times(view.tasks, "stop_ns")
    nodes = view.texts("node")
    moved: dict[str, float] = {}
    held: dict[str, float] = {}
    for node, rows in samples.groupby("node", dropna=False):
        at, seconds, rate = _rates(view, rows.sort_values("time_ns"))
        here = (nodes == node) & (start > 0) & (stop > start)
        everybody = _running(start[here], stop[here], at)
        for group, mine in view.groups.items():
            own = mine[here[mine]]
            if len(own):
                running = _running(start[own], stop[own], at)
                share = np.where(running > 0, running / np.maximum(everybody, 1), 0.0)
                moved[group] = moved.get(group, 0.0) + float((rate * seconds * share).sum())
                held[group] = held.get(group, 0.0) + float((seconds * running).sum())
    return {group: moved[group] / held[group] for group in moved if held[group] > 0}


def _rates(view: View, rows: pd.DataFrame) -> tuple[Ints, Floats, Floats]:
    """Return the middle of each interval, its length, and the bytes a second in it, where they are known."""
    at = times(rows, "time_ns")
    grown = [increments(at, floats(rows, f"net_{way}_bytes"), interval_of(view.run)) for way in ("recv", "sent")]
    seconds = grown[0][0]
    rate = (grown[0][1] + grown[1][1]) / seconds
    known = np.isfinite(rate)
    return at[known] - (seconds[known] * 5e8).astype("int64"), seconds[known], rate[known]


def _running(start: Ints, stop: Ints, at: Ints) -> Floats:
    """Return how many attempts ran at each time."""
    begun = np.searchsorted(np.sort(start), at, side="right")
    return (begun - np.searchsorted(np.sort(stop), at, side="right")).astype("float64")
