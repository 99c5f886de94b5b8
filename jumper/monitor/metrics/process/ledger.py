"""Processes and their ledger: totals that neither count a dead child twice nor lose it.

The kernel adds what a child used to whoever waits for it. The living are read
parent first, so a child that dies in between is seen too little for one tick,
never twice; what a parent has not collected yet is carried until it has.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jumper.monitor.metrics.process.procfs import PAGE, TICK_NS, Io, ProcFS, cpu_clock_ns, parse_io

#: cpu, user, system in ns; then the six counters of /proc/PID/io
WIDTH = 9
#: cutime and cstime are shown in whole ticks: what is missing below this is rounding
ROUNDING_NS = 2 * TICK_NS
#: passes that a parent gets to collect a child before it is taken as never collected
PATIENCE = 3
#: a child of vfork shows its parent's memory, within this
SAME_BYTES = 16 * PAGE
#: it is looked for so many times
YOUNG_READS = 16
NOBODY: Mapping[int, Process] = MappingProxyType({})


class Totals(NamedTuple):
    """Cumulative counters of a set of processes: ns, then bytes and calls."""

    cpu_ns: int
    cpu_user_ns: int
    cpu_system_ns: int
    read_chars: int
    write_chars: int
    reads: int
    writes: int
    read_bytes: int
    write_bytes: int


class Process:
    """One process, by (pid, start time), with its last reading.

    Attributes
    ----------
    own : list of int
        What it used itself (CPU) and with its reaped children (I/O).
    dead : list of int
        CPU of the children that it has waited for.
    rss, hwm, anon, swap : int
        Bytes; ``hwm`` is the highest ever seen, over exec; ``hwm_told`` what it was when it
        was last looked at.
    """

    __slots__ = (
        "absorbed", "age", "anon", "cminflt", "comm", "dead", "exec_stack", "hwm", "hwm_told", "io_fd", "io_ok",
        "minflt", "own", "pending", "pid", "ppid", "reads", "rss", "session", "start", "state", "swap", "threads",
    )  # fmt: skip

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ppid = self.session = 0
        self.start = 0
        self.state = "?"
        self.comm = ""
        self.threads = 1
        self.rss = self.hwm = self.hwm_told = self.anon = self.swap = 0
        self.minflt = self.cminflt = self.reads = 0
        self.exec_stack = 0
        self.io_ok = False
        self.io_fd: int | None = None
        self.own = [0] * WIDTH
        self.dead = [0] * WIDTH
        self.pending = [0] * WIDTH
        self.absorbed = [0] * WIDTH
        self.age = 0

    def read(self, fs: ProcFS, others: Mapping[int, Process] = NOBODY) -> bool:
        """Take a reading; False where the process is gone (or its pid is another's now).

        Counters that cannot be read any more (a zombie's I/O) keep their last value.
        ``others`` are the processes among which its parent may be.
        """
        stat = fs.stat(self.pid)
        if stat is None or (self.start and stat.start != self.start):
            return False
        clock = cpu_clock_ns(self.pid) if fs.root == "/proc" else None
        first = not self.start
        user, system = stat.utime * TICK_NS, stat.stime * TICK_NS
        self.start, self.ppid, self.state, self.threads = stat.start, stat.ppid, stat.state, stat.threads
        self.comm = stat.comm.decode("utf-8", "replace")
        self.session = stat.session
        self.exec_stack = stat.stack
        self.cminflt = stat.cminflt
        self.own[:3] = (clock if clock is not None else user + system, user, system)
        self.dead[:3] = ((stat.cutime + stat.cstime) * TICK_NS, stat.cutime * TICK_NS, stat.cstime * TICK_NS)
        if stat.state in "ZX":
            self.rss = self.anon = self.swap = 0
            self._read_kept_io()
            return True
        status = fs.status(self.pid)
        if status is not None:
            self.minflt = stat.minflt  # what is touched later than the last mark was unseen
            self.rss, self.anon, self.swap = status.rss, status.anon, status.swap
            if self._has_memory_of(others.get(self.ppid), fs):
                self.rss = self.anon = 0
            else:
                self.hwm = max(self.hwm, status.hwm)
        io = fs.io(self.pid)
        if io is not None:
            self.take_io(io)
        if first:  # its children are found after it: whatever it collects of them comes on top
            self.absorbed = self.collected()
        return True

    def _has_memory_of(self, parent: Process | None, fs: ProcFS) -> bool:
        """Return whether it runs in its parent's memory: a child of vfork, until it has exec'ed.

        A fork has the same stack too, but not the file pages that its parent had touched.
        """
        self.reads += 1
        if self.reads > YOUNG_READS or parent is None or parent is self or not self.exec_stack:
            return False
        now = fs.status(parent.pid) if parent.exec_stack == self.exec_stack else None
        if now is None:
            return False
        files = (self.rss - self.anon) - (now.rss - now.anon)
        return max(abs(self.rss - now.rss), abs(files)) <= SAME_BYTES

    def take_io(self, io: Io) -> None:
        """Take I/O counters."""
        self.own[3:] = io
        self.io_ok = True

    def close(self) -> None:
        """Close what is kept open."""
        if self.io_fd is not None:
            os.close(self.io_fd)
            self.io_fd = None

    def _read_kept_io(self) -> None:
        if self.io_fd is not None:
            with contextlib.suppress(OSError, ValueError):
                self.take_io(parse_io(os.pread(self.io_fd, 512, 0)))

    def collected(self) -> list[int]:
        """Return the counters in which children that this process waits for appear."""
        return self.dead[:3] + self.own[3:]

    def total(self) -> list[int]:
        """Return everything that is known to have been used by it and its dead children."""
        return [own + dead + pending for own, dead, pending in zip(self.own, self.dead, self.pending, strict=True)]


class OwnProcess(Process):
    """The reader itself: what its dead children used is known to the microsecond.

    Source: getrusage(2), RUSAGE_CHILDREN.
    """

    __slots__ = ()

    def read(self, fs: ProcFS, others: Mapping[int, Process] = NOBODY) -> bool:
        """Take a reading, the dead children's CPU from the wait."""
        alive = super().read(fs, others)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = round(children.ru_utime * 1e9), round(children.ru_stime * 1e9)
        self.dead[:3] = (user + system, user, system)
        return alive


class Ledger:
    """Sum the counters of a changing set of processes, monotonic.

    Attributes
    ----------
    lost_cpu_ns : int
        CPU of children that their parent never collected (it ignores SIGCHLD): last
        value seen, a lower bound.
    """

    def __init__(self) -> None:
        self.carry = [0] * WIDTH
        self.last = [0] * WIDTH
        self.lost_cpu_ns = 0

    def settle(self, alive: dict[int, Process], gone: Iterable[Process]) -> Totals:
        """Return the totals after one pass; ``alive`` parents first, ``gone`` since the last pass."""
        # children before their parents: these are older, in whatever order their ends were noticed
        gone = sorted(gone, key=lambda process: (process.start, process.pid), reverse=True)
        former = {process.pid: process for process in gone}
        for process in gone:
            self._collect(process)
            used = process.total()
            parent = alive.get(process.ppid) or former.get(process.ppid)
            if parent is None or parent is process:
                self._add(self.carry, used)
            else:
                self._add(parent.pending, used)
                parent.age = 0
        totals = list(self.carry)
        for process in alive.values():
            self._absorb(process)
            self._add(totals, process.total())
        totals = [max(new, old) for new, old in zip(totals, self.last, strict=True)]
        self.last = totals
        return Totals._make(totals)

    @staticmethod
    def _add(into: list[int], values: list[int]) -> None:
        for index, value in enumerate(values):
            into[index] += value

    @staticmethod
    def _collect(process: Process) -> None:
        """Take from what a process has still to collect what it has collected since the last pass."""
        now = process.collected()
        before, process.absorbed = process.absorbed, now
        if any(process.pending):
            process.pending = [
                max(0, waiting - max(0, new - old))
                for waiting, new, old in zip(process.pending, now, before, strict=True)
            ]

    def _absorb(self, process: Process) -> None:
        waiting = any(process.pending)
        self._collect(process)
        if not waiting:
            return
        process.age += 1
        if process.age >= PATIENCE:
            if process.pending[0] > ROUNDING_NS:
                self._add(self.carry, process.pending)
                self.lost_cpu_ns += process.pending[0]
            process.pending = [0] * WIDTH
