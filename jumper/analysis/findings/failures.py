"""What failed: groups whose attempts failed or were lost, and what they occupied; attempts that memory ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, Severity, hours, listed, many, shown
from jumper.analysis.findings.view import View
from jumper.analysis.units import human_bytes, percent

if TYPE_CHECKING:
    from jumper.analysis.tables import Ints

#: Most attempts that a finding names.
NAMED = 3
#: A task has grown in a worker's process where that holds so much of it more than before.
_GROWN = 0.05
_LEFT = re.compile(r"^its worker \S.* left while it ran")


def failed(view: View) -> Iterator[Finding]:
    """Groups whose attempts failed, or were lost."""
    states, reasons, codes, keys = (view.texts(name) for name in ("state", "reason", "exit_code", "key"))
    for state in ("lost", "failed"):
        which = states == state
        for group, rows in view.groups.items():
            bad = rows[which[rows]]
            if not len(bad):
                continue
            held = float(view.core_hours[bad].sum())
            why = _reasons([str(reasons[i] or (f"exit status {codes[i]}" if codes[i] else "")) for i in bad])
            lost = set(keys[bad])
            done = {key for key in keys[rows][view.done[rows]] if key in lost}
            again = sum(keys[i] in done for i in bad)
            with_worker = " with its worker" if all(view.texts("worker")[bad]) else ""
            text = f"was lost{with_worker}" if state == "lost" else "failed"
            text += f" in {len(bad):,} of {many(len(rows), 'attempt')}"
            text += f", which occupied {hours(held, 'core')}" if 3600 * held >= 1 else ""
            text += (f": {'; '.join(why[:3])}" if why else "") + "."
            if again:
                text += f" {f'{again:,} of them' if again < len(bad) else 'All'} succeeded when repeated."
            named = list(dict.fromkeys(keys[bad]))
            action = f"It was {listed(list(map(shown, named)), NAMED)}." if named != [group] else ""
            severity: Severity = "medium" if again == len(bad) else "high"
            yield Finding(severity, group, text, action, name="failed", core_hours=held)


def _reasons(said: list[str]) -> list[str]:
    """Return the different reasons; where workers left, each of several is not named."""
    different = sorted(set(said) - {""})
    if len(different) > 1:
        different = sorted({_LEFT.sub("its worker left while it ran", reason) for reason in different})
    return different


def killed(view: View) -> Iterator[Finding]:
    """Attempts that ended with their worker or at their memory, and what the largest of a group had grown to."""
    states, peaks = view.texts("state"), view.floats("memory_peak_bytes")
    bound, by_memory = view.needs.bound, view.needs.ended
    part = view.needs.peak / bound
    which = (peaks > 0) & ((states == "lost") | by_memory)
    for group, rows in view.groups.items():
        alike: dict[tuple[str, bool], list[int]] = {}
        for i in rows[which[rows]]:
            alike.setdefault((states[i], bool(by_memory[i])), []).append(int(i))
        for (_, memory), ended in sorted(alike.items()):
            i = max(ended, key=lambda row: peaks[row])
            beside = f"with the {human_bytes(view.beside[i])} beside it in its job " if view.beside[i] else ""
            share = f", {beside}{percent(part[i])} of the {human_bytes(bound[i])} allowed,"
            allowed = share if np.isfinite(part[i]) else ""
            text = f"{_grown(view, i)}{allowed} when {_end(view, i)}{_which(view, i, len(ended))}."
            if view.flagged("shared")[i]:
                text += " Other tasks ran in the process; the memory is all of theirs."
            if not memory:
                action = f"Memory is not what ended {'it' if len(ended) == 1 else 'them'}, as far as was seen."
                yield Finding("info", group, text, action, name="killed")
                continue
            wanted = view.needs.amount(rows)
            action = _give(view, np.array(ended), wanted)
            snippet = snippets.memory(view.kind_of(i), group, wanted, view.slurm)
            yield Finding("high", group, text, action, snippet, "killed")


def _give(view: View, ended: Ints, wanted: float) -> str:
    """Say what to give a group of which memory ended these attempts, and what that amount rests on."""
    unknown = ended[view.needs.open[ended]]
    if not len(unknown):
        return f"Give it {human_bytes(wanted)}: that holds what it used when it was repeated and succeeded."
    i = unknown[np.argmax(view.needs.bytes[unknown])]
    taken = float(view.needs.bytes[i])
    had = "what it was allowed" if view.needs.bound[i] >= view.needs.peak[i] else "what it had reached"
    if np.isclose(taken, wanted):
        return f"Give it {human_bytes(wanted)}, twice {had}, or work in smaller pieces: what it needs is not known."
    return (f"Give it {human_bytes(wanted)}, or work in smaller pieces: what it needs is not known, and is taken as "
            f"{human_bytes(taken)}, twice {had}.")  # fmt: skip


def _grown(view: View, row: int) -> str:
    """Say what an attempt had grown to, and from what where that is less."""
    peak, start = float(view.floats("memory_peak_bytes")[row]), float(view.floats("rss_start_bytes")[row])
    if peak - start >= _GROWN * peak and start > 0:
        return f"had grown from {human_bytes(start)} to {human_bytes(peak)}"
    return f"had reached {human_bytes(peak)}"


def _end(view: View, row: int) -> str:
    """Say how an attempt ended, as far as it is known."""
    worker, node, code = (view.texts(name)[row] for name in ("worker", "node", "exit_code"))
    if view.texts("state")[row] == "lost":
        return f"worker {worker} on {node} died" if worker else "its record ended"
    return f"it failed{f' with status {code}' if code else ''}"


def _which(view: View, row: int, count: int) -> str:
    """Say which attempt it was, where its group does not say it, and of how many."""
    key, group = view.texts("key")[row], view.texts("group")[row]
    parts = [shown(key)] if key != group else []
    parts += [f"the largest of {many(count, 'attempt')} that ended so"] if count > 1 else []
    return f"; it was {', '.join(parts)}" if parts else ""
