"""Two runs compared by group: how large a difference is, and how sure; pure functions of tasks tables."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.tables import floats, texts
from jumper.schema.errors import JumperError
from jumper.schema.tasks import NUMBERS

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

#: What is compared where nothing else is asked for.
COLUMNS = ("wall_s", "cpu_s", "memory_peak_bytes", "read_chars", "write_chars")
#: A difference less likely than this by chance alone is called sure.
SURE = 0.05
_DRAWS, _SEED = 4000, 1
#: Rank sums that are counted one by one; beyond it the normal approximation is good to two digits.
_COUNTED = 20_000
_LIMIT = re.compile(r"\s*(\w+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Difference:
    """One column of one group in two runs.

    Attributes
    ----------
    group, column : str
    attempts_a, attempts_b : int
        Attempts that succeeded and have a value.
    median_a, median_b : float or None
        In the column's unit.
    ratio : float or None
        ``median_b / median_a``; None where one is not known or both are 0, infinite where only the first is 0.
    low, high : float or None
        95 % interval of the ratio, by bootstrap; None where so few attempts say nothing of it.
    p : float or None
        Two-sided Mann-Whitney test that both come from one distribution.
    """

    group: str
    column: str
    attempts_a: int
    attempts_b: int
    median_a: float | None
    median_b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def sure(self) -> bool | None:
        """Whether chance alone is unlikely; None where so few attempts could not show it at all."""
        return self.p < SURE if self.p is not None and _enough(self.attempts_a, self.attempts_b) else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs by group.

    Attributes
    ----------
    differences : list of Difference
        By group, then in the order of the columns.
    only_a, only_b : list of str
        Groups that one run does not have.
    """

    differences: list[Difference]
    only_a: list[str]
    only_b: list[str]


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition like ``memory_peak_bytes > 10%``: a change of the median beyond which a comparison fails."""

    column: str
    above: bool
    change: float

    def __str__(self) -> str:
        return f"{self.column} {'>' if self.above else '<'} {self.change:+.4g}%"

    def broken(self, difference: Difference) -> bool:
        """Return whether a difference is beyond the limit and not shown to be chance."""
        if difference.column != self.column or difference.ratio is None or difference.sure is False:
            return False
        change = round(100 * (difference.ratio - 1), 9)
        return change > self.change if self.above else change < self.change


def parse_limit(text: str) -> Limit:
    """Return the condition that a text says.

    Raises
    ------
    JumperError
        Where it says none, or one about a column without numbers.

    Examples
    --------
    >>> parse_limit("memory_peak_bytes > 10%")
    Limit(column='memory_peak_bytes', above=True, change=10.0)
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise JumperError(f"a limit is `COLUMN > PERCENT%`, as in `memory_peak_bytes > 10%`; not {text!r}")
    _numeric(match[1])
    return Limit(match[1], match[2] == ">", float(match[3]))


def _numeric(column: str) -> None:
    if column not in NUMBERS:
        raise JumperError(f"{column!r} cannot be compared; there are {', '.join(NUMBERS)}")


def compare(a: pd.DataFrame, b: pd.DataFrame, columns: Sequence[str] = COLUMNS) -> Comparison:
    """Compare the attempts that succeeded in two runs, group by group.

    Parameters
    ----------
    a, b : DataFrame
        Tasks tables.
    columns : sequence of str

    Raises
    ------
    JumperError
        Where the runs are of different kinds, share no group, or a column has no numbers.

    Examples
    --------
    >>> a = pd.DataFrame({"group": "x", "state": "done", "wall_s": [1.0, 2.0, 3.0]})
    >>> (found,) = compare(a, a.assign(wall_s=a.wall_s * 2), ["wall_s"]).differences
    >>> found.ratio, found.attempts_a
    (2.0, 3)
    """
    for column in columns:
        _numeric(column)
    kinds = [sorted(set(texts(tasks, "kind")) - {""}) for tasks in (a, b)]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        raise JumperError(
            f"the first run is of kind {', '.join(kinds[0])}, the second {', '.join(kinds[1])}: "
            "what a task is differs between them; compare two runs of one kind"
        )
    rows = [_rows(tasks) for tasks in (a, b)]
    common = sorted(rows[0].keys() & rows[1].keys())
    if not common:
        names = [", ".join(sorted(found)[:5]) or "none" for found in rows]
        raise JumperError(f"the runs have no group in common: {names[0]} in the first, {names[1]} in the second")
    values = [{column: floats(tasks, column) for column in columns} for tasks in (a, b)]
    return Comparison(
        [
            _difference(group, column, *(values[i][column][rows[i][group]] for i in (0, 1)))
            for group in common
            for column in columns
        ],
        sorted(rows[0].keys() - rows[1].keys()),
        sorted(rows[1].keys() - rows[0].keys()),
    )


def _rows(tasks: pd.DataFrame) -> dict[str, Ints]:
    """Return the rows of each group whose attempts succeeded; none where none did."""
    names = np.array(texts(tasks, "group"), dtype=object)
    done = np.array(texts(tasks, "state"), dtype=object) == "done"
    indices = pd.Series(range(len(tasks))).groupby(names, sort=True).indices
    return {str(name): np.asarray(index)[done[index]] for name, index in indices.items()}


def _enough(attempts_a: int, attempts_b: int) -> bool:
    """Return whether the smallest p-value that the test can give is below :data:`SURE`."""
    return 2 / math.comb(attempts_a + attempts_b, attempts_a) < SURE


def _difference(group: str, column: str, a: Floats, b: Floats) -> Difference:
    a, b = np.sort(a[np.isfinite(a)]), np.sort(b[np.isfinite(b)])
    if not len(a) or not len(b):
        known = [float(np.median(values)) if len(values) else None for values in (a, b)]
        return Difference(group, column, len(a), len(b), known[0], known[1], None, None, None, None)
    first, second = float(np.median(a)), float(np.median(b))
    ratio = second / first if first else (math.inf if second else None)
    chance = np.random.default_rng(_SEED)
    medians = [_medians(values, chance) for values in (a, b)]
    low = high = None
    if _enough(len(a), len(b)) and (medians[0] > 0).all():
        low, high = (float(edge) for edge in np.quantile(medians[1] / medians[0], [0.025, 0.975]))
    return Difference(group, column, len(a), len(b), first, second, ratio, low, high, mann_whitney(a, b))


def _medians(values: Floats, chance: np.random.Generator) -> Floats:
    """Return medians of samples drawn with replacement from sorted values.

    The k-th smallest of n uniform draws is Beta(k, n - k + 1), so no sample is drawn in full.
    """
    count = len(values)
    middle = (count + 1) // 2
    lower = chance.beta(middle, count - middle + 1, _DRAWS)
    picked = values[np.minimum((lower * count).astype(int), count - 1)]
    if count % 2:
        return np.asarray(picked)
    upper = lower + (1 - lower) * chance.beta(1, count - middle, _DRAWS)
    return np.asarray((picked + values[np.minimum((upper * count).astype(int), count - 1)]) / 2)


def mann_whitney(a: Floats, b: Floats) -> float:
    """Return the two-sided p-value of the Mann-Whitney test.

    Exact where the rank sums are few enough to count and no values are tied, else by the
    normal approximation with corrections for ties and continuity.

    Examples
    --------
    >>> round(mann_whitney(np.array([19.0, 22, 16, 29, 24]), np.array([20.0, 11, 17, 12])), 4)
    0.1111
    """
    n, m = len(a), len(b)
    ranks = pd.Series(np.concatenate([a, b])).rank().to_numpy()
    statistic = float(ranks[:n].sum()) - n * (n + 1) / 2
    away = abs(statistic - n * m / 2)
    _, tied = np.unique(ranks, return_counts=True)
    if tied.max() == 1 and math.comb(n + m, n) <= _COUNTED:
        sums = np.array([sum(chosen) for chosen in combinations(range(n + m), n)]) - n * (n - 1) / 2
        return float((np.abs(sums - n * m / 2) >= away - 1e-9).mean())
    total = n + m
    spread = n * m / 12 * (total + 1 - (tied**3 - tied).sum() / (total * (total - 1)))
    if spread <= 0:
        return 1.0
    return math.erfc(max(away - 0.5, 0.0) / math.sqrt(2 * spread))
