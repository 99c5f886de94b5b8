"""Who used the CPU of a worker's process: tasks, Dask around them, its event loop, we, and nobody known.

Every thread that is known has its clock; what the process's clock has beyond their sum is nobody's: threads that a
library or a task started.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from jumper_dask.children import Children
from jumper_dask.readings import counters

#: Starts of the names of Python threads -> whose they are; Dask's profiler serves the page of its event loop.
NAMES = {"Profile": "loop", "jumper-": "own", "Dask-Offload": "offload", "Dask-Default-": "pool", "Dask-Actor-": "pool"}


#: Attempts shorter than this are not asked for helper threads, and clocks are read at most this often, in ns.
SHORT_NS = 10_000_000
#: CPU of other threads beside an attempt that is less than this part of its wall time is not called its helpers'.
HELPED = 0.01


class Place(Protocol):
    """A thread that runs attempts; `jumper_dask.boundaries.Runner` says what is what."""

    tid: int
    attempt: Any
    spent_ns: int
    began_ns: int
    ended_ns: int
    beside_ns: int


class Balance:
    """The CPU of this process since now, by who used it.

    Parameters
    ----------
    children : Children
        Who spawned the children that were reaped.

    Attributes
    ----------
    unattributed_ns : int
        CPU of threads that nobody knows, at the last :meth:`read`.
    credited_ns : int
        What of it was given to attempts that were alone.
    meters : list
        Coroutines that are measured (``jumper_dask.coroutines``).
    metered_ns : int
        CPU of those that ended.
    possible : bool
        Whether single threads have clocks here; without them nobody can be told from anybody.
    """

    def __init__(self, children: Children) -> None:
        self._children = children
        self._began_ns = time.process_time_ns()
        self._children_began_ns = children.seen_ns
        self._clocks: dict[int, int] = {}  # of known threads, as last seen
        self._whose: dict[int, str] = {}
        self._known: list[int] = []  # the same threads
        tids = _alive()
        self._base: dict[int, int] = {
            tid: ns for tid, ns in zip(tids, counters.clocks(tids)[0], strict=True) if ns >= 0
        }
        self._based_ns = 0  # what the known ones had used by then, and those that are gone used since
        self._gone = dict.fromkeys(("loop", "own", "offload", "pool"), 0)
        self._places: dict[int, Place] = {}
        self._gone_spent_ns = 0
        self.meters: list[Any] = []
        self.metered_ns = self.unattributed_ns = self.credited_ns = self.read_ns = 0
        self.possible = bool(self._base)
        self._met = False  # whether somebody is known since the last reading
        self.meet()
        self.read()

    def loop(self, tid: int) -> None:
        """Say which thread runs an event loop of Dask."""
        self._know({tid: "loop"})

    def runs(self, place: Place) -> None:
        """Say that a thread runs attempts."""
        self._places[place.tid] = place
        self._know({place.tid: "pool"})

    def _know(self, whose: dict[int, str]) -> None:
        self._whose.update(whose)
        self._known = list(self._whose)
        self._based_ns = sum(self._base.get(tid, 0) for tid in self._known) - sum(self._gone.values())

    def read(self) -> None:
        """Read the clocks, the process's last: what a thread uses meanwhile is nobody's, and a few microseconds."""
        known = self._known
        clocks: list[int]
        clocks, process_ns = counters.clocks(known)
        if min(clocks, default=0) < 0:
            clocks = [self._last(tid, ns) for tid, ns in zip(known, clocks, strict=True)]
        self._clocks = dict(zip(known, clocks, strict=True))
        beyond = process_ns - self._began_ns - sum(clocks) + self._based_ns
        self.unattributed_ns = beyond if self._met else max(self.unattributed_ns, beyond)
        self._met = False
        self.read_ns = time.monotonic_ns()

    def _last(self, tid: int, now_ns: int = -1) -> int:
        """Return the clock of a known thread; of one that ended, what was seen last."""
        if now_ns < 0 and tid in self._places:  # what its last attempt saw
            now_ns = self._places[tid].ended_ns
        return max(now_ns, self._clocks.get(tid, 0), self._base.get(tid, 0))

    def _used(self, tid: int) -> int:
        """Return what a known thread had used since it is, at the last reading."""
        return max(0, self._clocks.get(tid, 0) - self._base.get(tid, 0))

    def helped_ns(self, place: Place) -> int:
        """Return what nobody known used since a thread began the attempt that it runs, if that was alone since."""
        attempt = place.attempt
        if attempt is None or attempt.flags:
            return 0
        helped, wall_ns = self.unattributed_ns - place.beside_ns, self.read_ns - attempt.begin_ns
        return helped if wall_ns > SHORT_NS and helped > HELPED * wall_ns else 0

    def renew(self) -> list[int]:
        """Learn the names of new threads and forget threads that ended; return which of them ran attempts."""
        alive = set(_alive())
        gone = [tid for tid in self._whose if tid not in alive] if alive else []
        for tid in gone:
            self._gone[self._whose.pop(tid)] += self._last(tid) - self._base.get(tid, 0)
            self._clocks.pop(tid, None)
        for tid in self._base.keys() - alive:
            del self._base[tid]
        self._know({})
        self.meet(alive)
        places = [tid for tid in gone if tid in self._places]
        self._gone_spent_ns += sum(self._places.pop(tid).spent_ns for tid in places)
        return places

    def row(self) -> dict[str, int]:
        """Return a row of the stream `worker`: the columns `cpu_*_ns` add up to `cpu_ns`."""
        self.read()
        by = dict(self._gone)
        for tid, whose in self._whose.items():
            by[whose] += self._used(tid)
        threads = self._gone_spent_ns
        for tid, place in self._places.items():
            threads += place.spent_ns
            if place.attempt is not None:
                threads += max(0, self._clocks.get(tid, 0) - place.began_ns)
        helped = self.credited_ns + sum(self.helped_ns(place) for place in self._places.values())
        steps = self.metered_ns + sum(meter.used_ns(lambda tid: self._clocks.get(tid, 0)) for meter in self.meters)
        children = self._children
        orphans = children.seen_ns - self._children_began_ns - children.given_ns - children.own_ns
        parts = {
            "cpu_tasks_ns": threads + steps + children.given_ns + helped,
            "cpu_pool_ns": by["pool"] - threads,
            "cpu_loop_ns": by["loop"] - steps,
            "cpu_offload_ns": by["offload"],
            "cpu_own_ns": by["own"] + children.own_ns,
            "cpu_unattributed_ns": self.unattributed_ns - helped + orphans,
        }
        return {"mono_ns": self.read_ns, "pid": os.getpid(), "cpu_ns": sum(parts.values()), **parts}

    def meet(self, alive: Collection[int] | None = None) -> None:
        """Learn whose the threads are that are not known yet: Python's by their names, others by the kernel's."""
        names: dict[int | None, str] | None = None
        met: dict[int, str] = {}
        for tid in _alive() if alive is None else alive:
            if tid not in self._whose:
                names = names or {thread.native_id: thread.name for thread in threading.enumerate()}
                name = names.get(tid) or _comm(tid)
                whose = next((whose for part, whose in NAMES.items() if part in name), None)
                if whose is not None:
                    met[tid] = whose
        if met:
            self._met = True
            self._know(met)


def _alive() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return []


def _comm(tid: int) -> str:
    """Return the kernel's name of a thread; a thread has that of who started it until it takes another (proc(5))."""
    try:
        return Path(f"/proc/self/task/{tid}/comm").read_text()
    except OSError:
        return ""
