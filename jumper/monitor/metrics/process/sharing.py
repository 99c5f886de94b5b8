"""Memory with shared pages counted once: PSS read by a slow thread on a budget, and the estimate from it.

Reading PSS costs about 8 ms a GiB and holds the target's map lock, so it is
never done in a tick; between readings, RSS less what was found to be shared stands for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from jumper.monitor.metrics.process.ledger import Process
from jumper.monitor.metrics.process.procfs import ProcFS, Rollup

#: share of one core that reading PSS may take, and what may be spent at once
BUDGET = 0.005
CREDIT_S = 0.1
#: a reading is taken again when it is older than this, or RSS has changed by this part since
REFRESH_S = 2.0
CHANGED = 0.05
#: how much RSS may change while a sweep is taken
STEADY = 0.02

Identity = tuple[int, int]


class Sharing:
    """Read PSS of a set of processes in sweeps, in a thread of its own.

    PSS of several processes only adds up when all were read at about the same time,
    so a sweep counts only if memory stood still while it was taken.

    Attributes
    ----------
    cpu_ns : int
        CPU time that the thread has used.
    """

    def __init__(self, fs: ProcFS) -> None:
        self._fs = fs
        self._sweep: dict[Identity, Rollup] = {}
        self._taken_s = 0.0
        self._wanted: dict[Identity, int] = {}
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self.cpu_ns = 0

    def want(self, processes: Collection[Process]) -> None:
        """Say whose PSS is of interest now; starts the thread when it is first needed."""
        self._wanted = {(p.pid, p.start): p.rss for p in processes if p.rss}
        if not self._wanted:
            return
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="jumper-pss", daemon=True)
            self._thread.start()
        if self._due():
            self._wake.set()

    def known(self, process: Process) -> Rollup | None:
        """Return what the last good sweep says of a process, or None."""
        return self._sweep.get((process.pid, process.start))

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _due(self) -> bool:
        wanted, sweep = self._wanted, self._sweep
        if not wanted:
            return False
        if any(identity not in sweep for identity in wanted) or time.monotonic() - self._taken_s > REFRESH_S:
            return True
        return not steady(sum(wanted.values()), sum(sweep[identity].rss for identity in wanted), CHANGED)

    def _run(self) -> None:
        credit, last = CREDIT_S, time.monotonic()
        while not self._stopped:
            if not self._due():
                self._wake.wait(0.5)
                self._wake.clear()
                continue
            now = time.monotonic()
            credit = min(CREDIT_S, credit + (now - last) * BUDGET)
            last = now
            if credit <= 0:
                time.sleep(min(0.5, 0.05 - credit / BUDGET))
                continue
            before = time.thread_time_ns()
            self._take()
            self.cpu_ns = time.thread_time_ns()
            credit -= (self.cpu_ns - before) / 1e9

    def _take(self) -> None:
        wanted = list(self._wanted)
        before = sum(self._fs.rss(pid) for pid, _ in wanted)
        sweep = {identity: found for identity in wanted if (found := self._fs.pss(identity[0])) is not None}
        after = sum(self._fs.rss(pid) for pid, _ in wanted)
        if steady(after, before, STEADY):
            self._sweep, self._taken_s = sweep, time.monotonic()
        else:
            time.sleep(0.01)


def steady(now: int, before: int, part: float) -> bool:
    """Return whether two sums of bytes differ by less than a part of the larger.

    Examples
    --------
    >>> steady(100, 101, 0.02), steady(100, 110, 0.02)
    (True, False)
    """
    return abs(now - before) <= part * max(now, before)


class Memory:
    """Memory of a set of processes at one instant, in bytes.

    Attributes
    ----------
    rss : int
        Sum of RSS.
    pss : int or None
        Sum of the last PSS readings; None while one is missing.
    used : int
        RSS with shared pages counted once; an estimate from below while ``missing``.
    missing : int
        Processes of several whose sharing is not known.
    """

    __slots__ = ("missing", "pss", "rss", "used")

    def __init__(self, processes: Collection[Process], sharing: Sharing) -> None:
        living = [p for p in processes if p.rss]
        self.rss = sum(p.rss for p in living)
        readings = [(p, sharing.known(p)) for p in living]
        self.pss = None
        if readings and all(reading is not None for _, reading in readings):
            self.pss = sum(reading.pss for _, reading in readings if reading is not None)
        self.missing = 0
        if len(living) <= 1:
            self.used = self.rss
            return
        self.used = 0
        covered: dict[int, int] = {}
        uncovered: dict[int, int] = {}
        for process, reading in readings:
            # forks that have not exec'ed have their parent's stack and share its pages
            group = process.exec_stack or -process.pid
            if reading is None:
                self.missing += 1
                uncovered[group] = max(uncovered.get(group, 0), process.anon)
            else:
                self.used += used_since(process, reading)
                covered[group] = max(covered.get(group, 0), process.anon)
        self.used += sum(max(0, anon - covered.get(group, 0)) for group, anon in uncovered.items())
        self.used = max(self.used, max(p.rss for p in living))


def used_since(process: Process, reading: Rollup) -> int:
    """Return a process's share of memory now, bytes: its PSS when it was read, and its own growth since.

    What grew in files and shared memory may be others' too, so it waits for the next reading.
    """
    return min(process.rss, max(0, reading.pss + process.anon - reading.anon))
