"""Idleness: a long tail at the end of a run, and time in which tasks were ready and little ran."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, hours, listed, many
from jumper.analysis.findings.thresholds import (
    SPAN_S,
    SPREAD,
    TAIL_LEVEL,
    TAIL_PART,
    WAIT_LEVEL,
    WAIT_PART,
)
from jumper.analysis.findings.view import View
from jumper.analysis.tables import times
from jumper.analysis.units import human_seconds

if TYPE_CHECKING:
    from jumper.analysis.tables import Bools

#: Part of the time for which the run's usual level of busy threads is held at least.
_USUAL = 0.05


def idle(view: View) -> Iterator[Finding]:
    """A run that is mostly idle at its end, or while tasks are ready."""
    level = _Level(view)
    if level.span >= SPAN_S:
        yield from _tail(view, level)
        yield from _queued(view, level)


class _Level:
    """How many threads tasks held at once, and how many tasks waited, over the run; by steps."""

    def __init__(self, view: View) -> None:
        start, stop = times(view.tasks, "start_ns"), times(view.tasks, "stop_ns")
        self.timed: Bools = (start > 0) & (stop > start)
        queued = np.nan_to_num(view.floats("queued_s"))[self.timed]
        if not self.timed.any():
            self.seconds = self.running = self.waiting = np.empty(0)
            return
        self.zero = int(start[self.timed].min())
        self.start, self.stop = ((at[self.timed] - self.zero) / 1e9 for at in (start, stop))
        late = queued > 0
        at = np.concatenate([self.start, self.stop, (self.start - queued)[late], self.start[late]])
        threads, one = view.threads[self.timed], np.ones(int(late.sum()))
        none, no_threads = np.zeros(2 * len(threads)), np.zeros(2 * len(one))
        order = np.argsort(at, kind="stable")
        self.at = at[order]
        self.seconds = np.diff(self.at)
        self.running = np.cumsum(np.concatenate([threads, -threads, no_threads])[order])[:-1]
        self.waiting = np.cumsum(np.concatenate([none, one, -one])[order])[:-1]

    @property
    def span(self) -> float:
        """Seconds in all."""
        return float(self.seconds.sum())

    @cached_property
    def usual(self) -> float:
        """The highest level that was held for some time."""
        order = np.argsort(-self.running, kind="stable")
        held = np.cumsum(self.seconds[order])
        return float(self.running[order][np.searchsorted(held, _USUAL * held[-1])])


def _tail(view: View, level: _Level) -> Iterator[Finding]:
    """A run whose end keeps a small part of it busy."""
    if level.usual < SPREAD:
        return
    usual, much = level.usual, np.flatnonzero(level.running > TAIL_LEVEL * level.usual)
    begun = float(level.at[much[-1] + 1])
    seconds = float(level.at[-1]) - begun
    if seconds < SPAN_S or seconds < TAIL_PART * level.span:
        return
    lost = float(((usual - level.running) * level.seconds)[much[-1] + 1 :].sum() / 3600)
    rows = np.flatnonzero(level.timed)[np.argsort(-level.stop, kind="stable")][: int((level.stop > begun).sum())]
    groups = list(dict.fromkeys(str(group) for group in view.texts("group")[rows]))
    text = (
        f"{human_seconds(seconds)} ({seconds / level.span:.0%} of the run) kept at most {TAIL_LEVEL:.0%} of its "
        f"usual {usual:,.0f} threads busy, with {many(len(rows), 'task')} of {listed(groups)}: "
        f"{hours(lost, 'core')} idle."
    )
    action = f"Start {groups[0]} earlier where it does not wait for others, split it, or give nodes back before it."
    yield Finding(
        "medium", "The last", text, action, snippets.first(view.kind_of(rows[0]), groups[0]), "long-tail", lost
    )


def _queued(view: View, level: _Level) -> Iterator[Finding]:
    """Time in which tasks were ready and the run did much less than it usually does."""
    usual = level.usual
    if usual < 2:
        return
    held = (level.waiting > 0) & (level.running <= WAIT_LEVEL * usual)
    seconds = float(level.seconds[held].sum())
    if seconds < SPAN_S or seconds < WAIT_PART * level.span:
        return
    lost = float(((usual - level.running) * level.seconds)[held].sum() / 3600)
    waits = np.nan_to_num(view.floats("queued_s"))
    by_group = {group: float(waits[rows].sum()) for group, rows in view.groups.items()}
    longest = sorted((group for group in by_group if by_group[group] > 0), key=lambda group: -by_group[group])
    text = (
        f"{human_seconds(seconds)} ({seconds / level.span:.0%} of the run) tasks of {listed(longest)} were ready "
        f"while at most {WAIT_LEVEL:.0%} of the usual {usual:,.0f} threads were busy: {hours(lost, 'core')} idle."
    )
    if view.run.info.get("kind") == "dask":
        workers = len(set(view.texts("worker")) - {""})
        action, snippet = "Wait for the workers before work is sent.", f"client.wait_for_workers({workers})"
    else:
        action, snippet = "Put short jobs together, or ask for less, so that the batch system starts them sooner.", ""
    yield Finding("medium", "For", text, action, snippet, "waiting", lost)
