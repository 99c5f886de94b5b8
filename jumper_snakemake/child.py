"""A process that an attempt started: watched while it runs, read while it is a zombie."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumper_snakemake.readings import read_io

if TYPE_CHECKING:
    from jumper.monitor.roots import Most
    from jumper.monitor.zombie import Ended
    from jumper_snakemake.site import Watch

IO = ("read_chars", "write_chars", "reads", "writes", "read_bytes", "write_bytes")
#: what a wait and the ledger of the samples may differ by through rounding
_ROUNDING_NS = 20_000_000


@dataclass(slots=True)
class Child:
    """What is known of a process and its cost.

    Attributes
    ----------
    pid, start_ns : int
    io_fd : int or None
        Its /proc/PID/io, opened while it lived: a zombie's cannot be, but read.
    floor_bytes : int
        What its high-water mark began at.
    tag : str
        What marks its processes.
    watch : Watch or None
    until_ns : int or None
        When its last sample was taken.
    """

    pid: int
    start_ns: int
    io_fd: int | None
    floor_bytes: int
    tag: str
    watch: Watch | None = None
    until_ns: int | None = None
    ended: Ended | None = None
    most: Most | None = None
    io: dict[str, int] = field(default_factory=dict)
    _leaving: threading.Lock = field(default_factory=threading.Lock)

    def leave(self) -> None:
        """Take its last readings and watch it no more; safe to call twice, from two threads."""
        with self._leaving:
            if self.until_ns is None:
                self.io = read_io(self.io_fd)
                if self.watch is not None:
                    self.most = self.watch.finish()
                self.until_ns = time.monotonic_ns()

    @property
    def told_cpu_ns(self) -> int:
        """CPU that the waiter was told, of all that it waited for."""
        return 0 if self.ended is None else (self.ended.cpu_user_ns or 0) + (self.ended.cpu_system_ns or 0)

    @property
    def cpu_ns(self) -> int:
        """CPU that the waiter was told, or what was seen where that is more: some were never waited for."""
        seen = self.most.cpu_ns if self.most is not None and self.most.cpu_ns is not None else 0
        return seen if seen > self.told_cpu_ns + _ROUNDING_NS else self.told_cpu_ns

    @property
    def told_peak(self) -> int | None:
        """High-water mark of its largest process in bytes, where the waiter was told one of its own."""
        told = self.ended.maxrss_bytes if self.ended is not None else None
        return told if told is not None and told > self.floor_bytes else None
