"""Advice: what each group of attempts should ask for, from what they used; pure functions of the tasks table.

Memory reads ``memory_peak_bytes`` only. A group whose data does not back advice gets none, and
says why. docs/advice.md explains how the amounts are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.backtest import FIRST, Attempts, Replay, Trial, choose, replay
from jumper.analysis.needs import AT_LIMIT, ENOUGH, needs
from jumper.analysis.sizing import FEW, MARGIN, TAILS, Rule, upper
from jumper.analysis.summary import lists
from jumper.analysis.tables import floats, texts, times
from jumper.analysis.units import counted, human_bytes

if TYPE_CHECKING:
    from jumper.analysis.tables import Bools, Floats, Ints

Progress = Callable[[int, int], None]
#: Part of a group that a back-test learns from first.
LEARN = 0.3
#: The newest attempts of a group that rules are learned from.
NEWEST = 2000
#: Fewer threads are advised where no attempt kept more than this part of what it asked for busy.
BUSY = 0.6
#: Runtime is asked for with at least this factor over the longest attempt.
RUNTIME_FACTOR = 1.5


@dataclass(frozen=True, eq=False, slots=True)
class Advice:
    """What a group should ask for; a part that the data does not back is None.

    Attributes
    ----------
    group : str
    attempts : int
        Attempts whose memory was used.
    highest_bytes : float or None
        The highest of their peaks, with what their batch jobs held beside them.
    needed_bytes : float or None
        The most that one of them needed: more than ``highest_bytes`` where an attempt ended at its limit, which
        is taken to need twice that.
    asked_bytes : float or None
        What they asked for (median).
    memory : Rule or None
        What to ask for; :meth:`~jumper.analysis.sizing.Rule.bytes` gives it for an input size.
    memory_bytes : float or None
        The most that it asks for, over the inputs seen.
    may_fail : bool
        Whether an attempt may fail and be repeated with more.
    threads, threads_asked : int or None
    cores : float or None
        Cores that the busiest attempt kept busy, on average over its wall time.
    runtime_s, longest_s : float or None
        Runtime to ask for, and the longest attempt.
    backtest : Replay or None
        What this would have cost on the later attempts, learned on the earlier ones.
    notes : tuple of str
        What was left out, and why something is not advised.
    """

    group: str
    attempts: int
    highest_bytes: float | None
    needed_bytes: float | None
    asked_bytes: float | None
    memory: Rule | None
    memory_bytes: float | None
    may_fail: bool
    threads: int | None
    threads_asked: int | None
    cores: float | None
    runtime_s: float | None
    longest_s: float | None
    backtest: Replay | None
    notes: tuple[str, ...]


@dataclass(eq=False, slots=True)
class _Memory:
    """Attempts of a group that memory is learned from, by start; and how many were left out, by reason."""

    used: Floats
    hours: Floats
    inputs: Floats
    asked: Floats
    order: Ints
    peak: Floats
    at_limit: Bools
    left_out: dict[str, int]

    def learned(self) -> Attempts:
        new = slice(-NEWEST, None)
        return Attempts(self.used[new], self.hours[new], self.inputs[new], self.asked[new], self.order[new])


def advise(
    tasks: pd.DataFrame, may_fail: float = 0.0, progress: Progress | None = None, *, crowded: Bools | None = None
) -> list[Advice]:
    """Return advice for each group, the one that saves most first.

    Parameters
    ----------
    tasks : DataFrame
        The tasks table.
    may_fail : float
        Part of all attempts that may fail for lack of memory and be repeated with more. At 0
        no amount lies below what an attempt that succeeded has used.
    progress : callable, optional
        Called with (groups done, groups in all).
    crowded : array of bool, optional
        A value a task: whether others had the CPUs of its node, as :func:`jumper.analysis.nodetime.crowded`
        says; these do not tell how many threads a group can use.

    Examples
    --------
    >>> tasks = pd.DataFrame({"group": "align", "state": "done", "wall_s": 60.0, "cpu_s": 100.0,
    ...     "start_ns": range(20), "memory_peak_bytes": [10**9 + n * 10**6 for n in range(20)]})
    >>> (only,) = advise(tasks)
    >>> only.attempts, bool(only.memory_bytes > tasks.memory_peak_bytes.max())
    (20, True)
    """
    table = _Table(tasks, crowded)
    groups = table.groups()
    memory = {name: table.memory(rows) for name, rows in groups.items()}
    known = [name for name in groups if len(memory[name].used) >= ENOUGH]
    rules: dict[str, Rule] = {}
    replays: dict[str, Replay] = {}
    trials: dict[str, Trial] = {}
    for name in known:
        trials[name] = Trial(memory[name].learned())
        if progress is not None:
            progress(len(trials), len(known))
    if known:
        counts = [len(trials[name].attempts.used) for name in known]
        scores = [trials[name].scores(count) for name, count in zip(known, counts, strict=True)]
        for name, candidate in zip(known, choose(scores, counts, may_fail), strict=True):
            # with fewer attempts nothing says yet that a rule that follows the input is better
            sure = len(trials[name].attempts.used) >= 2 * ENOUGH
            rule = trials[name].candidates().rule(candidate if sure else 0)
            rules[name] = rule if may_fail > 0 else _covering(rule, memory[name])
        tested = [name for name in known if len(trials[name].attempts.used) * LEARN >= FIRST]
        replays = dict(zip(tested, replay([trials[name] for name in tested], may_fail, LEARN), strict=True))
    found = [
        _advice(name, table, rows, memory[name], rules.get(name), replays.get(name), may_fail)
        for name, rows in groups.items()
    ]
    return sorted(found, key=lambda advice: (-_saved(advice), advice.group))


def _covering(rule: Rule, memory: _Memory) -> Rule:
    """Return the rule, raised until it holds every attempt that was seen, and more above it the fewer they are."""
    least = MARGIN * (1 + FEW / len(memory.used)) * memory.used
    short = float((least - rule.bytes(memory.inputs)).max())
    return rule.raised(short) if short > 0 else rule


def _saved(advice: Advice) -> float:
    tested = advice.backtest
    return (tested.asked or tested.highest).wasted_gb_h - tested.advised.wasted_gb_h if tested else 0.0


def _advice(
    name: str,
    table: _Table,
    rows: Ints,
    memory: _Memory,
    rule: Rule | None,
    tested: Replay | None,
    may_fail: float,
) -> Advice:
    notes = [f"{count} {reason}" for reason, count in memory.left_out.items()]
    if count := int(memory.at_limit.sum()):
        taken = human_bytes(float(memory.used[memory.at_limit].max()))
        notes.append(f"{count} ended at the limit: what they need is not known, taken as twice the limit, {taken}")
    if rule is None:
        sure = counted(len(memory.used), "attempt")
        notes.append(f"no advice on memory: {sure} with a sure peak, {ENOUGH} are needed")
    elif tested is None:
        notes.append("too few attempts for a back-test")
    if rule is not None and (beside := float(table.beside[rows].max())):
        notes.append(f"{human_bytes(beside)} of the memory is for the Snakemakes in each batch job")
    threads, asked, cores = table.threads(rows)
    runtime, longest = table.runtime(rows)
    bounds = memory.asked[np.isfinite(memory.asked)]
    return Advice(
        group=name,
        attempts=len(memory.used),
        highest_bytes=float(np.nanmax(memory.peak)) if np.isfinite(memory.peak).any() else None,
        needed_bytes=float(memory.used.max()) if len(memory.used) else None,
        asked_bytes=float(np.median(bounds)) if len(bounds) else None,
        memory=rule,
        memory_bytes=float(rule.bytes(memory.inputs).max()) if rule else None,
        may_fail=may_fail > 0,
        threads=threads,
        threads_asked=asked,
        cores=cores,
        runtime_s=runtime,
        longest_s=longest,
        backtest=tested,
        notes=tuple(notes),
    )


class _Table:
    """The tasks table as arrays."""

    def __init__(self, tasks: pd.DataFrame, crowded: Bools | None) -> None:
        self.crowded = np.zeros(len(tasks), dtype=bool) if crowded is None else crowded
        self.names = texts(tasks, "group")
        self.keys = np.array(texts(tasks, "key"), dtype=object)
        self.state = np.array(texts(tasks, "state"), dtype=object)
        self.start = times(tasks, "start_ns")
        self.wall, self.cpu = floats(tasks, "wall_s"), floats(tasks, "cpu_s")
        self.beside = np.nan_to_num(floats(tasks, "memory_beside_bytes"))
        self.needs, self.inputs = needs(tasks), floats(tasks, "input_bytes")
        self.asked = floats(tasks, "memory_asked_bytes")
        self.threads_asked, self.runtime_asked = floats(tasks, "threads_asked"), floats(tasks, "runtime_asked_s")
        self.flags = lists(tasks, "flags")

    def groups(self) -> dict[str, Ints]:
        """Return the rows of each group, by start."""
        order = np.argsort(self.start, kind="stable")
        names = pd.Series(self.names, dtype=object).iloc[order]
        return {str(name): order[index] for name, index in names.groupby(names.to_numpy(), sort=True).indices.items()}

    def memory(self, rows: Ints) -> _Memory:
        """Return what memory is learned from."""
        done, at_limit, used = self.state[rows] == "done", self.needs.open[rows], self.needs.bytes[rows]
        timed = np.isfinite(self.wall[rows]) & (self.wall[rows] > 0)
        good = np.isfinite(used) & (at_limit | timed)
        left_out: dict[str, int] = {}
        for index in np.flatnonzero(~good):
            if not done[index]:
                reason = f"{self.state[rows[index]] or 'unfinished'} left out"
            elif unsure := self.needs.unsure[rows[index]]:
                reason = f"left out: {unsure}"
            else:
                reason = "left out: no peak or wall time"
            left_out[reason] = left_out.get(reason, 0) + 1
        pick = rows[good]
        hours = np.nan_to_num(self.wall[pick]) / 3600
        return _Memory(
            used=used[good],
            hours=hours,
            inputs=self.inputs[pick],
            asked=self.asked[pick],
            order=self.start[pick],
            peak=self.needs.peak[pick],
            at_limit=at_limit[good],
            left_out=left_out,
        )

    def threads(self, rows: Ints) -> tuple[int | None, int | None, float | None]:
        """Return (threads to ask for or None, threads asked, cores of the busiest attempt)."""
        exact = np.array(["estimated" not in self.flags[row] for row in rows], dtype=bool)
        asked = self.threads_asked[rows]
        with np.errstate(invalid="ignore"):
            # shorter ones say more about starting than about working
            long = (self.state[rows] == "done") & exact & (self.wall[rows] >= 1) & np.isfinite(self.cpu[rows])
        asked = asked[np.isfinite(asked)]
        most = int(np.median(asked)) if len(asked) else None
        if long.sum() < ENOUGH:
            return None, most, None
        cores = float((self.cpu[rows][long] / self.wall[rows][long]).max())
        free = long & ~self.crowded[rows]  # of the others nobody knows what they could have used
        if most is None or cores > BUSY * most or free.sum() < ENOUGH:
            return None, most, cores
        fewer = max(1, math.ceil(cores))
        return (fewer if fewer < most else None), most, cores

    def runtime(self, rows: Ints) -> tuple[float | None, float | None]:
        """Return (seconds to ask for or None, longest attempt)."""
        wall, asked = self.wall[rows], self.runtime_asked[rows]
        with np.errstate(invalid="ignore"):
            cut = (self.state[rows] == "failed") & (wall >= AT_LIMIT * asked)
        seconds = np.where(cut, 2 * asked, wall)[((self.state[rows] == "done") & np.isfinite(wall)) | cut]
        if not len(seconds):
            return None, None
        longest = float(seconds.max())
        if len(seconds) < ENOUGH:
            return None, longest
        wanted = max(float(upper(seconds, TAILS[:1])[0]), RUNTIME_FACTOR * longest)
        return 60.0 * math.ceil(wanted / 60), longest
