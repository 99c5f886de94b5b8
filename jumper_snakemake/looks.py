"""Virtual, unique and proportional memory of benchmarked jobs: no high-water mark keeps them, so they are looked at."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

#: first look after the start of a job, doubled until it is the interval
_FIRST_S = 0.02
#: a look is followed by so many times its cost of rest: reading holds the process's map lock
_REST = 200


@dataclass(slots=True)
class Looked:
    """The highest sums over a tree, in bytes; None before the first look that saw it."""

    pid: int
    vms: int | None = None
    uss: int | None = None
    pss: int | None = None
    due_s: float = 0.0
    step_s: float = _FIRST_S


@dataclass
class Looker:
    """One thread that looks at all benchmarked jobs of this process.

    Parameters
    ----------
    interval_s : float
        Seconds between two looks at a job that has run for a while.

    Attributes
    ----------
    cpu_ns : int
        What the looks have cost.
    """

    interval_s: float
    cpu_ns: int = 0
    _trees: list[Looked] = field(default_factory=list)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def begin(self, pid: int) -> Looked:
        """Look at the tree of a process from now on."""
        looked = Looked(pid, due_s=time.monotonic())
        with self._wake:
            self._trees.append(looked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jumper-looks", daemon=True)
                self._thread.start()
            self._wake.notify()
        return looked

    def end(self, looked: Looked) -> None:
        """Look at it no more."""
        with self._wake:
            self._trees = [each for each in self._trees if each is not looked]

    def _run(self) -> None:
        while True:
            with self._wake:
                nearest = min((each.due_s for each in self._trees), default=None)
                pause = None if nearest is None else nearest - time.monotonic()
                if pause is None or pause > 0:
                    self._wake.wait(pause)
                    continue
                due = [each for each in self._trees if each.due_s <= time.monotonic()]
            for looked in due:
                began = time.thread_time()
                look(looked)
                self.cpu_ns = time.thread_time_ns()
                rest = (time.thread_time() - began) * _REST
                looked.due_s = time.monotonic() + max(looked.step_s, rest)
                looked.step_s = min(looked.step_s * 2, self.interval_s)


def look(looked: Looked) -> None:
    """Take one look at a tree.

    Source: proc_pid_statm(5); Documentation/filesystems/proc.rst, ``smaps_rollup``.

    Examples
    --------
    >>> mine = Looked(os.getpid())
    >>> look(mine)
    >>> mine.vms > mine.pss >= mine.uss > 0
    True
    """
    page = os.sysconf("SC_PAGE_SIZE")
    vms = uss = pss = 0
    for pid in _tree(looked.pid):
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                vms += int(file.read().split()[0]) * page
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                sizes = dict(line.split()[:2] for line in file.read().splitlines()[1:])
        except (OSError, ValueError, IndexError):  # it has just ended, or is another user's
            continue
        uss += 1024 * sum(int(sizes.get(name, 0)) for name in (b"Private_Clean:", b"Private_Dirty:"))
        pss += 1024 * int(sizes.get(b"Pss:", 0))
    if vms:
        looked.vms = max(vms, looked.vms or 0)
    if pss:
        looked.uss, looked.pss = max(uss, looked.uss or 0), max(pss, looked.pss or 0)


def _tree(root: int) -> list[int]:
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/children", "rb") as file:
                    left += map(int, file.read().split())
        except OSError:
            continue
    return found
