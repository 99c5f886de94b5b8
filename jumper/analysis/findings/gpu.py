"""GPUs that are idle, and groups that leave the device that they use waiting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jumper.analysis.findings.finding import Finding, hours, listed, many
from jumper.analysis.findings.thresholds import GPU_IDLE, GPU_STARVED, LONG_S, SPAN_S
from jumper.analysis.findings.view import View
from jumper.analysis.timeline import span_of
from jumper.analysis.units import digits, human_seconds


def gpus(view: View) -> Iterator[Finding]:
    """Devices that hardly anybody used, and groups that leave the device that they use waiting."""
    busy = view.floats("gpu_seconds")
    span = span_of(view.run)
    if not np.isfinite(busy).any() or span is None:
        return
    seconds = (span[1] - span[0]) / 1e9
    nodes, idle, devices, used = view.texts("node"), [], 0, 0.0
    for node, facts in view.run.nodes.items():
        count = int(facts.get("num_gpus") or 0)
        mine = float(np.nansum(busy[nodes == node]))
        if count and mine < GPU_IDLE * count * seconds:
            idle.append(str(node))
            devices, used = devices + count, used + mine
    if idle and seconds >= SPAN_S:
        share = used / (devices * seconds)
        text = (f"on {listed(idle)} {'was' if devices == 1 else 'were'} busy {share:.1%} of {human_seconds(seconds)}: "
                f"{hours(devices * seconds / 3600 - used / 3600, 'GPU')} idle.")  # fmt: skip
        yield Finding(
            "medium", many(devices, "GPU"), text, "Give them back, or spread the work over all.", name="gpu-idle"
        )
    for group, rows in view.enough(view.done & (busy > 0) & (np.nan_to_num(view.wall) >= LONG_S)):
        wall = float(view.wall[rows].sum())
        share, cores = float(busy[rows].sum()) / wall, float(np.nansum(view.floats("cpu_s")[rows])) / wall
        if GPU_IDLE <= share < GPU_STARVED:
            text = (f"keeps its GPU busy {share:.0%} of its time ({many(len(rows), 'attempt')}), and "
                    f"{digits(cores)} cores beside it.")  # fmt: skip
            action = "Feed it faster: more threads that load, larger batches, data nearer by; or share the device."
            yield Finding("medium", group, text, action, name="gpu-starved")
