"""Between what the clock of a host must stand that never exchanged times: no job starts before it was submitted.

Where neither a scheduler nor a file server tells the time, each host's own wall clock
counts. The jobs that a batch system started there still bind it: by the clock of who
submitted them, none began before that, and none ended after it was found to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jumper.store.clocks import Clock, drifted_ns

if TYPE_CHECKING:
    from jumper.store.merge import Host

Record = Mapping[str, Any]


def bound(clocks: Mapping[Host, Clock], records: Iterable[tuple[Host, Record]]) -> dict[Host, Clock]:
    """Return the clocks of hosts with jobs, moved as far as they must, each with the bound of its error.

    Parameters
    ----------
    clocks : mapping of Host to Clock
        Those that are placed by an exchange stay as they are, and so does that of who submitted.
    records : iterable of (Host, record)
        All ``task`` records, with the host that wrote them; see docs/segment.md.

    Returns
    -------
    dict of Host to Clock
        Only those that have a bound. Where one side of it is open, its error is None; where the sides contradict
        each other, the host's own clock stands.
    """
    given: dict[tuple[str, str], int] = {}
    done: dict[tuple[str, str], int] = {}
    begun: list[tuple[Host, tuple[str, str], int]] = []
    ended: list[tuple[Host, tuple[str, str], int]] = []
    told_by: set[Host] = set()
    for host, record in records:
        # a job process tries again by itself: its attempts are 1.1.1, 1.2.1, the scheduler's is 1.1.1
        job = str(record["key"]), str(record.get("attempt_id", "")).partition(".")[0]
        event, mono_ns = record.get("event"), int(record["mono_ns"])
        if record.get("witness") == "scheduler":
            told_by.add(host)
            time_ns = mono_ns + clocks[host].offset_ns(mono_ns)
            # with its id, it is told of after it was given away
            if event == "start" and record.get("ready") and record.get("external_id") is None:
                given[job] = min(time_ns, given.get(job, time_ns))
            elif event == "stop" and record.get("state") == "done":
                done[job] = max(time_ns, done.get(job, time_ns))
        elif record.get("witness") is None and event in ("start", "stop"):
            (begun if event == "start" else ended).append((host, job, mono_ns))
    lows: dict[Host, list[tuple[int, int]]] = {}
    highs: dict[Host, list[tuple[int, int]]] = {}
    for found, those, times in ((lows, begun, given), (highs, ended, done)):
        for host, job, mono_ns in those:
            if job in times and host not in told_by and clocks[host].own is not None:
                found.setdefault(host, []).append((mono_ns, times[job] - mono_ns))
    return {host: _within(clocks[host], lows.get(host, []), highs.get(host, [])) for host in lows.keys() | highs.keys()}


def _within(clock: Clock, lows: list[tuple[int, int]], highs: list[tuple[int, int]]) -> Clock:
    """Return a clock moved between its bounds: (monotonic ns, least or most that its offset was then)."""
    assert clock.own is not None
    times = [mono_ns for mono_ns, _ in lows + highs]
    slack = drifted_ns(max(times) - min(times))  # each of them held at its own time
    low = max((offset - slack for _, offset in lows), default=None)
    high = min((offset + slack for _, offset in highs), default=None)
    if low is not None and high is not None and low > high:
        return clock
    own = clock.own if low is None else max(clock.own, low)
    own = own if high is None else min(own, high)
    return Clock.fixed(own, None if low is None or high is None else max(own - low, high - own))
