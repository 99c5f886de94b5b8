"""How far another host's monotonic clock is from ours, by questions and answers."""

from __future__ import annotations

#: How far two clocks may part, in ns a second: crystals of computers are within 100 ppm each.
DRIFT_PPB = 200_000


class ClockOffset:
    """The best estimate so far; an old one is worth less with each second.

    Attributes
    ----------
    offset_ns : int or None
        Our clock minus theirs.
    error_ns : int
        At most so far off, when it was taken: half the round trip.

    Examples
    --------
    >>> clock = ClockOffset()
    >>> clock.take(1000, 5, 1100)
    >>> clock.take(2000, 1005, 9000)
    >>> clock.offset_ns, clock.error_ns
    (1045, 50)
    """

    def __init__(self) -> None:
        self.offset_ns: int | None = None
        self.error_ns = 0
        self._taken_ns = 0

    def take(self, asked_ns: int, told_ns: int, heard_ns: int) -> None:
        """Take an exchange: asked and heard by our clock, told by theirs."""
        error = (heard_ns - asked_ns) // 2
        aged = self.error_ns + (heard_ns - self._taken_ns) * DRIFT_PPB // 10**9
        if self.offset_ns is None or error <= aged:
            self.offset_ns, self.error_ns, self._taken_ns = (asked_ns + heard_ns) // 2 - told_ns, error, heard_ns
