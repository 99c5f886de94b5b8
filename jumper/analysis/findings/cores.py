"""Cores: threads asked for and not used, or exceeded; crowded nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, hours, listed, many
from jumper.analysis.findings.thresholds import (
    CROWDED_PART,
    ENOUGH,
    FULL,
    OURS,
    OVERUSED,
    PRESSED,
    SPAN_S,
    UNUSED,
    WORTH,
)
from jumper.analysis.findings.view import View
from jumper.analysis.units import digits, human_seconds

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats


def threads(view: View) -> Iterator[Finding]:
    """Groups that ask for more threads than they keep busy, or keep more busy than they ask for."""
    asked, cores = view.floats("threads_asked"), _cores(view)
    total = float(view.core_hours.sum())
    for group, rows in view.enough(view.worked & (asked >= 1)):
        most, usual = float(np.median(asked[rows])), float(np.median(cores[rows]))
        kind = view.kind_of(rows[0])
        if usual >= OVERUSED * most:
            wanted = math.ceil(usual)
            text = (f"asks for {many(round(most), 'thread')} and keeps {digits(usual)} cores busy "
                    f"({many(len(rows), 'attempt')}).")  # fmt: skip
            action = f"Ask for {wanted}, or keep its libraries to what it asks for (OMP_NUM_THREADS and the like)."
            snippet = snippets.threads(kind, group, wanted, view.slurm)
            yield Finding("medium", group, text, action, snippet, "threads-exceeded")
            continue
        if len(rows := rows[~view.crowded[rows]]) < ENOUGH:  # what they got is not what they could have used
            continue
        busiest = float(cores[rows].max())
        wanted = max(1, math.ceil(busiest))
        freed = float((np.maximum(asked[rows] - wanted, 0) * view.wall[rows]).sum() / 3600)
        if busiest <= UNUSED * most and wanted < most and freed > WORTH * total:
            text = (f"asks for {many(round(most), 'thread')}; the busiest of its {many(len(rows), 'attempt')} kept "
                    f"{digits(busiest)} cores busy.")  # fmt: skip
            action = f"Ask for {wanted}: that frees {hours(freed, 'core')}. Look at the wall time after the change."
            snippet = snippets.threads(kind, group, wanted, view.slurm)
            yield Finding("medium", group, text, action, snippet, "threads-unused", core_hours=freed)


def _cores(view: View) -> Floats:
    """Return the cores that each attempt kept busy, on average."""
    wall = view.wall
    return view.floats("cpu_s") / np.where(wall > 0, wall, np.nan)


def crowded(view: View) -> Iterator[Finding]:
    """Nodes with more threads that want to run than CPUs."""
    cpu, nodes = np.nan_to_num(view.floats("cpu_s")), view.texts("node")
    found: list[tuple[float, str, float, float]] = []
    for node, time in view.node_time.items():
        cpus = view.cpus(node)
        if cpus is None:
            continue
        pressed = (time.busy >= FULL * cpus) & (time.cpu_pressure >= PRESSED)
        seconds = float(time.seconds[pressed].sum())
        if seconds >= SPAN_S and seconds >= CROWDED_PART * time.seconds.sum():
            waited = float((time.cpu_pressure * time.seconds)[pressed].sum() / seconds)
            used = max(float(cpu[nodes == node].sum()), _watched_s(view, node))
            share = min(used / float((time.busy * time.seconds).sum()), 1.0)
            found.append((seconds, node, waited, share))
    for ours in (True, False):
        those = [one for one in found if (one[3] >= OURS) == ours]
        if not those:
            continue
        seconds, node, waited, share = max(those)
        text = (f"{'was' if len(those) == 1 else 'were'} crowded: for {human_seconds(seconds)} all CPUs of {node} were "
                f"busy, and {waited:.0%} of that time some thread waited for one. This run used {share:.0%} of the "
                f"CPU time that was used there.")  # fmt: skip
        subject = listed(sorted(name for _, name, *_ in those))
        if ours:
            action = "Run fewer tasks at once, or let each ask for the threads that it uses."
            yield Finding("medium", subject, text, action, _fewer(view, node), "cores-crowded")
        else:
            action = "Others held the CPUs: wall times are longer than they would be alone."
            yield Finding("info", subject, text, action, name="cores-crowded")


def _watched_s(view: View, node: str) -> float:
    """Return the CPU time of all that was watched on a node."""
    samples = view.run.samples("process", node=node)
    if not {"segment", "pid", "cpu_ns"} <= set(samples.columns):
        return 0.0
    grown = samples.groupby(["segment", "pid"])["cpu_ns"].agg(["min", "max"]).astype("float64")
    return float((grown["max"] - grown["min"]).sum() / 1e9)


def _fewer(view: View, node: str) -> str:
    cpus = view.cpus(node)
    kind = str(view.run.info.get("kind") or "")
    if kind == "dask":
        return f"dask worker SCHEDULER --nworkers 1 --nthreads {cpus}"
    return f"snakemake --cores {cpus}" if kind == "snakemake" else ""
