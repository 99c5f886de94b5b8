"""Who belongs to a target: its descendants, also those that fork while we look or lose their parent.

A process seen once stays watched by (pid, start time) when it is reparented; one
that lost its parent first is known by its session, where a member made that. A
cheap look at the last pid tells whether anything forked at all; it is probed at
the start, and a full scan happens every ten seconds regardless, because
containers hide or fake the cheap source.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Collection

from jumper.monitor.metrics.process.ledger import OwnProcess, Process
from jumper.monitor.metrics.process.procfs import FORKED_ONLY, ProcFS, Stat

FULL_SCAN_S = 10.0
#: more new pids than this in one look, and one scan of /proc is cheaper
SPAN = 2000
#: a pid is counted before /proc/PID exists: absent ones are looked at again so many times
RETRIES = 3
#: so often where a tag is looked for and a process has forked, but not exec'ed: its environment is not its own
RETRIES_FORKED = 250
#: so many sessions are remembered whose makers are gone
SESSIONS = 64


def last_pid_is_ours(fs: ProcFS) -> bool:
    """Return whether /proc/loadavg's last pid moves when this process starts a thread."""
    before = fs.last_pid()
    if before is None or fs.root != "/proc":
        return False
    probe = threading.Thread(target=time.sleep, args=(0,), name="jumper-probe")
    probe.start()
    probe.join()
    after = fs.last_pid()
    return after is not None and after != before and fs.read(f"{os.getpid()}/stat", 64) is not None


class Tree:
    """The processes of one target.

    Parameters
    ----------
    fs : ProcFS
    root : int
        Process id of the target; 0: none but who has the tag.
    parents : collection of int, optional
        Pids whose children belong to the target though they themselves do not (a launcher
        that adopts orphans).
    exclude : collection of int, optional
        Pids that are never members (the monitor's own processes), with their children.
    tag : str, optional
        ``NAME=value`` in the environment that marks processes of a job that we started.

    Attributes
    ----------
    members : dict of int to Process
        Parents before their children.
    seen : int
        How many processes were members at any time.
    """

    def __init__(
        self,
        fs: ProcFS,
        root: int,
        parents: Collection[int] = (),
        exclude: Collection[int] = (),
        tag: str | None = None,
    ) -> None:
        self.fs = fs
        self.root = root
        self.parents = set(parents)
        self.exclude = set(exclude)
        self.tag = tag.encode() if tag else None
        self.members: dict[int, Process] = {}
        self.seen = 0
        self._cheap = last_pid_is_ours(fs)
        self._last: int | None = None
        self._absent: dict[int, int] = {}
        self._next_scan = 0.0
        self._strangers: set[int] = set()
        self._made: deque[int] = deque(maxlen=SESSIONS)
        self._admit(root)

    @property
    def polls(self) -> bool:
        """Whether :meth:`look` is cheap enough to be called between ticks."""
        return self._cheap

    def look(self) -> list[Process]:
        """Return members found since the last look, read once; they are in ``members`` now."""
        now = time.monotonic()
        last = self.fs.last_pid() if self._cheap else None
        before, self._last = self._last, last
        if last is None or before is None or now >= self._next_scan or not 0 <= last - before <= SPAN:
            return self._scan(now)
        if last == before and not self._absent:
            return []
        candidates = sorted({*self._absent, *range(before + 1, last + 1)})
        return self._admit_all(candidates)

    def read(self) -> list[Process]:
        """Read every member, parents first; return and forget those that are gone."""
        gone = [process for process in self.members.values() if not process.read(self.fs, self.members)]
        for process in gone:
            del self.members[process.pid]
            if process.session == process.pid != self.root:
                self._made.append(process.pid)
        return gone

    def _belongs(self, stat: Stat) -> bool:
        return stat.ppid in self.members or stat.ppid in self.parents or self._made_session(stat.session)

    def _made_session(self, session: int) -> bool:
        """Return whether a member other than the root made this session: who is in it descends from that member."""
        if session == self.root:
            return False
        # a session keeps its number from being given out: who has it now is its maker, or it is over
        return session in self.members or (session in self._made and self.fs.stat(session) is None)

    def _admit(self, pid: int) -> Process | None:
        if pid in self.exclude:
            return None
        process = OwnProcess(pid) if pid == os.getpid() else Process(pid)
        if not process.read(self.fs, self.members):
            return None
        self.members[pid] = process
        self.seen += 1
        return process

    def _admit_all(self, pids: list[int]) -> list[Process]:
        found: list[Process] = []
        again: dict[int, int] = {}
        forked: dict[int, int] = {}
        for pid in pids:
            if pid in self.members or pid in self.exclude or pid in self.parents:
                continue
            stat = self.fs.stat(pid)
            if stat is None:
                tries = self._absent.get(pid, 0) + 1
                if tries <= RETRIES:
                    again[pid] = tries
                continue
            if stat.ppid in again:  # its parent is not visible yet
                again[pid] = self._absent.get(pid, 0) + 1
            ours = self._belongs(stat) or (self.tag is not None and self.fs.tagged(pid, self.tag))
            if not ours and not self.root and stat.flags & FORKED_ONLY:
                forked[pid] = self._absent.get(pid, 0) + 1
            if not ours or not self._is_process(pid):
                continue
            if (process := self._admit(pid)) is not None:
                found.append(process)
        again = {pid: tries for pid, tries in again.items() if tries <= RETRIES}
        self._absent = again | {pid: tries for pid, tries in forked.items() if tries <= RETRIES_FORKED}
        return found

    def _is_process(self, pid: int) -> bool:
        status = self.fs.status(pid)  # /proc/TID answers for threads too
        return status is not None and status.tgid == pid

    def _scan(self, now: float) -> list[Process]:
        self._next_scan = now + FULL_SCAN_S
        others: dict[int, Stat] = {}
        forked: set[int] = set()
        for pid in self.fs.pids():
            if pid in self.members or pid in self.exclude or pid in self.parents:
                continue
            if (stat := self.fs.stat(pid)) is not None:
                others[pid] = stat
                if stat.flags & FORKED_ONLY:
                    forked.add(pid)
        found: list[Process] = []
        grown = True
        while grown:
            grown = False
            for pid, stat in list(others.items()):
                if self._belongs(stat) or self._is_tagged(pid):
                    del others[pid]
                    if (process := self._admit(pid)) is not None:
                        found.append(process)
                        grown = True
        self._strangers &= others.keys() - forked
        return found

    def _is_tagged(self, pid: int) -> bool:
        if self.tag is None or pid in self._strangers:
            return False
        self._strangers.add(pid)
        return self.fs.tagged(pid, self.tag)
