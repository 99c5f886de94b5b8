"""What rules for memory would have cost: learned on earlier attempts, applied to later ones, step by step.

Every candidate of :mod:`jumper.analysis.sizing` is kept running: before each attempt it says
what it would ask for, knowing only the attempts before; then the attempt shows what that
would have cost. The rule that is used is the one that cost least until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.sizing import SHAPES, TAILS, Candidates, fit

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

#: Attempts before the first rule is fitted.
FIRST = 5
#: What a rule is expected to let fail counts as much as so many attempts that were seen.
PRIOR = 50
#: Aim at this part of the failures that are allowed: rules are chosen for having failed little, and flatter themselves.
CAUTION = 0.6
#: A rule that follows the input must waste less than this part of what a constant does, else the constant is taken.
FOLLOWING = 0.98
#: How often the rules of all groups are chosen again during a replay.
ROUNDS = 20
#: Byte seconds in a GB hour.
GB_HOUR = 3.6e12


@dataclass(frozen=True, eq=False)
class Attempts:
    """Attempts of one group, in the order in which they are learned from; all arrays have shape (n,).

    Attributes
    ----------
    used : array
        Peak memory, bytes.
    hours : array
        Wall time.
    inputs : array
        Size of the input, bytes; NaN where it is not known.
    asked : array
        What was asked for, bytes; NaN where it is not known.
    order : array of int
        When each one started; compared between groups.
    """

    used: Floats
    hours: Floats
    inputs: Floats
    asked: Floats
    order: Ints

    @cached_property
    def highest(self) -> Floats:
        """Highest use seen before each attempt; the first one's is its own."""
        return np.concatenate([self.used[:1], np.maximum.accumulate(self.used)[:-1]])


def outcome(asked: Floats, used: Floats, hours: Floats, highest: Floats) -> tuple[Floats, Floats]:
    """Return (GB hours wasted, failed attempts) of each attempt.

    Waste is what was allocated and not used, times the wall time. An attempt that gets less
    than it uses fails, and all that it had is wasted; it is repeated with the highest use
    seen before, where that is more than it had, else with double.

    Parameters
    ----------
    asked : array, shape (n, ...)
        Bytes.
    used, hours, highest : array, shape (n,)

    Examples
    --------
    >>> wasted, failed = outcome(np.array([4e9, 1e9]), np.array([3e9, 3e9]), np.ones(2), np.array([3e9, 2e9]))
    >>> wasted.tolist(), failed.tolist()
    ([1.0, 4.0], [0.0, 2.0])
    """
    wide = (-1,) + (1,) * (asked.ndim - 1)
    used, hours, highest = used.reshape(wide), hours.reshape(wide), highest.reshape(wide)
    given, wasted, failed = asked.copy(), np.zeros(asked.shape), np.zeros(asked.shape)
    while (short := given < used).any():
        wasted += np.where(short, given * hours, 0.0)
        failed += short
        given = np.where(short, np.where(highest > given, highest, 2 * given), given)
    return (wasted + (given - used) * hours) / 1e9, failed


class Trial:
    """Every candidate applied to the attempts of one group, each time knowing only those before."""

    def __init__(self, attempts: Attempts) -> None:
        self.attempts = attempts
        count = len(attempts.used)
        self.asked = np.full((count, len(SHAPES) * len(TAILS)), np.nan)
        begin = min(FIRST, count)
        while begin < count:
            end = min(count, begin + max(1, begin // 20))
            self.asked[begin:end] = self._fit(begin).bytes(attempts.inputs[begin:end])
            begin = end
        with np.errstate(invalid="ignore"):
            wasted, failed = outcome(self.asked, attempts.used, attempts.hours, attempts.highest)
            dear = self.asked + np.maximum(attempts.highest - attempts.used, 0)[:, None]
        self.wasted, self.failed = wasted, failed
        self._sums = [np.nan_to_num(table).cumsum(axis=0) for table in (wasted, failed)]
        self._failure = np.nan_to_num(dear * attempts.hours[:, None] / 1e9).cumsum(axis=0)

    def _fit(self, count: int) -> Candidates:
        return fit(self.attempts.inputs[:count], self.attempts.used[:count])

    def scores(self, count: int) -> tuple[Floats, Floats]:
        """Return (GB hours wasted, failures) an attempt of each candidate, over the first attempts.

        To what was seen comes what a candidate is made to let fail, with the weight of
        :data:`PRIOR` attempts: a bold rule is not taken for good because it was lucky a few times.
        """
        scored = max(count - FIRST, 1)
        expected = PRIOR * np.tile(TAILS, len(SHAPES))
        failure = self._failure[count - 1] / scored
        wasted, failed = (total[count - 1] for total in self._sums)
        return (wasted + expected * failure) / scored, (failed + expected) / (scored + PRIOR)

    def candidates(self) -> Candidates:
        """Return all candidates fitted to all attempts."""
        return self._fit(len(self.attempts.used))


def choose(scores: Sequence[tuple[Floats, Floats]], counts: Sequence[int], may_fail: float) -> list[int]:
    """Choose a candidate for each group: least waste, failures of all groups together as few as allowed.

    Failures are spent where they save most: a failed attempt gets a price, and the price rises
    until the groups, each taking what is cheapest for it, fail rarely enough.

    Parameters
    ----------
    scores : sequence of (GB hours, failures) an attempt
        Of each group, see :meth:`Trial.scores`.
    counts : sequence of int
        How many attempts each group has.
    may_fail : float
        Part of all attempts that may fail; 0 leaves only the most careful candidates.
    """
    wasted, failed = (np.array([score[i] for score in scores]) for i in (0, 1))
    wasted[:, len(TAILS) :] /= FOLLOWING
    if may_fail <= 0:
        careful = np.flatnonzero(np.tile(TAILS, len(SHAPES)) == TAILS.min())
        return [int(careful[index]) for index in wasted[:, careful].argmin(axis=1)]
    weight = np.array(counts) / sum(counts)
    groups = np.arange(len(scores))
    unit = float(wasted.max()) or 1.0
    chosen = wasted.argmin(axis=1)
    for price in (0.0, *np.geomspace(1e-4, 1e4, 49)):
        chosen = (wasted + price * unit * failed).argmin(axis=1)
        if (failed[groups, chosen] * weight).sum() <= CAUTION * may_fail:
            break
    return [int(index) for index in chosen]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a way of asking for memory would have cost on the later attempts of a group.

    Attributes
    ----------
    attempts : int
    wasted_gb_h : float
        Allocated and not used, times wall time; failed attempts in full.
    failed : int
        Attempts that would have had too little.
    """

    attempts: int
    wasted_gb_h: float
    failed: int

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.attempts + other.attempts, self.wasted_gb_h + other.wasted_gb_h, self.failed + other.failed)


@dataclass(frozen=True, slots=True)
class Replay:
    """The later attempts of a group by what was asked, by the highest seen + 5 %, and by the chosen rules.

    ``asked`` is None where not every attempt says what was asked for it.
    """

    asked: Outcome | None
    highest: Outcome
    advised: Outcome


def replay(trials: Sequence[Trial], may_fail: float = 0.01, learn: float = 0.3) -> list[Replay]:
    """Learn on the first part of each group, go on learning over the rest, and return what the rest would have cost.

    Parameters
    ----------
    trials : sequence of Trial
        Of groups with at least ``FIRST / learn`` attempts.
    may_fail : float
        Part of the attempts that may fail, of all groups together.
    learn : float
        The first part.
    """
    if not trials:
        return []
    begins = [int(len(trial.attempts.used) * learn) for trial in trials]
    order = np.concatenate([trial.attempts.order[begin:] for trial, begin in zip(trials, begins, strict=True)])
    rounds = np.unique(np.quantile(order, np.linspace(0, 1, ROUNDS + 1)[1:-1]))
    wasted, failed = np.zeros(len(trials)), np.zeros(len(trials))
    at = list(begins)
    for limit in (*rounds, np.inf):
        ends = [begin + int((t.attempts.order[begin:] <= limit).sum()) for t, begin in zip(trials, begins, strict=True)]
        now = [index for index in range(len(trials)) if ends[index] > at[index]]
        if not now:
            continue
        scores = [trials[index].scores(at[index]) for index in now]
        for index, candidate in zip(now, choose(scores, [ends[i] - at[i] for i in now], may_fail), strict=True):
            rows = slice(at[index], ends[index])
            wasted[index] += trials[index].wasted[rows, candidate].sum()
            failed[index] += trials[index].failed[rows, candidate].sum()
            at[index] = ends[index]
    return [
        Replay(
            _plain(trial, begin, trial.attempts.asked),
            _plain(trial, begin, 1.05 * trial.attempts.highest) or Outcome(0, 0.0, 0),
            Outcome(len(trial.attempts.used) - begin, float(wasted[i]), int(failed[i])),
        )
        for i, (trial, begin) in enumerate(zip(trials, begins, strict=True))
    ]


def _plain(trial: Trial, begin: int, asked: Floats) -> Outcome | None:
    attempts, rest = trial.attempts, slice(begin, None)
    if not np.isfinite(asked[rest]).all() or not (asked[rest] > 0).all():
        return None
    wasted, failed = outcome(asked[rest], attempts.used[rest], attempts.hours[rest], attempts.highest[rest])
    return Outcome(len(wasted), float(wasted.sum()), int(failed.sum()))
