"""Memory: peaks near what was asked or allowed, or far below; what is left behind; what is swapped out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, hours, listed, many, shown
from jumper.analysis.findings.thresholds import (
    ENOUGH,
    FAR,
    KEPT,
    LEAK_BYTES,
    LEAK_PART,
    NEAR,
    PAUSED,
    RISK,
    SWAP_BYTES,
    SWAP_PART,
    WORTH,
)
from jumper.analysis.findings.view import View
from jumper.analysis.sizing import held
from jumper.analysis.tables import times
from jumper.analysis.units import human_bytes, percent
from jumper.analysis.workers import DASK_SPILL

#: Part of the attempts that may pass what is asked for before that is called near.
_RISK = np.array([float(RISK)])


def near(view: View) -> Iterator[Finding]:
    """Groups, and Dask workers, that came near the memory that they asked for or are allowed."""
    part = view.peaks / view.bound
    asked = view.floats("memory_asked_bytes") > 0
    for group, rows in view.groups.items():
        known = rows[np.isfinite(part[rows])]
        if not len(known):
            continue
        i = known[np.argmax(part[known])]
        kind = view.kind_of(i)
        worker = kind == "dask" and not asked[i]
        enough = len(known) >= ENOUGH and not worker
        if part[i] < (PAUSED if worker else NEAR) or (enough and held(part[known], _RISK) <= 1):
            continue
        if view.needs.open[rows].any():  # `killed` says what to ask for
            continue
        wanted = float(view.peaks[known].max()) / DASK_SPILL if worker else view.needs.amount(rows)
        text = f"reached {human_bytes(view.peaks[i])} of the {human_bytes(view.bound[i])} "
        text += f"{'asked for' if asked[i] else 'allowed'} ({part[i]:.0%})"
        text += f", in {key}." if (key := shown(view.texts("key")[i])) != group else "."
        action = f"{'Allow' if worker else 'Ask for'} {human_bytes(wanted)}, or work in smaller pieces."
        yield Finding("high", group, text, action, snippets.memory(kind, group, wanted, view.slurm), "memory-near")
    yield from _workers_near(view)


def _workers_near(view: View) -> Iterator[Finding]:
    """Workers that several tasks at once brought near their limit: whose memory it was is not known."""
    peaks, limit = view.floats("memory_peak_bytes"), view.floats("memory_limit_bytes")
    shared = view.done & view.flagged("shared") & ~view.flagged("truncated", "memory-estimated") & (limit > 0)
    part = np.where(shared, peaks / np.where(limit > 0, limit, np.nan), np.nan)
    rows = np.flatnonzero(part >= PAUSED)
    if len(rows):
        i = rows[np.argmax(part[rows])]
        workers = sorted({str(view.texts("worker")[row] or view.texts("node")[row]) for row in rows})
        groups = sorted({str(view.texts("group")[row]) for row in rows})
        subject = f"worker {workers[0]}" if len(workers) == 1 else many(len(workers), "worker")
        text = (f"reached {human_bytes(peaks[i])} of {human_bytes(limit[i])} ({part[i]:.0%}) while several tasks ran "
                f"at once, of {listed(groups)}; Dask pauses a worker at {PAUSED:.0%}.")  # fmt: skip
        snippet = snippets.memory("dask", groups[0], float(peaks[i]) / DASK_SPILL)
        yield Finding("high", subject, text, "Give workers more memory, or fewer threads.", snippet, "memory-near")


def far(view: View) -> Iterator[Finding]:
    """Groups that ask for far more memory than any of their attempts used."""
    asked = view.floats("memory_asked_bytes")
    hours_of = np.nan_to_num(view.wall) / 3600 / 1e9
    all_gb_hours = float(np.nan_to_num(asked * hours_of).sum())
    for group, rows in view.enough(np.isfinite(view.peaks) & (asked > 0)):
        usual, peak = float(np.median(asked[rows])), float(view.peaks[rows].max())
        beside = float(view.beside[rows].max())
        wanted = view.needs.amount(view.groups[group])
        freed = float((np.maximum(asked[rows] - wanted, 0) * hours_of[rows]).sum())
        ended = view.needs.open[view.groups[group]].any()  # `killed` says what to ask for
        if ended or wanted > FAR * usual or not freed > WORTH * all_gb_hours:
            continue
        text = (f"asks for {human_bytes(usual)}; none of its {many(len(rows), 'attempt')} used more than "
                f"{human_bytes(peak)} ({percent(peak / usual)}).")  # fmt: skip
        action = f"Ask for {human_bytes(wanted)}: that frees {hours(freed, 'GB')}."
        if beside:
            action += f" {human_bytes(beside)} of it is for the Snakemakes in its job."
        snippet = snippets.memory(view.kind_of(rows[0]), group, wanted, view.slurm)
        yield Finding("medium", group, text, action, snippet, "memory-far", gb_hours=freed)


def leaks(view: View) -> Iterator[Finding]:
    """Groups whose attempts leave memory behind in their worker that is still there when the next one begins."""
    start, stop = (view.floats(f"rss_{when}_bytes") for when in ("start", "stop"))
    left = np.where(view.flagged("shared"), np.nan, stop - start)
    table = pd.DataFrame({"group": view.texts("group"), "node": view.texts("node"), "left": left, "start": start})
    table["pid"], table["begun"] = np.nan_to_num(view.floats("pid")), times(view.tasks, "start_ns")
    alone = table[np.isfinite(table["left"])].sort_values("begun")
    if alone.empty:
        return
    found = alone.groupby(["group", "node", "pid"], sort=True).agg(
        count=("left", "size"),
        left=("left", "sum"),
        last=("left", "last"),
        low=("start", "first"),
        high=("start", "last"),
    )
    found["left"] -= found["last"]
    much = (found["left"] > 0) & (found["left"] >= LEAK_PART * found["low"])
    stays = (found["count"] >= ENOUGH) & much & (found["high"] - found["low"] >= KEPT * found["left"])
    found["count"] -= 1
    for group, row in found[stays].groupby("group", sort=True)[["left", "count"]].sum().iterrows():
        each, count = float(row["left"] / row["count"]), int(row["count"])
        if each >= LEAK_BYTES:
            text = (f"left {human_bytes(each)} behind in its worker each time, over "
                    f"{many(count, 'attempt')}, and most of it was still there in the end.")  # fmt: skip
            action = "Results that Dask keeps are among it; if there are none, look for a cache or a leak."
            yield Finding("info", str(group), text, action, name="leak")


def swapping(view: View) -> Iterator[Finding]:
    """Groups whose attempts had memory swapped out."""
    swap = view.floats("swap_peak_bytes")
    peaks = np.nan_to_num(view.floats("memory_peak_bytes"))
    which = swap >= np.maximum(SWAP_BYTES, SWAP_PART * peaks)
    for group, rows in view.groups.items():
        swapped = rows[which[rows]]
        if len(swapped):
            i = swapped[np.argmax(swap[swapped])]
            nodes = sorted(set(view.texts("node")[swapped]) - {""})
            text = (f"had up to {human_bytes(swap[i])} swapped out, in {len(swapped):,} of {many(len(rows), 'attempt')}"
                    f"{f' on {listed(nodes)}' if nodes else ''}; it was {shown(view.texts('key')[i])}.")  # fmt: skip
            wanted = 1.2 * float(peaks[i] + swap[i]) + float(view.beside[i])
            ended = view.needs.open[rows].any()  # `killed` says what to ask for
            snippet = "" if ended else snippets.memory(view.kind_of(i), group, wanted, view.slurm)
            action = "Run fewer at once on a node, or ask for what they need, so that fewer are placed there."
            yield Finding("medium", group, text, action, snippet, "swapping")
