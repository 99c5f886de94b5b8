"""How much memory each attempt needed: what it held where it succeeded; more than it had where memory ended it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jumper.analysis.deaths import NANNY
from jumper.analysis.sizing import LEAST_BYTES, MARGIN, held
from jumper.analysis.summary import flag_rows
from jumper.analysis.tables import floats, texts

if TYPE_CHECKING:
    import pandas as pd

    from jumper.analysis.tables import Bools, Floats, Ints, Texts

#: Fewest attempts with a sure figure before a group is advised; rules that follow the input need twice as many.
ENOUGH = 5
#: A failed attempt whose peak came this near to its limit was ended by it.
AT_LIMIT = 0.95
#: Flags under which a memory peak says too little about one attempt.
UNSURE = ("shared", "truncated", "memory-estimated")
#: What an attempt that memory ended is taken to need, as a multiple of what it had.
TWICE = 2.0
#: Where too few attempts say how far they spread, this much of the highest is asked for.
_FEW = 1.2
#: No machine has so many bytes.
_MOST = 1e18
_NO_ROWS = np.array([], dtype="int64")


@dataclass(frozen=True, eq=False, slots=True)
class Needs:
    """What the attempts of a tasks table needed, in its order; all arrays have shape (n,).

    Attributes
    ----------
    peak : array
        What each held at most, in bytes, with what its batch job held beside it; NaN where that is not known.
    bound : array
        What it was allowed, else asked for, in bytes; NaN where neither is known.
    unsure : array of str
        The flag under which its peak says too little, or "".
    ended : array of bool
        Whether memory ended it: it failed or was lost near its bound, or the kernel or Dask's nanny ended it for that.
    open : array of bool
        Of these, the ones whose task never succeeded later: what they need is not known.
    bytes : array
        What it needed: its peak where it succeeded, twice what it had where that is open; NaN where it does not tell.
    """

    peak: Floats
    bound: Floats
    unsure: Texts
    ended: Bools
    open: Bools
    bytes: Floats

    def amount(self, rows: Ints) -> float:
        """Return the one amount that these attempts should ask for, in bytes; NaN where none of them tells.

        It is what :func:`jumper.analysis.advice.advise` asks for where it does not follow the input. Of fewer
        than five attempts it is the most that one of them needs, and a fifth more where that was measured.
        """
        told = self.bytes[rows]
        known = np.isfinite(told)
        if not known.any():
            return np.nan
        if known.sum() >= ENOUGH:
            return max(MARGIN * held(told[known]), LEAST_BYTES)
        return float(np.where(self.open[rows], told, _FEW * told)[known].max())


def needs(tasks: pd.DataFrame) -> Needs:
    """Return what each attempt needed.

    Examples
    --------
    >>> import pandas as pd
    >>> tasks = pd.DataFrame({"key": ["a", "b"], "state": ["done", "failed"],
    ...                       "memory_peak_bytes": [3e9, 3.9e9], "memory_limit_bytes": 4e9})
    >>> needs(tasks).bytes.tolist()
    [3000000000.0, 8000000000.0]
    """
    beside, peak, limit, asked = (
        _bytes(tasks, f"memory_{name}_bytes") for name in ("beside", "peak", "limit", "asked")
    )
    peak = peak + np.nan_to_num(beside)
    bound = np.where(np.isfinite(limit), limit, asked)
    states = np.array(texts(tasks, "state"), dtype=object)
    flagged = flag_rows(tasks)
    unsure = np.full(len(tasks), "", dtype=object)
    for flag in reversed(UNSURE):
        unsure[flagged.get(flag, _NO_ROWS)] = flag
    ended = (states == "failed") | (states == "lost")
    told = np.zeros(len(tasks), dtype=bool)
    told[flagged.get("oom", _NO_ROWS)] = True
    if ended.any():
        reasons = texts(tasks, "reason")
        told[[row for row in np.flatnonzero(ended) if NANNY in reasons[row]]] = True
    with np.errstate(invalid="ignore"):
        ended &= told | (peak >= AT_LIMIT * bound)
    done = (states == "done") & (unsure == "") & np.isfinite(peak)
    alone = ended.copy()
    if ended.any():
        keys = np.array(texts(tasks, "key"), dtype=object)
        succeeded = set(keys[done]) - {""}
        alone[[row for row in np.flatnonzero(ended) if keys[row] in succeeded]] = False
    taken = TWICE * np.fmax(peak, bound)
    return Needs(peak, bound, unsure, ended, alone, np.where(alone, taken, np.where(done, peak, np.nan)))


def _bytes(tasks: pd.DataFrame, column: str) -> Floats:
    """Return a column; NaN where it is null, or what no machine can have."""
    values = floats(tasks, column)
    with np.errstate(invalid="ignore"):
        return np.where((values > 0) & (values < _MOST), values, np.nan)
