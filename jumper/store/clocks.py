"""Where a host's monotonic clock stands against the run's reference clock, and how sure that is, at any time.

A host exchanges times with whoever holds the reference while it runs, so its clock is followed: a moment is placed by
the exchanges around it, not by one offset for days.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: How far two clocks may part, in ns a second: crystals of computers are within 100 ppm each.
DRIFT_NS = 200_000
_SECOND = 1_000_000_000


class Exchange(NamedTuple):
    """Times exchanged once: at ``mono_ns`` of the host, reference - monotonic was ``offset_ns`` within ``error_ns``."""

    mono_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Clock:
    """The reference time of a host: UTC ns = monotonic ns + offset.

    Attributes
    ----------
    exchanges : tuple of Exchange
        Those that tell most, by time: another one, with its error and what may have drifted since, says less.
    own : int or None
        The offset of the host's own wall clock, where it never exchanged times.
    own_error : int or None
        The bound of its error, where something else tells of it.
    reference : bool
        Whether this is the reference clock itself.

    Examples
    --------
    >>> clock = Clock.of([(0, 100, 10), (10**9, 300, 10), (5 * 10**8, 999, 10**9)])
    >>> clock.offset_ns(0), clock.offset_ns(5 * 10**8), clock.offset_ns(10**10)
    (100, 200, 300)
    >>> clock.error_ns(0), clock.error_ns(10**9), clock.error_ns(2 * 10**9)
    (10, 10, 200010)
    """

    exchanges: tuple[Exchange, ...] = ()
    own: int | None = None
    own_error: int | None = None
    reference: bool = False

    @classmethod
    def of(cls, exchanges: Iterable[tuple[int, int, int]]) -> Clock:
        """Return the clock that these exchanges tell of; an error of 0 is the reference's own word."""
        kept: list[Exchange] = []
        for exchange in sorted(map(Exchange._make, exchanges), key=lambda e: (e.error_ns, e.mono_ns)):
            if exchange.error_ns == 0:
                return cls((exchange,), reference=True)
            place = bisect_left(kept, exchange)
            # too close to a better one, the offset would swing by the errors instead of following the clock
            if all(
                exchange.error_ns < other.error_ns + drifted_ns(exchange.mono_ns - other.mono_ns)
                and abs(exchange.mono_ns - other.mono_ns) > 4 * exchange.error_ns
                for other in kept[max(0, place - 1) : place + 1]
            ):
                kept.insert(place, exchange)
        return cls(tuple(kept))

    @classmethod
    def fixed(cls, offset_ns: int, error_ns: int | None = None) -> Clock:
        """Return the clock of a host that is placed by its own wall clock; mostly nobody knows how far that is off."""
        return cls(own=offset_ns, own_error=error_ns)

    def offset_ns(self, mono_ns: int) -> int:
        """Return reference - monotonic at a time of the host."""
        if self.own is not None:
            return self.own
        before, after = self._around(mono_ns)
        span = after.mono_ns - before.mono_ns
        if not span:
            return before.offset_ns
        return before.offset_ns + (after.offset_ns - before.offset_ns) * (mono_ns - before.mono_ns) // span

    def offsets_ns(self, mono_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return :meth:`offset_ns` of many times, shape (rows,)."""
        import numpy as np

        base = self.offset_ns(int(mono_ns[0])) if len(mono_ns) else 0
        if len(self.exchanges) < 2:
            return np.full(len(mono_ns), base, "i8")
        origin = self.exchanges[0].mono_ns
        # a float holds differences to the nanosecond, not times since 1970
        times = [float(e.mono_ns - origin) for e in self.exchanges]
        offsets = [float(e.offset_ns - base) for e in self.exchanges]
        placed: npt.NDArray[np.int64] = np.rint(np.interp((mono_ns - origin).astype("f8"), times, offsets)).astype("i8")
        return base + placed

    def error_ns(self, mono_ns: int) -> int | None:
        """Return the bound of the error of :meth:`offset_ns`, or None where it is not known."""
        if self.own is not None:
            return self.own_error
        if self.reference:
            return 0
        before, after = self._around(mono_ns)
        span = after.mono_ns - before.mono_ns
        if not span:
            return before.error_ns + drifted_ns(mono_ns - before.mono_ns)
        part = (mono_ns - before.mono_ns) / span
        drifted = 2 * drifted_ns(span) * part * (1 - part)
        return round(before.error_ns * (1 - part) + after.error_ns * part + drifted)

    def worst_ns(self, first_ns: int, last_ns: int) -> int | None:
        """Return the largest bound between two times of the host."""
        told = self._telling(first_ns, last_ns)
        times = [first_ns, *(e.mono_ns for e in told), last_ns]
        for before, after in pairwise(told):  # between two exchanges the bound is a parabola: its top
            span = after.mono_ns - before.mono_ns
            rise = (after.error_ns - before.error_ns) / (4 * drifted_ns(span) or 1)
            times.append(before.mono_ns + round(span * (0.5 + rise)))
        errors = [self.error_ns(time) for time in times if first_ns <= time <= last_ns]
        return max((error for error in errors if error is not None), default=None)

    def told_by(self, first_ns: int, last_ns: int) -> int:
        """Return how many exchanges place what lies between two times of the host."""
        return len(self._telling(first_ns, last_ns))

    def _telling(self, first_ns: int, last_ns: int) -> tuple[Exchange, ...]:
        low = bisect_right(self.exchanges, first_ns, key=_mono) - 1
        high = bisect_left(self.exchanges, last_ns, key=_mono) + 1
        return self.exchanges[max(0, min(low, len(self.exchanges) - 1)) : max(high, 1)]

    def _around(self, mono_ns: int) -> tuple[Exchange, Exchange]:
        place = bisect_right(self.exchanges, mono_ns, key=_mono)
        last = len(self.exchanges) - 1
        return self.exchanges[max(0, place - 1)], self.exchanges[min(place, last)]


def _mono(exchange: Exchange) -> int:
    return exchange.mono_ns


def drifted_ns(span_ns: int) -> int:
    """Return how far two clocks may part in a time."""
    return abs(span_ns) * DRIFT_NS // _SECOND
