"""Findings: what stands out in a run, each with its evidence and what to do; pure functions of tables.

Findings about memory read ``memory_peak_bytes`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from jumper.analysis.summary import left_behind, lists, summarize
from jumper.analysis.tables import RunTables, floats, texts
from jumper.analysis.units import human_bytes, human_seconds

Severity = Literal["high", "medium", "info"]
_RANK = {"high": 0, "medium": 1, "info": 2}

#: Fewest attempts of a group before its asked memory is called too much.
ENOUGH = 5
#: A peak above this part of what was asked or allowed is near it; below the other one, far from it.
NEAR, FAR = 0.95, 0.5
#: A group leaves memory behind from this much an attempt on, if this part of it is there in the end.
LEAK_BYTES, KEPT = 1 << 20, 0.5
#: Most deaths that are told one by one, from the largest.
DEATHS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands out.

    Attributes
    ----------
    severity : {"high", "medium", "info"}
    subject : str
        What it is about: a group, a node, a file; shown in bold.
    text : str
        The evidence, with its numbers; continues the subject.
    action : str
        What to do about it.
    snippet : str
        A change to paste; empty where there is none.
    """

    severity: Severity
    subject: str
    text: str
    action: str = ""
    snippet: str = ""


def findings(run: RunTables) -> list[Finding]:
    """Return all findings of a run, the most severe first."""
    found = [finding for rule in RULES for finding in rule(run)]
    return sorted(found, key=lambda finding: _RANK[finding.severity])


def failures(run: RunTables) -> Iterator[Finding]:
    """Groups whose attempts failed, or were lost with their worker."""
    tasks = run.tasks
    groups, states, reasons = texts(tasks, "group"), texts(tasks, "state"), texts(tasks, "reason")
    codes, keys = texts(tasks, "exit_code"), texts(tasks, "key")
    for state, verb in (("lost", "was lost with its worker or node"), ("failed", "failed")):
        for group in sorted({g for g, s in zip(groups, states, strict=True) if s == state}):
            which = [i for i, g in enumerate(groups) if g == group and states[i] == state]
            why = sorted({reasons[i] or (f"exit status {codes[i]}" if codes[i] else "") for i in which} - {""})
            text = f"{verb} in {len(which)} of {_many(groups.count(group), 'attempt')}"
            action = f"It was {keys[which[0]]}." if len(which) == 1 else f"Filter the task table by “{state}”."
            yield Finding("high", group, text + (f": {'; '.join(why[:3])}" if why else "") + ".", action)


def deaths(run: RunTables) -> Iterator[Finding]:
    """Attempts that were lost with their worker, and what they had grown to when it died."""
    tasks = run.tasks
    keys, groups, workers, nodes = (texts(tasks, name) for name in ("key", "group", "worker", "node"))
    states, reasons = texts(tasks, "state"), texts(tasks, "reason")
    flags = lists(tasks, "flags")
    starts, peaks, limits = (floats(tasks, f"{n}_bytes") for n in ("rss_start", "memory_peak", "memory_limit"))
    lost = [i for i, state in enumerate(states) if state == "lost" and peaks[i] > 0]
    for i in sorted(lost, key=lambda i: -peaks[i])[:DEATHS]:
        near = peaks[i] / limits[i] if limits[i] > 0 else np.nan
        grown = peaks[i] - starts[i]
        before = f"from {human_bytes(starts[i])} " if grown > 0 else ""
        allowed = f", {near:.0%} of the {human_bytes(limits[i])} allowed," if np.isfinite(near) else ""
        where = f"worker {workers[i]} on {nodes[i]}" if workers[i] else f"node {nodes[i]}"
        text = f"{keys[i]} had grown {before}to {human_bytes(peaks[i])}{allowed} when {where} died."
        if "shared" in flags[i]:
            text += " Other tasks ran in the process; the memory is all of theirs."
        if near >= NEAR or "oom" in flags[i] or "nanny ended it" in reasons[i]:
            action = f"Give it more than {human_bytes(1.2 * peaks[i])}, or work in smaller pieces."
            yield Finding("high", groups[i], text, action)
        else:
            yield Finding("info", groups[i], text, "Memory is not what ended it, as far as was seen.")


def memory(run: RunTables) -> Iterator[Finding]:
    """Groups whose highest peak is near, or far below, the memory asked for or allowed."""
    for group, row in summarize(run.tasks).iterrows():
        peak, asked, limit = (
            None if value is None or np.isnan(value) else float(value)
            for value in (
                row[name] if row.notna()[name] else np.nan
                for name in ("memory_peak_bytes", "memory_asked_bytes", "memory_limit_bytes")
            )
        )
        bound, word = (asked, "asked for") if asked else (limit, "allowed")
        if not peak or not bound:
            continue
        ratio, wanted = peak / bound, human_bytes(1.2 * peak)
        if ratio >= NEAR:
            yield Finding("high", str(group), f"reached {human_bytes(peak)} of the {human_bytes(bound)} {word} "
                          f"({ratio:.0%}).", f"Ask for {wanted}, or work in smaller pieces.")  # fmt: skip
        elif asked and ratio <= FAR and row["attempts"] >= ENOUGH:
            evidence = f"none of its {row['attempts']} attempts used more than {human_bytes(peak)} ({ratio:.0%})"
            yield Finding("medium", str(group), f"asks for {human_bytes(asked)}; {evidence}.", f"Ask for {wanted}.")


def leaks(run: RunTables) -> Iterator[Finding]:
    """Groups whose attempts leave memory behind in their worker that is still there when the next one begins."""
    tasks = run.tasks
    table = pd.DataFrame({name: texts(tasks, name) for name in ("group", "node", "pid")})
    table["left"], table["start"] = left_behind(tasks), floats(tasks, "rss_start_bytes")
    table["begun"] = floats(tasks, "start_ns")
    alone = table[np.isfinite(table["left"])].sort_values("begun")
    sums: dict[str, tuple[float, int]] = {}
    for (group, _, _), rows in alone.groupby(["group", "node", "pid"], sort=True):
        left = float(rows["left"].iloc[:-1].sum())
        kept = float(rows["start"].iloc[-1] - rows["start"].iloc[0])
        if len(rows) >= ENOUGH and left > 0 and kept >= KEPT * left:
            bytes_, count = sums.get(group, (0.0, 0))
            sums[group] = bytes_ + left, count + len(rows) - 1
    for group, (left, count) in sums.items():
        if left >= LEAK_BYTES * count:
            text = (f"left {human_bytes(left / count)} behind in its worker each time, over "
                    f"{_many(count, 'attempt')}, and most of it was still there in the end.")  # fmt: skip
            action = "Results that Dask keeps are among it; if there are none, look for a cache or a leak."
            yield Finding("info", group, text, action)


def coverage(run: RunTables) -> Iterator[Finding]:
    """What is missing from the record: absent parts, torn or dropped blocks, gaps, collectors switched off."""
    known = run.info.get("coverage") or {}
    missing = known.get("missing") or []
    if missing:
        named = "; ".join(_words(item) for item in missing[:5]) + ("; …" if len(missing) > 5 else "")
        subject = _many(len(missing), "expected part")
        yield Finding("medium", subject, f"did not come: {named}.", "Their figures are null, not zero.")
    for name, words in (("torn", "could not be read"), ("missing_blocks", "did not come"),
                        ("dropped", "could not be written")):  # fmt: skip
        if known.get(name):
            yield Finding("medium", _many(int(known[name]), "block"), f"of samples {words}.", "Peaks may be too low.")
    open_ended = known.get("incomplete") or []
    if open_ended and run.info.get("finished_ns"):
        yield Finding("info", _many(len(open_ended), "monitor"), f"did not end in order: {', '.join(open_ended[:5])}.",
                      "What was taken until then is here.")  # fmt: skip
    gaps = np.nan_to_num(floats(run.tasks, "gap_s"))
    if gaps.any():
        text = f"without samples, inside {_many(int((gaps > 0).sum()), 'attempt')}."
        yield Finding("info", human_seconds(float(gaps.sum())), text, "Sampled peaks there are lower bounds.")
    events = run.events
    kinds, words_of = texts(events, "kind"), texts(events, "text")
    for kind, subject in (("monitor-lost", "A monitor was lost:"), ("collector-off", "A collector was switched off:")):
        said = sorted({words_of[i] for i, k in enumerate(kinds) if k == kind})
        for text in said[:5]:
            yield Finding("medium", subject, text or "no reason was recorded.")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _words(item: object) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items())
    return str(item)


#: A new finding is one function and one line here.
RULES: tuple[Callable[[RunTables], Iterator[Finding]], ...] = (failures, deaths, memory, leaks, coverage)
