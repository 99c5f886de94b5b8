"""Memory pressure: time in which threads waited for memory, and what a control group's limit killed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jumper.analysis.findings.finding import Finding, listed, many
from jumper.analysis.findings.thresholds import MEMORY_PART, MEMORY_PRESSED, SPAN_S
from jumper.analysis.findings.view import View
from jumper.analysis.rates import increments
from jumper.analysis.tables import floats, interval_of, times
from jumper.analysis.units import human_seconds


def pressure(view: View) -> Iterator[Finding]:
    """Nodes, and control groups on them, where threads waited for memory."""
    found: dict[str, tuple[float, float]] = {}
    for node, time in view.node_time.items():
        _note(found, node, time.seconds, time.memory_pressure)
    samples = view.run.samples("process")
    if {"node", "segment", "pid", "cgroup_pressure_ns"} <= set(samples.columns):
        for (name, _, _), rows in samples.groupby(["node", "segment", "pid"]):
            rows = rows.sort_values("time_ns")
            seconds, grown = increments(
                times(rows, "time_ns"), floats(rows, "cgroup_pressure_ns"), interval_of(view.run)
            )
            known = np.isfinite(grown)
            _note(found, str(name), seconds[known], grown[known] / (seconds[known] * 1e9))
    if found:
        longest, waited = max(found.values())
        text = (f"{'was' if len(found) == 1 else 'were'} short of memory: for {human_seconds(longest)} some thread "
                f"waited for it {waited:.0%} of the time.")  # fmt: skip
        action = "Run fewer tasks at once there, ask for more memory, or work in smaller pieces."
        yield Finding("medium", listed(sorted(found)), text, action, name="memory-pressure")


def _note(found: dict[str, tuple[float, float]], node: str, seconds: object, part: object) -> None:
    """Note the pressed time of a series, where it is long enough, and what it waited in it."""
    lengths, waits = np.asarray(seconds, dtype=float), np.asarray(part, dtype=float)
    pressed = waits >= MEMORY_PRESSED
    most = float(lengths[pressed].sum())
    if most >= SPAN_S and most >= MEMORY_PART * lengths.sum():
        waited = float((lengths * waits)[pressed].sum() / most)
        found[node] = max(found.get(node, (0.0, 0.0)), (most, waited))


def kills(view: View) -> Iterator[Finding]:
    """Processes that the kernel killed because their control group was at its limit."""
    samples = view.run.samples("process")
    if not {"node", "segment", "pid", "cgroup_oom_kills"} <= set(samples.columns):
        return
    grown = samples.groupby(["node", "segment", "pid"])["cgroup_oom_kills"].agg(["min", "max"]).astype("float64")
    by_node = (grown["max"] - grown["min"]).groupby("node").max()  # targets of a node may share a group
    nodes = by_node[by_node > 0]
    if len(nodes):
        text = f"by the memory limit of a control group, on {listed(sorted(map(str, nodes.index)))}."
        action = "Ask for more memory; a task may have gone on without what was killed."
        yield Finding("high", many(int(nodes.sum()), "OOM kill"), text, action, name="oom-kills")
