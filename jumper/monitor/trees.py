"""Trees of processes that come and go, sampled by the engine in Python."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any

from jumper.monitor.beside import Beside
from jumper.monitor.metrics.process.source import Counters, Source, TreeSource
from jumper.monitor.roots import Most
from jumper.monitor.sampling import PythonSampling
from jumper.monitor.segment import SegmentWriter


class PythonRoots:
    """The python engine for many trees; parameters as of :func:`jumper.monitor.roots.roots`."""

    def __init__(
        self,
        interval: float,
        spool: str | os.PathLike[str],
        levels: Collection[str],
        header: Mapping[str, Any],
        flush_s: float,
    ) -> None:
        self._sampling = PythonSampling(
            os.getpid(), interval, tuple(levels), spool=spool, header=header, node_lock=True, flush_s=flush_s
        )
        assert self._sampling.writer is not None
        beside = Beside(self._sampling.writer.text) if Beside.wanted() else None
        self._trees = _Trees(self._sampling.writer, interval, self._own_cpu_ns, beside)

    def start(self) -> None:
        """Begin to sample."""
        self._sampling.start()
        assert self._sampling.sampler.process is not None
        self._sampling.sampler.process.target = self._trees

    def add(self, pid: int, tag: str | None = None, parents: Collection[int] = (), soon: bool = False) -> int | None:
        """Watch the tree of a process; return its number."""
        return self._trees.add(pid, tag, parents)

    def finish(self, number: int) -> Most:
        """Take a last sample of a tree and watch it no more; return the most that it had."""
        self._sampling.tick()
        return self._trees.remove(number)

    def tick(self) -> None:
        """Take a sample now."""
        self._sampling.tick()

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        self._sampling.text(record)

    @property
    def cpu_ns(self) -> int:
        """What sampling has cost so far."""
        return self._own_cpu_ns()

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        return self._sampling.dropped

    def stop(self) -> None:
        """Take the last sample and end; safe to call twice."""
        self._sampling.stop()

    def _own_cpu_ns(self) -> int:
        return self._sampling.sampler.cpu_ns


class _Trees:
    """What the sampler takes for its one target: all trees, each of which gets a row of its own."""

    alive = True

    def __init__(self, writer: SegmentWriter, interval: float, own_cpu_ns: Any, beside: Beside | None) -> None:
        self._writer = writer
        self._interval = interval
        self._own_cpu_ns = own_cpu_ns
        self._beside = beside
        self._trees: dict[int, tuple[Source, Most]] = {}
        self._next = 0

    def add(self, pid: int, tag: str | None, parents: Collection[int]) -> int:
        own = self._own_cpu_ns if pid == os.getpid() else None
        source: Source
        if os.path.exists("/proc/self/stat"):
            source = TreeSource(pid, longest_s=self._interval, parents=parents, tag=tag, own_cpu_ns=own)
        else:
            from jumper.monitor.metrics.process.psutil import PsutilSource

            source = PsutilSource(pid)
        number, self._next = self._next, self._next + 1
        self._trees = {**self._trees, number: (source, Most())}  # another thread walks over the old one
        return number

    def remove(self, number: int) -> Most:
        self._trees, (source, most) = {n: t for n, t in self._trees.items() if n != number}, self._trees[number]
        source.close()
        return most

    def update(self) -> Counters:
        tick_ns = time.monotonic_ns()
        for number, (source, most) in self._trees.items():
            row = {"mono_ns": time.monotonic_ns(), **source.update()}
            most.take(row)
            if self._beside is not None:
                row.update(self._beside.row(f"tree{number}", source.pids, row, tick_ns))
            self._writer.row("process", row)
        return {}

    def poll(self) -> float | None:
        return min((pause for s, _ in self._trees.values() if (pause := s.poll()) is not None), default=None)

    def close(self) -> None:
        for source, _ in self._trees.values():
            source.close()
        if self._beside is not None:
            self._beside.close()

    @property
    def pids(self) -> set[int]:
        return set().union(*(source.pids for source, _ in self._trees.values()))
