"""Trees of processes that come and go while one engine of this process samples: the jobs of a scheduler's process."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jumper.monitor.backends import means_native


@dataclass(slots=True)
class Most:
    """The highest values of one tree, in bytes, and its CPU in ns; None while nothing was seen."""

    cpu_ns: int | None = None
    rss: int | None = None
    memory: int | None = None
    pss: int | None = None
    hwm: int | None = None

    def take(self, row: Mapping[str, Any]) -> None:
        """Take the row of one sample, columns as in :data:`jumper.schema.COLUMNS`.

        Examples
        --------
        >>> most = Most()
        >>> most.take({"rss_bytes": 1, "rss_peak_bytes": 3, "hwm_max_bytes": 2, "pss_bytes": None})
        >>> most
        Most(cpu_ns=None, rss=3, memory=None, pss=None, hwm=2)
        """
        self.cpu_ns = _higher(self.cpu_ns, row.get("cpu_ns"))
        self.rss = _higher(self.rss, row.get("rss_bytes"), row.get("rss_peak_bytes"))
        self.memory = _higher(self.memory, row.get("memory_bytes"), row.get("memory_peak_bytes"))
        self.pss = _higher(self.pss, row.get("pss_bytes"))
        self.hwm = _higher(self.hwm, row.get("hwm_max_bytes"))


def _higher(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


class Roots(Protocol):
    """Many trees, sampled by one engine into one segment."""

    def start(self) -> None:
        """Begin to sample."""
        ...

    def add(self, pid: int, tag: str | None = None, parents: Collection[int] = (), soon: bool = False) -> int | None:
        """Watch the tree of a process; return its number, None where there is no room.

        ``tag`` is a ``NAME=value`` in the environment of processes that belong to it too;
        children of ``parents`` belong to it, they themselves do not. ``soon``: its first
        sample need not be taken before this returns.
        """
        ...

    def finish(self, number: int) -> Most:
        """Take a last sample of a tree and watch it no more; return the most that it had."""
        ...

    def tick(self) -> None:
        """Take a sample now."""
        ...

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        ...

    @property
    def cpu_ns(self) -> int:
        """What sampling has cost so far, as of the last sample."""
        ...

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        ...

    def stop(self) -> None:
        """Take the last sample and end; safe to call twice."""
        ...


def roots(
    engine: str,
    interval: float,
    spool: str | os.PathLike[str],
    levels: Collection[str] = (),
    header: Mapping[str, Any] | None = None,
    flush_s: float = 0.0,
) -> Roots:
    """Return an engine for trees that come and go; it writes one segment.

    Parameters
    ----------
    engine : str
        ``native``, ``python``, or ``default``: native where it is built.
    interval : float
        Seconds.
    spool : path
        Folder in which the segment is made.
    levels : collection of str
        What is sampled beside the trees: ``system`` (once a node), ``user``, ``slurm``.
    header : mapping, optional
        More keys for the segment's header.
    flush_s : float
        Write at most so often; 0: at every tick.

    Raises
    ------
    MonitorUnavailableError
        Where the native engine was asked for and is not built.
    """
    if means_native(engine):
        from jumper.monitor.backends.native.roots import NativeRoots

        return NativeRoots(interval, spool, levels, header or {}, flush_s)
    from jumper.monitor.trees import PythonRoots

    return PythonRoots(interval, spool, levels, header or {}, flush_s)
