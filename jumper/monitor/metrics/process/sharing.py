"""Memory with shared pages counted once: PSS read by a slow thread on a budget, and the estimate from it.

Reading PSS costs about 8 ms a GiB and holds the target's map lock, so it is
never done in a tick; between readings, RSS less what was found to be shared stands for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from jumper.monitor.metrics.process.ledger import Process
from jumper.monitor.metrics.process.procfs import ProcFS

#: share of one core that reading PSS may take, and what may be spent at once
BUDGET = 0.005
CREDIT_S = 0.1
#: a reading older than this is taken again when there is nothing newer to read
REFRESH_S = 2.0

Identity = tuple[int, int]


class Sharing:
    """Read PSS of the processes that were asked for, in a thread of its own.

    Attributes
    ----------
    cpu_ns : int
        CPU time that the thread has used.
    """

    def __init__(self, fs: ProcFS) -> None:
        self._fs = fs
        self._known: dict[Identity, tuple[int, int, float]] = {}
        self._wanted: tuple[Identity, ...] = ()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self.cpu_ns = 0

    def want(self, processes: Collection[Process]) -> None:
        """Say whose PSS is of interest now; starts the thread when it is first needed."""
        self._wanted = tuple((p.pid, p.start) for p in processes)
        if not self._wanted:
            return
        known = self._known
        self._known = {identity: known[identity] for identity in self._wanted if identity in known}
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="jumper-pss", daemon=True)
            self._thread.start()
        if any(identity not in self._known for identity in self._wanted):
            self._wake.set()

    def pss(self, process: Process) -> tuple[int, int] | None:
        """Return the last (pss, rss) in bytes that was read of a process, or None."""
        found = self._known.get((process.pid, process.start))
        return None if found is None else found[:2]

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _next(self) -> Identity | None:
        fresh = [identity for identity in self._wanted if identity not in self._known]
        if fresh:
            return fresh[0]
        old = [identity for identity in self._wanted if self._known.get(identity, (0, 0, 0.0))[2]]
        oldest = min(old, key=lambda identity: self._known[identity][2], default=None)
        if oldest is None or time.monotonic() - self._known[oldest][2] < REFRESH_S:
            return None
        return oldest

    def _run(self) -> None:
        credit, last = CREDIT_S, time.monotonic()
        while not self._stopped:
            identity = self._next()
            if identity is None:
                self._wake.wait(0.5)
                self._wake.clear()
                continue
            now = time.monotonic()
            credit = min(CREDIT_S, credit + (now - last) * BUDGET)
            last = now
            if credit <= 0:
                time.sleep(min(1.0, 0.05 - credit / BUDGET))
                continue
            before = time.thread_time_ns()
            found = self._fs.pss(identity[0])
            # one that cannot be read counts with what it holds: no correction
            self._known[identity] = (*(found or (0, 0)), time.monotonic())
            self.cpu_ns = time.thread_time_ns()
            credit -= (self.cpu_ns - before) / 1e9


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
        readings = [(p, sharing.pss(p)) for p in living]
        self.pss = None
        if readings and all(reading is not None and reading[1] for _, reading in readings):
            self.pss = sum(reading[0] for _, reading in readings if reading is not None)
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
                pss, rss = reading
                self.used += max(0, process.rss - (rss - pss))
                covered[group] = max(covered.get(group, 0), process.anon)
        self.used += sum(max(0, anon - covered.get(group, 0)) for group, anon in uncovered.items())
        if self.missing == len(living):
            self.used = max(self.used, max(p.rss for p in living))
