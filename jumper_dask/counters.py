"""The counters at a task's boundary in Python: what ``_boundary`` has compiled, for where that is not built."""

from __future__ import annotations

import os
import resource
import time

__all__ = ["Io", "Moment", "children", "parse", "peak", "start", "stop"]

#: I/O of a thread: read bytes, write bytes, read chars, write chars, and how many bytes were read to learn that;
#: None where it is not known
Io = tuple[int, int, int, int, int] | None
#: monotonic ns, CPU ns of the calling thread, its I/O
Moment = tuple[int, int, Io]


def parse(text: bytes) -> tuple[int, int, int, int]:
    """Return read bytes, write bytes, read chars and write chars of a `/proc/PID/io` (proc(5)).

    Raises
    ------
    IndexError, ValueError
        Where it is none.
    """
    words = text.split()
    return int(words[9]), int(words[11]), int(words[1]), int(words[3])


def _io(descriptor: int) -> Io:
    if descriptor < 0:
        return None
    try:
        text = os.pread(descriptor, 512, 0)
        return (*parse(text), len(text))
    except (OSError, IndexError, ValueError):
        return None


def start(descriptor: int) -> Moment:
    """Return the calling thread's I/O, then the time, then its CPU: no CPU of the reading is the task's."""
    io = _io(descriptor)
    mono_ns = time.monotonic_ns()
    return mono_ns, time.thread_time_ns(), io


def stop(descriptor: int, clear: int) -> tuple[int, int, Io, tuple[int, int] | None, tuple[int, int]]:
    """Return the time and the calling thread's CPU, then its I/O, what :func:`peak` and :func:`children` return."""
    cpu_ns = time.thread_time_ns()
    mono_ns = time.monotonic_ns()
    io = _io(descriptor)
    return mono_ns, cpu_ns, io, peak(clear), children()


def peak(clear: int) -> tuple[int, int] | None:
    """Return the high-water mark since the last call and the resident memory now; None where it cannot be reset.

    Parameters
    ----------
    clear : int
        Descriptor of `/proc/self/clear_refs`; negative: none.
    """
    if clear < 0:
        return None
    highest = resource.getrusage(resource.RUSAGE_THREAD).ru_maxrss
    try:
        os.write(clear, b"5")
    except OSError:
        return None
    return highest * 1024, resource.getrusage(resource.RUSAGE_THREAD).ru_maxrss * 1024


def children() -> tuple[int, int]:
    """Return the user and system CPU of the reaped children in ns."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(usage.ru_utime * 1e6) * 1000, round(usage.ru_stime * 1e6) * 1000
