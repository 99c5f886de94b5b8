"""What a process says of itself at one moment: its counters, and its memory."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

from jumper.monitor import brief


@dataclass(slots=True)
class Readings:
    """Counters of this process and thread at one moment: ns and bytes.

    Attributes
    ----------
    process_ns, thread_ns, reaped_ns : int
        CPU of this process, of this thread, and of the children that were waited for.
    sampler_ns : int
        What sampling has cost of that of the process.
    io, thread_io : dict
        Of /proc/PID/io.
    rss, hwm : int
    """

    process_ns: int
    thread_ns: int
    reaped_ns: int
    sampler_ns: int
    io: dict[str, int]
    thread_io: dict[str, int]
    rss: int
    hwm: int

    @classmethod
    def take(cls, sampler_ns: int) -> Readings:
        """Read them all."""
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        rss, hwm = own_memory()
        return cls(
            time.process_time_ns(),
            time.thread_time_ns(),
            round((reaped.ru_utime + reaped.ru_stime) * 1e9),
            sampler_ns,
            read_io(open_io("self")),
            read_io(open_io("thread-self")),
            rss,
            hwm,
        )


def own_memory() -> tuple[int, int]:
    """Return RSS and high-water mark of this process, in bytes; RSS is 0 where there is no /proc."""
    from jumper.monitor.metrics.process.procfs import ProcFS

    status = ProcFS().status(os.getpid())
    if status is None:
        return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return status.rss, status.hwm


def open_io(pid: int | str) -> int | None:
    """Open /proc/PID/io, or return None where it cannot be."""
    return brief.open_to_read(f"/proc/{pid}/io")


def read_io(fd: int | None) -> dict[str, int]:
    """Return the counters of an open /proc/PID/io, which is closed; see proc_pid_io(5).

    Examples
    --------
    >>> sorted(read_io(open_io("self")))
    ['read_bytes', 'read_chars', 'reads', 'write_bytes', 'write_chars', 'writes']
    """
    if fd is None:
        return {}
    found = brief.read_io(fd)
    brief.close(fd)
    return found
