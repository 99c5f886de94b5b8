"""What failed: groups whose attempts failed or were lost and what that cost; attempts that memory ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, Severity, hours, many
from jumper.analysis.findings.thresholds import NEAR
from jumper.analysis.findings.view import View
from jumper.analysis.units import human_bytes

#: Most deaths that are told one by one, from the largest.
DEATHS = 5
#: Most attempts that a finding names.
NAMED = 3


def failed(view: View) -> Iterator[Finding]:
    """Groups whose attempts failed, or were lost with their worker or node."""
    states, reasons, codes, keys = (view.texts(name) for name in ("state", "reason", "exit_code", "key"))
    for state, verb in (("lost", "was lost with its worker or node"), ("failed", "failed")):
        which = states == state
        for group, rows in view.groups.items():
            bad = rows[which[rows]]
            if not len(bad):
                continue
            cost = float(view.core_hours[bad].sum())
            why = sorted({str(reasons[i] or (f"exit status {codes[i]}" if codes[i] else "")) for i in bad} - {""})
            lost = set(keys[bad])
            done = {key for key in keys[rows][view.done[rows]] if key in lost}
            again = sum(keys[i] in done for i in bad)
            text = f"{verb} in {len(bad):,} of {many(len(rows), 'attempt')}"
            text += f", which cost {hours(cost, 'core')}" if 3600 * cost >= 1 else ""
            text += (f": {'; '.join(why[:3])}" if why else "") + "."
            if again:
                text += f" {f'{again:,} of them' if again < len(bad) else 'All'} succeeded when repeated."
            named = list(dict.fromkeys(keys[bad]))
            more = f" and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
            action = f"It was {', '.join(named[:NAMED])}{more}."
            severity: Severity = "medium" if again == len(bad) else "high"
            yield Finding(severity, group, text, action, name="failed", core_hours=cost)


def killed(view: View) -> Iterator[Finding]:
    """Attempts that ended with their worker or at their memory, and what they had grown to."""
    states, keys, workers, nodes = (view.texts(name) for name in ("state", "key", "worker", "node"))
    reasons, codes = view.texts("reason"), view.texts("exit_code")
    peaks, starts = view.floats("memory_peak_bytes"), view.floats("rss_start_bytes")
    limit = view.floats("memory_limit_bytes")
    bound = np.where(limit > 0, limit, view.bound)
    near = peaks / np.where(bound > 0, bound, np.nan)
    by_memory = (near >= NEAR) | view.flagged("oom")
    lost = np.flatnonzero(states == "lost")
    by_memory[lost] |= np.array(["nanny ended it" in reason for reason in reasons[lost]], dtype=bool)
    which = np.flatnonzero((peaks > 0) & ((states == "lost") | ((states == "failed") & by_memory)))
    for i in which[np.argsort(-peaks[which], kind="stable")][:DEATHS]:
        before = f"from {human_bytes(starts[i])} " if peaks[i] > starts[i] > 0 else ""
        allowed = f", {near[i]:.0%} of the {human_bytes(bound[i])} allowed," if np.isfinite(near[i]) else ""
        where = f"worker {workers[i]} on {nodes[i]}" if workers[i] else f"its process or node {nodes[i]}"
        ended = f"{where} died" if states[i] == "lost" else f"it failed{f' with status {codes[i]}' if codes[i] else ''}"
        text = f"{keys[i]} had grown {before}to {human_bytes(peaks[i])}{allowed} when {ended}."
        if view.flagged("shared")[i]:
            text += " Other tasks ran in the process; the memory is all of theirs."
        group = str(view.texts("group")[i])
        if by_memory[i]:
            wanted = 1.2 * float(peaks[i]) + float(view.beside[i])
            action = f"Give it more than {human_bytes(wanted)}, or work in smaller pieces."
            snippet = snippets.memory(view.kind_of(i), group, wanted, view.slurm)
            yield Finding("high", group, text, action, snippet, "killed")
        else:
            yield Finding("info", group, text, "Memory is not what ended it, as far as was seen.", name="killed")
