"""The counters of a tree of processes from /proc, tick by tick and in between for new processes."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Collection
from typing import Protocol

from jumper.monitor.metrics.process.ledger import Ledger, Process, Totals
from jumper.monitor.metrics.process.procfs import FORKED_ONLY, ProcFS
from jumper.monitor.metrics.process.sharing import Memory, Sharing, used_since
from jumper.monitor.metrics.process.tree import Tree

Counters = dict[str, int | None]

#: how often a look for new processes is taken between ticks, while there are young ones and else
YOUNG_POLL_S, QUIET_POLL_S = 0.02, 0.05
#: how soon a new process is read first
FIRST_LOOK_S = 0.005
#: share of one core that looking between ticks may take
POLL_BUDGET = 0.002


class Source(Protocol):
    """Where the counters of the target's tree come from on this system."""

    def update(self) -> Counters:
        """Take one reading of the whole tree."""
        ...

    def poll(self) -> float | None:
        """Look for new processes; return seconds until the next look, or None."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the target is there."""
        ...

    @property
    def pids(self) -> set[int]:
        """The processes of the target now."""
        ...


class TreeSource:
    """The process tree of one target.

    Parameters
    ----------
    pid : int
        The target; 0: none but who has the tag.
    fs : ProcFS, optional
    sharing : Sharing, optional
    longest_s : float
        Early samples of a new process stop at this age (the interval).
    own_cpu_ns : callable, optional
        CPU time of the monitor inside the target, to be left out of the target's.
    parents, exclude, tag
        As in :class:`~jumper.monitor.metrics.process.tree.Tree`.
    """

    def __init__(
        self,
        pid: int,
        fs: ProcFS | None = None,
        sharing: Sharing | None = None,
        *,
        longest_s: float = 1.0,
        own_cpu_ns: Callable[[], int] | None = None,
        parents: Collection[int] = (),
        exclude: Collection[int] = (),
        tag: str | None = None,
    ) -> None:
        self.fs = fs or ProcFS()
        self.sharing = sharing or Sharing(self.fs)
        self.tree = Tree(self.fs, pid, parents, exclude, tag)
        self.ledger = Ledger()
        self.longest_s = longest_s
        self._own_cpu_ns = own_cpu_ns
        self._young: list[tuple[float, float, int]] = []
        self._gone: list[Process] = []
        self._peaks: dict[str, int] = {}
        self._hwms: dict[tuple[int, int], int] = {}
        self._measured = False
        self._orphan_faults = 0
        self._seen_faults = 0
        root = self.tree.members.get(pid)
        if root is not None:
            self._born(root)

    @property
    def alive(self) -> bool:
        """Whether any process of the target is left; one that goes by its tag alone may get others."""
        return bool(self.tree.members) or not self.tree.root

    @property
    def pids(self) -> set[int]:
        """The processes of the target now."""
        return set(self.tree.members)

    def keep_io(self, fd: int) -> None:
        """Take over the root's open I/O file: a zombie's cannot be opened without privilege, but read."""
        root = self.tree.members.get(self.tree.root)
        if root is not None:
            root.io_fd = fd
        else:
            os.close(fd)

    def update(self) -> Counters:
        """Take one reading of the whole tree."""
        for process in self.tree.look():
            self._born(process)
        self._bury(self.tree.read())
        totals = self.ledger.settle(self.tree.members, self._gone)
        self._gone.clear()
        memory = self._measure()
        counters = self._counters(totals, memory)
        self._peaks.clear()
        self._hwms.clear()
        return counters

    def poll(self) -> float | None:
        """Look for new processes and read the young; return seconds until the next look, or None."""
        began = time.thread_time()
        changed = False
        if self.tree.polls:
            for process in self.tree.look():
                self._born(process)
                changed = True
        changed |= self._read_young()
        if changed:
            self._measure()
        shortest = YOUNG_POLL_S if self._young else QUIET_POLL_S
        pause = max(shortest if self.tree.polls else 1.0, (time.thread_time() - began) / POLL_BUDGET)
        if self._young:
            pause = min(pause, max(FIRST_LOOK_S, self._young[0][0] - time.monotonic()))
        return pause if self.tree.polls or self._young else None

    def close(self) -> None:
        """End the thread that reads PSS; close what is kept open."""
        self.sharing.stop()
        for process in self.tree.members.values():
            process.close()

    def _born(self, process: Process) -> None:
        heapq.heappush(self._young, (time.monotonic() + FIRST_LOOK_S, FIRST_LOOK_S, process.pid))

    def _read_young(self) -> bool:
        now, changed = time.monotonic(), False
        while self._young and self._young[0][0] <= now:
            _, step, pid = heapq.heappop(self._young)
            process = self.tree.members.get(pid)
            if process is None:
                continue
            changed = True
            if not process.read(self.fs, self.tree.members):
                del self.tree.members[pid]
                self._bury([process])
            elif step * 2 < self.longest_s:
                heapq.heappush(self._young, (now + step * 2, step * 2, pid))
        return changed

    def _bury(self, gone: list[Process]) -> None:
        buried = {process.pid for process in gone}
        for process in gone:
            process.close()
            self._hwms[process.pid, process.start] = process.hwm
            if process.ppid in self.tree.members or process.ppid in buried:
                self._seen_faults += process.minflt
            else:
                self._orphan_faults += process.cminflt
        self._gone.extend(gone)

    def _measure(self) -> Memory:
        members = self.tree.members.values()
        memory = Memory(members, self.sharing)
        self._raise("rss", memory.rss)
        risen = self._risen(members)
        self._raise("used", memory.used + (risen if self._measured else 0))  # not marks from before we looked
        self._measured = True
        for process in members:
            self._hwms[process.pid, process.start] = process.hwm
        self.sharing.want(members if len(members) > 1 else ())
        return memory

    @staticmethod
    def _risen(members: Collection[Process]) -> int:
        """Return how far above its memory now a process has been since the last look, bytes.

        When it was there, the others had about what they have now.
        """
        risen = 0
        for process in members:
            if process.hwm > process.hwm_told:
                process.hwm_told = process.hwm
                risen = max(risen, process.hwm - process.rss)
        return risen

    def _raise(self, name: str, value: int) -> None:
        self._peaks[name] = max(self._peaks.get(name, 0), value)

    def _counters(self, totals: Totals, memory: Memory) -> Counters:
        members = self.tree.members.values()
        own = self._own_cpu_ns() if self._own_cpu_ns is not None else 0
        readable = self.tree.seen > 0 and any(totals[3:])
        faults = sum(p.cminflt for p in members) + self._orphan_faults - self._seen_faults
        return {
            "pid": self.tree.root,
            "cpu_ns": max(0, totals.cpu_ns - own),
            "cpu_user_ns": totals.cpu_user_ns,
            "cpu_system_ns": totals.cpu_system_ns,
            "rss_bytes": memory.rss,
            "pss_bytes": memory.pss,
            "memory_bytes": memory.used,
            "rss_peak_bytes": self._peaks.get("rss", 0),
            "memory_peak_bytes": self._peaks.get("used", 0),
            "hwm_bytes": sum(self._hwms.values()),
            "hwm_max_bytes": max(self._hwms.values(), default=0),
            "swap_bytes": sum(p.swap for p in members),
            "read_bytes": totals.read_bytes if readable else None,
            "write_bytes": totals.write_bytes if readable else None,
            "read_chars": totals.read_chars if readable else None,
            "write_chars": totals.write_chars if readable else None,
            "reads": totals.reads if readable else None,
            "writes": totals.writes if readable else None,
            "processes": len(members),
            "threads": sum(p.threads for p in members),
            "pss_missing": memory.missing,
            "unseen_faults": max(0, faults),
            "processes_seen": self.tree.seen,
            "lost_cpu_ns": self.ledger.lost_cpu_ns,
        }


class OwnerSource:
    """All processes that a predicate accepts (a user's, a Slurm job's), from /proc.

    Parameters
    ----------
    fs : ProcFS
    accepts : callable
        Asked once for each (pid, start time).
    exclude : collection of int, optional
    sharing : Sharing, optional
        Corrections that are known already; no PSS is read for these.
    """

    def __init__(
        self, fs: ProcFS, accepts: Callable[[int], bool], exclude: Collection[int] = (), sharing: Sharing | None = None
    ) -> None:
        self.fs = fs
        self.accepts = accepts
        self.exclude = set(exclude)
        self.sharing = sharing or Sharing(fs)
        self.members: dict[int, Process] = {}
        self.ledger = Ledger()
        self._strangers: dict[int, int] = {}

    def update(self) -> Counters:
        """Take one reading of all of them."""
        listed = set(self.fs.pids()) - self.exclude
        for pid in sorted(listed - self.members.keys()):
            self._consider(pid)
        self._strangers = {pid: start for pid, start in self._strangers.items() if pid in listed}
        gone = [p for p in self.members.values() if not p.read(self.fs, self.members)]
        for process in gone:
            del self.members[process.pid]
        # parents are older than their children
        self.members = dict(sorted(self.members.items(), key=lambda item: (item[1].start, item[0])))
        totals = self.ledger.settle(self.members, gone)
        members = self.members.values()
        used = 0
        missing = 0
        for process in members:
            reading = self.sharing.known(process)
            missing += reading is None
            used += process.rss if reading is None else used_since(process, reading)
        return {
            **totals._asdict(),
            "rss_bytes": sum(p.rss for p in members),
            "pss_bytes": None,
            "memory_bytes": used,
            "swap_bytes": sum(p.swap for p in members),
            "processes": len(members),
            "threads": sum(p.threads for p in members),
            "pss_missing": missing,
            "lost_cpu_ns": self.ledger.lost_cpu_ns,
        }

    def _consider(self, pid: int) -> None:
        stat = self.fs.stat(pid)
        if stat is None or stat.start == self._strangers.get(pid):
            return
        if not self.accepts(pid):
            if not stat.flags & FORKED_ONLY:
                self._strangers[pid] = stat.start
            return
        process = Process(pid)
        if process.read(self.fs):
            self.members[pid] = process


def owned_by(fs: ProcFS, uid: int) -> Callable[[int], bool]:
    """Return a predicate: is the process this user's?"""

    def accepts(pid: int) -> bool:
        try:
            return os.stat(f"{fs.root}/{pid}").st_uid == uid
        except OSError:
            return False

    return accepts
