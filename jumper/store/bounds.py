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
Job = tuple[str, str]
#: Exit statuses of a command that ended by itself; higher ones tell of a signal (sh(1), "Exit status").
BY_ITSELF = range(129)


def bound(
    clocks: Mapping[Host, Clock], records: Iterable[tuple[Host, Record]], made: Iterable[tuple[Host, int]] = ()
) -> dict[Host, Clock]:
    """Return the clocks of hosts with jobs, moved as far as they must, each with the bound of its error.

    Parameters
    ----------
    clocks : mapping of Host to Clock
        Those that are placed by an exchange stay as they are, and so does that of who submitted.
    records : iterable of (Host, record)
        All ``task`` and ``part`` records, with the host that wrote them; see docs/segment.md.
    made : iterable of (Host, int)
        Who submits, and since when (its monotonic ns): no job of the run began before.

    Returns
    -------
    dict of Host to Clock
        Only those that have a bound. Where one side of it is open, its error is None; where the sides contradict
        each other, the host's own clock stands.
    """
    given: dict[Job, int] = {}
    over: dict[Job, int] = {}
    failed: set[Job] = set()
    stopped: set[Job] = set()
    begun: list[tuple[Host, Job, int]] = []
    ended: list[tuple[Host, Job, int, bool]] = []
    told_by: set[Host] = set()
    for host, record in records:
        # a job process tries again by itself: its attempts are 1.1.1, 1.2.1, the scheduler's is 1.1.1
        job = str(record["key"]), str(record.get("attempt_id", "")).partition(".")[0]
        event, mono_ns = record.get("event"), int(record["mono_ns"])
        if record.get("witness") == "scheduler":
            told_by.add(host)
            least, most = _between(clocks[host], mono_ns)
            # with its id, it is told of after it was given away
            if event == "start" and record.get("ready") and record.get("external_id") is None:
                given[job] = min(least, given.get(job, least))
            elif event == "stop" and record.get("state") in ("done", "failed"):
                over[job] = max(most, over.get(job, most))
                if record["state"] == "failed":
                    failed.add(job)
            if record.get("ended_by"):
                stopped.add(job)
        elif record.get("witness") is None and event == "start":
            begun.append((host, job, mono_ns))
            if record["type"] == "part":  # seen while it ran; its end may be told after that of its job
                ended.append((host, job, mono_ns, False))
        elif record.get("witness") is None and event == "stop" and record["type"] == "task":
            ended.append((host, job, mono_ns, record.get("exit_code") in BY_ITSELF))
    oldest = min((_between(clocks[host], mono_ns)[0] for host, mono_ns in made), default=None)
    lows: dict[Host, list[tuple[int, int]]] = {}
    highs: dict[Host, list[tuple[int, int]]] = {}
    moved = {host for host, clock in clocks.items() if host not in told_by and clock.own is not None}
    for host, job, mono_ns in begun:
        if host in moved and (time_ns := given.get(job, oldest)) is not None:
            lows.setdefault(host, []).append((mono_ns, time_ns - mono_ns))
    for host, job, mono_ns, by_itself in ended:
        # what a batch system gave up may go on for a while
        if host in moved and job in over and job not in stopped and (by_itself or job not in failed):
            highs.setdefault(host, []).append((mono_ns, over[job] - mono_ns))
    return {host: _within(clocks[host], lows.get(host, []), highs.get(host, [])) for host in lows.keys() | highs.keys()}


def _between(clock: Clock, mono_ns: int) -> tuple[int, int]:
    """Return the least and the most that the time is at a monotonic time of a host."""
    time_ns, error_ns = mono_ns + clock.offset_ns(mono_ns), clock.error_ns(mono_ns) or 0
    return time_ns - error_ns, time_ns + error_ns


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
