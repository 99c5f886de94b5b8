"""The `process` collector: fills the context's counters of the levels process, user and slurm."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.process.procfs import ProcFS
from jumper.monitor.metrics.process.source import Counters, OwnerSource, Source, TreeSource, owned_by


class ProcessCollector(CollectorBackend):
    """Counters of processes; see docs/numbers.md for what each one means.

    Parameters
    ----------
    pid : int
        The target of the level `process`.
    process : object
        A handle of it, as the documents inject it; not used.
    uid : int
        Whose processes the level `user` has.
    slurm_job : str or int or None
        Job of the level `slurm`.
    """

    name = "process"

    def __init__(self, pid: int, process: object, uid: int, slurm_job: str | int | None) -> None:
        self.pid = pid
        self.uid = uid
        self.slurm_job = slurm_job
        self._levels: tuple[str, ...] = ("process",)
        self._options: dict[str, Any] = {}
        self._exclude: set[int] = set()
        self.target: Source | None = None
        self._owners: dict[str, OwnerSource] = {}

    def watch(
        self,
        levels: Collection[str],
        *,
        longest_s: float = 1.0,
        own_cpu_ns: Callable[[], int] | None = None,
        parents: Collection[int] = (),
        exclude: Collection[int] = (),
        tag: str | None = None,
    ) -> None:
        """Say what is watched, before :meth:`setup`; only these levels are paid for."""
        self._levels = tuple(levels)
        self._options = {"longest_s": longest_s, "own_cpu_ns": own_cpu_ns, "parents": parents, "tag": tag}
        self._exclude = {*exclude}

    def setup(self) -> dict[str, Any] | None:
        """Open the sources of the levels that are watched."""
        if os.getpid() != self.pid:
            self._exclude.add(os.getpid())
        self.switch(self._levels)
        return None

    def switch(self, levels: Collection[str]) -> None:
        """Watch these levels from now on; a level that comes back begins its counters anew."""
        self._levels = tuple(levels)
        if "process" not in levels and self.target is not None:
            self.target.close()
            self.target = None
        elif "process" in levels and self.target is None:
            self.target = self._tree()
        self._owners = {level: source for level, source in self._owners.items() if level in levels}
        if not os.path.exists("/proc/self/stat"):
            return
        fs = ProcFS()
        mine = owned_by(fs, self.uid)
        if "user" in levels and "user" not in self._owners:
            self._owners["user"] = OwnerSource(fs, mine, self._exclude)
        if "slurm" in levels and "slurm" not in self._owners and self.slurm_job is not None:
            tag = f"SLURM_JOB_ID={self.slurm_job}".encode()
            self._owners["slurm"] = OwnerSource(fs, lambda pid: mine(pid) and fs.tagged(pid, tag), self._exclude)

    def _tree(self) -> Source:
        if not os.path.exists("/proc/self/stat"):
            from jumper.monitor.metrics.process.psutil import PsutilSource

            return PsutilSource(self.pid, exclude=self._exclude)
        return TreeSource(self.pid, ProcFS(), exclude=self._exclude, **self._options)

    def exclude(self, pids: Collection[int]) -> None:
        """Let these processes, and what they start, into no level from now on."""
        self._exclude.update(pids)
        for holder in (getattr(self.target, "tree", None), *self._owners.values()):
            if holder is not None:
                holder.exclude.update(pids)

    def snapshot(self, context: CollectionContext) -> None:
        """Read every watched process once."""
        if self.target is not None:
            context["counters"]["process"] = self.target.update()
            context["process_pids"] = self.target.pids
        for level, source in self._owners.items():
            context["counters"][level] = source.update()
            context["user_pids" if level == "user" else "slurm_pids"] = set(source.members)
        self._publish(context)

    def collect(self, level: str, context: CollectionContext) -> Counters:
        """Return the counters of a level; empty where it is not watched."""
        return context["counters"].get(level, {}) if level != "system" else {}

    def poll(self) -> float | None:
        """Look between ticks; return seconds until the next look, or None."""
        return self.target.poll() if self.target is not None else None

    def keep_io(self, fd: int) -> None:
        """Take over the target's open I/O file, so that its last value is read from the zombie."""
        if isinstance(self.target, TreeSource):
            self.target.keep_io(fd)
        else:
            os.close(fd)

    def close(self) -> None:
        """Close the sources."""
        if self.target is not None:
            self.target.close()

    def _publish(self, context: CollectionContext) -> None:
        """Fill the documents' per-process keys for user collectors."""
        members = dict(getattr(getattr(self.target, "tree", None), "members", {}))
        for source in self._owners.values():
            members.update(source.members)
        for pid, process in members.items():
            context["cpu"][pid] = (process.own[0] + process.dead[0]) / 1e9
            context["rss"][pid] = process.rss
            context["io"][pid] = tuple(process.own[3:])
