"""The counters at a task's boundary in Python: what ``_boundary`` has compiled, for where that is not built."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

__all__ = ["Io", "Look", "Moment", "children", "clocks", "look", "note", "parse", "peak", "start", "stop"]

#: I/O of a thread: read bytes, write bytes, read chars, write chars, and the last two as they are once all of a
#: boundary has been read; None where it is not known
Io = tuple[int, int, int, int, int, int] | None
#: monotonic ns, CPU ns of the calling thread, its I/O
Moment = tuple[int, int, Io]
#: high-water mark of the memory, resident memory
Look = tuple[int | None, int] | None

_PAGE = os.sysconf("SC_PAGE_SIZE")


def parse(text: bytes) -> tuple[int, int, int, int]:
    """Return read bytes, write bytes, read chars and write chars of a `/proc/PID/io` (proc(5)).

    Raises
    ------
    IndexError, ValueError
        Where it is none.
    """
    words = text.split()
    return int(words[9]), int(words[11]), int(words[1]), int(words[3])


def _io(descriptor: int) -> tuple[tuple[int, int, int, int], int] | None:
    if descriptor < 0:
        return None
    try:
        text = os.pread(descriptor, 512, 0)
        return parse(text), len(text)
    except (OSError, IndexError, ValueError):
        return None


def start(descriptor: int) -> Moment:
    """Return the calling thread's I/O, then the time, then its CPU: no CPU of the reading is the task's."""
    found = _io(descriptor)
    mono_ns = time.monotonic_ns()
    cpu_ns = time.thread_time_ns()
    if found is None:
        return mono_ns, cpu_ns, None
    io, looked = found
    return mono_ns, cpu_ns, (*io, io[2] + looked, io[3])


def stop(descriptor: int, clear: int, statm: int) -> tuple[int, int, Io, Look, tuple[int, int]]:
    """Return the time and the calling thread's CPU, then its I/O, then memory and what :func:`children` returns.

    Parameters
    ----------
    descriptor : int
        Of the thread's own `io`; negative: none.
    clear, statm : int
        Memory is what :func:`peak` returns; where ``clear`` is negative, it is the resident memory, without a peak,
        from the descriptor of `/proc/self/statm`, and None where that is negative, too.
    """
    cpu_ns = time.thread_time_ns()
    mono_ns = time.monotonic_ns()
    found = _io(descriptor)
    memory, reaped, read, written = look(clear, statm)
    if found is None:
        return mono_ns, cpu_ns, None, memory, reaped
    io, looked = found
    return mono_ns, cpu_ns, (*io, io[2] + looked + read, io[3] + written), memory, reaped


def look(clear: int, statm: int) -> tuple[Look, tuple[int, int], int, int]:
    """Return memory as :func:`stop`, what :func:`children` returns, and how many chars were read and written for it."""
    memory, read = (peak(clear), 0) if clear >= 0 else _resident(statm)
    return memory, children(), read, int(clear >= 0)


def peak(clear: int) -> Look:
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


def _resident(statm: int) -> tuple[Look, int]:
    if statm < 0:
        return None, 0
    try:
        text = os.pread(statm, 128, 0)
        return (None, int(text.split()[1]) * _PAGE), len(text)
    except (OSError, IndexError, ValueError):
        return None, 0


def children() -> tuple[int, int]:
    """Return the user and system CPU of the reaped children in ns."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(usage.ru_utime * 1e6) * 1000, round(usage.ru_stime * 1e6) * 1000


def clocks(tids: list[int]) -> tuple[list[int], int]:
    """Return the CPU of threads of this process, negative where one is gone, then that of the process, in ns.

    Source: the kernel's clock of a thread, ``(~tid << 3) | CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED``
    (clock_getcpuclockid(3), include/linux/posix-timers.h); unlike schedstat it is right while the thread runs.
    """
    return [_clock(tid) for tid in tids], time.process_time_ns()


def _clock(tid: int) -> int:
    try:
        return time.clock_gettime_ns((~tid << 3) | 6)
    except OSError:
        return -1


def note(place: Any, at: int, size: int, *words: str) -> bool:
    """Write the time and words into a place, each ended by a zero byte; return whether there was room for all.

    Parameters
    ----------
    place : buffer
        Where ``size`` bytes at ``at`` are free. First come the monotonic and the wall time in ns.
    words : str

    Raises
    ------
    UnicodeError
        Where a word has no UTF-8: a lone surrogate.
    """
    text = "\0".join((str(time.monotonic_ns()), str(time.time_ns()), *words, "")).encode()
    if len(text) > size:
        return False
    place[at : at + len(text)] = text
    return True
