"""Slowness: groups that wait for storage or the network, and nodes on which tasks take longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.comparison import mann_whitney
from jumper.analysis.findings.finding import Finding, hours, listed, many
from jumper.analysis.findings.network import waiting
from jumper.analysis.findings.thresholds import (
    ENOUGH,
    IO_LEAST,
    IO_PRESSED,
    IO_RATE,
    SLOWER,
    SURE,
    WAITS,
    WORTH,
)
from jumper.analysis.findings.view import View
from jumper.analysis.units import digits, human_bytes, human_seconds

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats


def io(view: View) -> Iterator[Finding]:
    """Groups that hardly compute while they move data."""
    cpu, total = view.floats("cpu_s"), float(view.core_hours.sum())
    moved = view.floats("read_chars") + view.floats("write_chars")
    stored = np.nan_to_num(view.floats("read_bytes")) + np.nan_to_num(view.floats("write_bytes"))
    pressure = {
        node: float(np.nansum(time.io_pressure * time.seconds) / time.seconds.sum())
        for node, time in view.node_time.items() if time.seconds.sum() > 0
    }  # fmt: skip
    network = {group for group, _ in waiting(view)}  # told by itself
    for group, rows in view.enough(view.worked & np.isfinite(moved)):
        if group in network:
            continue
        wall = float(view.wall[rows].sum())
        held = float(view.core_hours[rows].sum())
        cores, rate = float(cpu[rows].sum()) / wall, float(moved[rows].sum()) / wall
        on, counts = np.unique(view.node[0][rows], return_counts=True)
        waits = float(np.dot([pressure.get(view.node[1][number], 0.0) for number in on], counts)) / len(rows)
        idle = held - cores * wall / 3600
        if (
            cores > WAITS
            or idle <= WORTH * total
            or not (rate >= IO_RATE or (waits >= IO_PRESSED and rate >= IO_LEAST))
        ):
            continue
        where = (
            "most of it on storage" if stored[rows].sum() >= moved[rows].sum() / 2 else "hardly any of it on storage"
        )
        text = (f"keeps {digits(cores)} cores busy and moves {human_bytes(rate)}/s, {where}, in "
                f"{many(len(rows), 'attempt')}: {hours(idle, 'core')} waited.")  # fmt: skip
        action = "It is bound by storage or the network: run more of it at once, read less, or put its data nearer."
        yield Finding("info", group, text, action, name="io-bound", core_hours=idle)


def stragglers(view: View) -> Iterator[Finding]:
    """Nodes on which attempts of a group take longer than elsewhere."""
    (nodes, names), wall = view.node, view.wall
    known = np.array([name != "" for name in names], dtype=bool)[nodes]
    slow: dict[str, list[tuple[float, float, str]]] = {}
    compared = 0
    for group, rows in view.enough(view.done & (wall > 0) & ~view.flagged("truncated") & known):
        rows = rows[np.argsort(wall[rows], kind="stable")]
        took, which = wall[rows], nodes[rows]
        counts = np.bincount(which, minlength=len(names))
        for number in np.flatnonzero((counts >= ENOUGH) & (len(rows) - counts >= ENOUGH)):
            compared += 1
            on_it = which == number
            here, there = took[on_it], took[~on_it]
            longer, usual = _middle(here), _middle(there)
            if longer >= SLOWER * usual:
                extra = float((longer - usual) * view.threads[rows[on_it]].sum() / 3600)
                words = f"{group} takes {human_seconds(longer)} there and {human_seconds(usual)} elsewhere"
                slow.setdefault(names[number], []).append((mann_whitney(here, there), extra, words))
    for node, cases in slow.items():
        sure = [(p * compared, extra, words) for p, extra, words in cases if p * compared < SURE]
        cost = sum(extra for _, extra, _ in sure)
        if cost > WORTH * view.core_hours[nodes == names.index(node)].sum():
            chance = min(p for p, _, _ in sure)
            odds = f"1 in {1 / chance:,.0f}" if chance > 1e-6 else "less than 1 in a million"
            text = (f"is slow: {listed([words for *_, words in sorted(sure, key=lambda case: -case[1])])} (medians; by "
                    f"chance {odds}). That is {hours(cost, 'core')} more.")  # fmt: skip
            action = "Look at its clock frequency, its neighbours, its disk; or leave it out."
            yield Finding("medium", node, text, action, name="straggler", core_hours=cost)


def _middle(values: Floats) -> float:
    """Return the median of sorted values."""
    return float(values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
