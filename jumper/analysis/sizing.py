"""How much memory an attempt needs: rules that follow the size of its input, and the margin that the data supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats

Shape = Literal["constant", "line", "steps"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
#: Parts of the attempts that a rule lets go above it: each shape is tried with each of them.
TAILS = np.array([0.0005, 0.002, 0.005, 0.01, 0.02, 0.05])
#: What every rule adds: a peak that carries no flag is known to 2 % (docs/numbers.md).
MARGIN = 1.02
#: The attempts of one run are more alike than those of two: this, over their number, is how far the next ones may
#: pass the highest of them, as a part of it.
FEW = 0.4
#: No rule asks for less; below it a request decides nothing.
LEAST_BYTES = 64 * 2**20
#: Fewest attempts that a step rests on, and most steps.
STEP_ATTEMPTS, MOST_STEPS = 8, 8


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """Memory as a function of the size of the input.

    Attributes
    ----------
    shape : {"constant", "line", "steps"}
    edges : array, shape (steps - 1,)
        Input sizes in bytes at which the next step begins.
    levels : array, shape (steps,)
        Bytes asked for in each step; the line's value at no input.
    slope : float
        Bytes asked for a byte of input; 0 but for a line.
    lowest : float
        Smallest input seen: a line does not fall below what it gives there.
    """

    shape: Shape
    edges: Floats
    levels: Floats
    slope: float = 0.0
    lowest: float = 0.0

    def bytes(self, inputs: Floats) -> Floats:
        """Return bytes to ask for, for inputs of these sizes; the highest step where a size is not known.

        Examples
        --------
        >>> rule = Rule("steps", np.array([1e9]), np.array([2e8, 5e8]))
        >>> rule.bytes(np.array([5e8, 1e9, np.nan])).tolist()
        [200000000.0, 500000000.0, 500000000.0]
        """
        step = np.searchsorted(self.edges, inputs, side="right")
        level = np.where(np.isnan(inputs), self.levels.max(), self.levels[step])
        return np.asarray(np.maximum(level + self.slope * np.fmax(inputs, self.lowest), LEAST_BYTES), dtype="float64")

    def raised(self, by: float) -> Rule:
        """Return the rule that asks for so many bytes more."""
        return Rule(self.shape, self.edges, self.levels + by, self.slope, self.lowest)


def upper(values: Floats, tails: Floats = TAILS) -> Floats:
    """Return the values that these parts of the next ones are expected to pass.

    Inside the data they are order statistics, the k-th highest of n for a part of k / (n + 1).
    Beyond the highest the tail is taken as exponential, with the mean excess of the upper
    tenth (at least five values) as its scale: the fewer values there are, the higher above
    the highest one it goes.

    Parameters
    ----------
    values : array, shape (n,), n >= 1
    tails : array, shape (t,)
        Parts, 0 < part < 1.

    Returns
    -------
    array, shape (t,)

    Examples
    --------
    >>> upper(np.arange(1.0, 100.0), np.array([0.5, 0.1, 0.01])).round(6).tolist()
    [50.0, 90.0, 99.0]
    >>> few, many = np.arange(10.0), np.linspace(0.0, 9.0, 1000)
    >>> bool(upper(few, np.array([0.001]))[0] > upper(many, np.array([0.001]))[0])
    True
    """
    values = np.sort(values)
    count = len(values)
    if count < 2:
        return np.full(len(tails), values[-1])
    top = min(count - 1, max(5, count // 10))
    base = values[count - 1 - top]
    scale = (values[count - top :] - base).mean()
    beyond = np.maximum(base + scale * np.log(top / (tails * count)), values[-1])
    rank = count - tails * (count + 1)
    inside = np.interp(rank, np.arange(count), values)
    return np.asarray(np.where(rank > count - 1, beyond, inside), dtype="float64")


def held(values: Floats, tails: Floats = TAILS[:1]) -> float:
    """Return what holds these values and, as far as they tell, all but this part of the next ones.

    It is the highest of them and a part of it that falls as there are more, or more than
    that where they spread.

    Parameters
    ----------
    values : array, shape (n,), n >= 1
    tails : array, shape (1,)

    Examples
    --------
    >>> round(held(np.full(5, 100.0)), 6), round(held(np.full(500, 100.0)), 6)
    (108.0, 100.08)
    """
    return max(float(upper(values, tails)[0]), (1 + FEW / len(values)) * float(values.max()))


def fit_line(inputs: Floats, used: Floats) -> tuple[float, float]:
    """Return (value at no input, slope) of the line of least absolute deviation: outliers do not turn it.

    Iteratively reweighted least squares, to within a thousandth of the highest value.

    Examples
    --------
    >>> inputs = np.arange(20.0)
    >>> used = 3 + 2 * inputs
    >>> used[7] = 500
    >>> start, slope = fit_line(inputs, used)
    >>> bool(abs(start - 3) < 0.1), round(slope, 2)
    (True, 2.0)
    """
    spread = float(inputs.std())
    if not spread > 0:
        return float(np.median(used)), 0.0
    middle = float(inputs.mean())
    scaled = (inputs - middle) / spread
    least = 1e-3 * max(float(np.abs(used).max()), 1e-9)
    weight = np.ones(len(used))
    start = slope = 0.0
    for _ in range(8):
        weight /= weight.sum()
        at, of = weight @ scaled, weight @ used
        away = weight * (scaled - at)
        square = away @ scaled
        slope = float(away @ used / square) if square > 0 else 0.0
        start = float(of - slope * at)
        weight = 1 / np.maximum(np.abs(used - start - slope * scaled), least)
    return start - slope * middle / spread, slope / spread


@dataclass(frozen=True, eq=False, slots=True)
class Candidates:
    """Rules of all shapes and tails, fitted to the same attempts.

    Attributes
    ----------
    rules : list of tuple
        Of each shape: edges, levels of shape (steps, tails), slope, smallest input.
    """

    rules: list[tuple[Floats, Floats, float, float]]

    def bytes(self, inputs: Floats) -> Floats:
        """Return what each candidate asks for: shape (n, shapes * tails), by shape, then by tail."""
        columns = []
        for edges, levels, slope, lowest in self.rules:
            step = np.searchsorted(edges, inputs, side="right")
            columns.append(levels[step] + (slope * np.fmax(inputs, lowest))[:, None])
        return np.maximum(np.concatenate(columns, axis=1), LEAST_BYTES)

    def rule(self, candidate: int) -> Rule:
        """Return one of them."""
        shape, tail = divmod(candidate, len(TAILS))
        edges, levels, slope, lowest = self.rules[shape]
        kind: Shape = "line" if slope else "steps" if len(edges) else "constant"
        return Rule(kind, edges, levels[:, tail] if slope else np.maximum(levels[:, tail], LEAST_BYTES), slope, lowest)


def fit(inputs: Floats, used: Floats) -> Candidates:
    """Fit all candidates to attempts.

    A shape that the data does not support is the constant: a line where use does not rise
    with the input, steps where there are fewer than eight attempts for each of two.

    Parameters
    ----------
    inputs : array, shape (n,)
        Bytes read by each attempt; NaN in any of them leaves the constant only.
    used : array, shape (n,)
        Peak memory of each, bytes.
    """
    none = np.empty(0)
    constant = (none, MARGIN * upper(used)[None, :], 0.0, 0.0)
    if np.isnan(inputs).any():
        return Candidates([constant] * len(SHAPES))
    start, slope = fit_line(inputs, used)
    line = constant
    if slope > 0:
        over = upper(used - start - slope * inputs)
        line = (none, MARGIN * (start + over)[None, :], MARGIN * slope, float(inputs.min()))
    return Candidates([constant, line, _fit_steps(inputs, used) or constant])


def _fit_steps(inputs: Floats, used: Floats) -> tuple[Floats, Floats, float, float] | None:
    count = len(inputs)
    steps = min(MOST_STEPS, count // STEP_ATTEMPTS)
    if steps < 2:
        return None
    edges = np.unique(np.sort(inputs)[np.arange(1, steps) * count // steps])
    step = np.searchsorted(edges, inputs, side="right")
    full = np.bincount(step, minlength=len(edges) + 1) >= STEP_ATTEMPTS // 2
    if len(edges) == 0 or not full.all():  # many inputs of one size
        return None
    levels = np.array([upper(used[step == index]) for index in range(len(edges) + 1)])
    return edges, MARGIN * levels, 0.0, 0.0
