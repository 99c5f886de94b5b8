"""Processes of a job that a batch system's daemon started on this node: the ranks of a parallel program.

They are no descendants of the job's own process, but carry its tag in their
environment. Their parent is Slurm's `slurmstepd`, which waits for them: what they
used is in its ledger to the clock tick, until it goes a moment after them.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jumper.monitor.metrics.process.procfs import TICK_NS, ProcFS, cpu_clock_ns
from jumper.monitor.roots import Most
from jumper_snakemake.beyond import Cost

if TYPE_CHECKING:
    from jumper.monitor.roots import Roots

#: how often new processes are looked for
POLL_S = 0.02
#: how often, and how long, a daemon's ledger is read once a task of it has ended: it outlives them by some 10 ms
CLOSE_S, BURST_S = 0.001, 0.2
#: share of a core that looking for processes may take, and how late it may be for that
BUDGET, LATEST_S = 0.005, 0.5
#: between fork and exec a process has its parent's environment: it is looked at again this long
YOUNG_S = 5.0
#: so many ranks of a node have their clocks read between samples
MOST_CLOCKS = 256
_DAEMON = b"slurmstepd"


class Step:
    """The ranks that one daemon started, as one tree of an engine.

    Attributes
    ----------
    clocks : dict of int to int
        CPU time of each rank as of the last look, ns: nearly all, where the daemon's ledger is not seen.
    reaped : tuple of int
        User and system ns of the ranks that have ended, as of the last look.
    """

    def __init__(self, engine: Roots, pid: int, daemon: int | None) -> None:
        self._engine = engine
        self.pid, self.daemon = pid, daemon
        self.start_ns = time.monotonic_ns()
        self.number = engine.add(pid, None, () if daemon is None else (daemon,))
        self.reaped = (0, 0)
        self.clocks = {pid: 0}

    def look(self, fs: ProcFS) -> None:
        """Read the clocks of the ranks, then the daemon's ledger."""
        for pid, before in tuple(self.clocks.items())[:MOST_CLOCKS]:
            self.clocks[pid] = max(before, cpu_clock_ns(pid) or 0)
        stat = fs.stat(self.daemon) if self.daemon is not None else None
        if stat is not None and stat.comm.startswith(_DAEMON):
            self.reaped = (stat.cutime * TICK_NS, stat.cstime * TICK_NS)

    def end(self) -> tuple[dict[str, Any], Cost]:
        """Watch it no more; return what belongs into its record, and what it cost."""
        most = self._engine.finish(self.number) if self.number is not None else Most()
        user, system = self.reaped
        seen_ns = max(sum(self.clocks.values()), most.cpu_ns or 0)
        cost = Cost(max(user + system, seen_ns), most.rss, most.memory)
        known = {"rusage": {"cpu_user_ns": user, "cpu_system_ns": system}} if user + system else {}
        return {"roots": [[self.pid, self.start_ns, time.monotonic_ns()]], "cpu_seen_ns": seen_ns, **known}, cost


class Part:
    """One attempt of a job on this node, beside its own tree."""

    def __init__(self, key: str, attempt_id: str, tag: str) -> None:
        self.record = {"type": "part", "kind": "snakemake", "key": key, "attempt_id": attempt_id}
        self.tag = tag.encode()
        self.steps: list[Step] = []


class Parts:
    """Finds and watches the processes that the batch system started for attempts of jobs.

    Parameters
    ----------
    engine : callable
        Returns what samples, when there is something to sample.
    note : callable
        Takes the records.
    interval_s : float
    fs : ProcFS, optional
    """

    def __init__(
        self,
        engine: Callable[[], Roots],
        note: Callable[[Mapping[str, Any]], None],
        interval_s: float,
        fs: ProcFS | None = None,
    ) -> None:
        self._engine = engine
        self._note = note
        self._interval_s = interval_s
        self._fs = fs or ProcFS()
        self._parts: dict[int, Part] = {}
        self._known: set[int] = set()
        self._young: dict[int, float] = {}
        self._last_pid: int | None = None
        self._next_scan = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._exits = select.epoll()
        self._burst_until = 0.0

    def run(self) -> None:
        """Look until :meth:`close`; in a thread of its own."""
        while not self._ended:
            if not self._parts:
                self._wake.wait()
                self._wake.clear()
                continue
            burst = time.monotonic() < self._burst_until
            for fd, _ in self._exits.poll(CLOSE_S if burst else POLL_S):
                self._exits.unregister(fd)
                os.close(fd)
                self._burst_until = time.monotonic() + BURST_S
            with self._lock:
                self.look()

    def begin(self, number: int, key: str, attempt_id: str, tag: str) -> None:
        """Look for processes with a tag, ``NAME=value``, from now on."""
        with self._lock:
            self._parts[number] = Part(key, attempt_id, tag)
        self._wake.set()

    def end(self, number: int) -> list[Cost]:
        """Look for them no more; return what they cost, by step."""
        with self._lock:
            part = self._parts.get(number)
            if part is None:
                return []
            self.look()
            del self._parts[number]
        costs = []
        for step in part.steps:
            record, cost = step.end()
            self._note({**self._facts(part, "stop"), **record})
            costs.append(cost)
        return costs

    def close(self) -> None:
        """End all of them."""
        for number in tuple(self._parts):
            self.end(number)
        self._ended = True
        self._wake.set()

    def look(self) -> None:
        """Take one look at the daemons, and at what is new on this node."""
        for part in self._parts.values():
            for step in part.steps:
                step.look(self._fs)
        now = time.monotonic()
        for pid, since in tuple(self._young.items()):
            self._consider(pid)
            if now - since > YOUNG_S:
                del self._young[pid]
        if now < self._next_scan:
            return
        last = self._fs.last_pid()
        if last is None or last != self._last_pid:
            self._last_pid, began = last, time.thread_time()
            self._scan(now)
            self._next_scan = now + min((time.thread_time() - began) / BUDGET, LATEST_S)

    def _scan(self, now: float) -> None:
        pids = set(self._fs.pids())
        new = pids - self._known
        self._known = pids
        self._young = {pid: since for pid, since in self._young.items() if pid in pids}
        for pid in sorted(new):
            if not self._consider(pid) and self._is_daemon(pid):  # or a child of it that has not exec'ed yet
                self._young[pid] = now

    def _is_daemon(self, pid: int) -> bool:
        stat = self._fs.stat(pid)
        return stat is not None and stat.comm.startswith(_DAEMON)

    def _consider(self, pid: int) -> bool:
        """Watch a process where it has the tag of a part and is not watched yet; return whether it has one."""
        part = next((part for part in self._parts.values() if self._fs.tagged(pid, part.tag)), None)
        if part is None:
            return False
        self._young.pop(pid, None)
        stat = self._fs.stat(pid)
        # a child of one that has the tag is in its tree
        if stat is None or stat.ppid == os.getpid() or self._fs.tagged(stat.ppid, part.tag):
            return True
        daemon = stat.ppid if self._is_daemon(stat.ppid) else None
        step = next((step for step in part.steps if daemon is not None and step.daemon == daemon), None)
        if daemon is not None:
            self._await_exit(pid)
        if step is not None:
            step.clocks.setdefault(pid, 0)
        else:
            step = Step(self._engine(), pid, daemon)
            part.steps.append(step)
            self._note({**self._facts(part, "start"), "roots": [[pid, step.start_ns, None]], "pid": pid})
        return True

    def _await_exit(self, pid: int) -> None:
        """Have :meth:`run` woken when a process ends; where that cannot be had, it looks now and then."""
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                self._exits.register(fd, select.EPOLLIN)
            except OSError:
                os.close(fd)

    def _facts(self, part: Part, event: str) -> dict[str, Any]:
        now = time.monotonic_ns()
        return {**part.record, "event": event, "interval_s": self._interval_s, "mono_ns": now}
