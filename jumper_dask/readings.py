"""What the kernel counted for this process and its threads: CPU, I/O, resident memory, by kept descriptors.

Each reading is a few system calls on descriptors that stay open; where there is no /proc, it is None.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from typing import NamedTuple

import msgspec

from jumper_dask._compat import native_id

#: CPU that a thread may use between two tasks without working, in ns.
WAITING_NS = 200_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LINUX = sys.platform.startswith("linux")


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Cumulative counters of a thread: CPU in ns, the rest in bytes."""

    cpu_ns: int
    read_bytes: int = 0
    write_bytes: int = 0
    read_chars: int = 0
    write_chars: int = 0


class Io(NamedTuple):
    """I/O counters in bytes, as `/proc/PID/io` has them (proc(5))."""

    read_bytes: int
    write_bytes: int
    read_chars: int
    write_chars: int


def parse_io(text: bytes) -> Io:
    """Return the counters in a `/proc/PID/io`.

    Examples
    --------
    >>> parse_io(b"rchar: 1\\nwchar: 2\\nsyscr: 3\\nsyscw: 4\\nread_bytes: 5\\nwrite_bytes: 6\\n")
    Io(read_bytes=5, write_bytes=6, read_chars=1, write_chars=2)
    """
    words = text.split()
    return Io._make((int(words[9]), int(words[11]), int(words[1]), int(words[3])))


def thread_cpu_ns(tid: int) -> int:
    """Return the CPU time of a thread of this process in ns.

    Source: the kernel's clock of a thread, ``(~tid << 3) | CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED``
    (clock_getcpuclockid(3), include/linux/posix-timers.h); unlike schedstat it is right while the thread runs.
    """
    return time.clock_gettime_ns((~tid << 3) | 6)


class Threads:
    """The counters of the threads of this process, each by a kept descriptor of `/proc/self/task/TID/io`.

    A thread that was there before has what it had then as its first baseline; one that came later starts at zero.
    """

    def __init__(self) -> None:
        self._io: dict[int, int] = {}
        self._texts: dict[int, tuple[bytes, Io]] = {}
        self._tids: dict[int, int] = {}
        self._last: dict[int, Reading] = {}
        self._has_io = os.access("/proc/self/io", os.R_OK)
        for tid in self.alive():
            if (reading := self.read(tid)) is not None:
                self._last[tid] = reading

    @staticmethod
    def alive() -> list[int]:
        """Return the thread ids of this process."""
        try:
            return [int(name) for name in os.listdir("/proc/self/task")]
        except OSError:
            return []

    def tid(self, ident: int) -> int | None:
        """Return the kernel's id of a living thread that Python knows as ``ident``."""
        known = self._tids.get(ident)
        if known is None or self.read(known) is None:
            known = native_id(ident) if _LINUX else None
            if known is not None:
                self._tids[ident] = known
        return known

    def io(self, tid: int) -> tuple[Io, int] | None:
        """Return the I/O of a thread, and how many bytes were read to learn it; None where it is gone."""
        descriptor = self._io.get(tid)
        try:
            if descriptor is None:
                descriptor = self._io[tid] = os.open(f"/proc/self/task/{tid}/io", os.O_RDONLY | os.O_CLOEXEC)
            text = os.pread(descriptor, 512, 0)
            before = self._texts.get(tid)
            if before is not None and before[0] == text:
                return before[1], len(text)
            self._texts[tid] = text, (io := parse_io(text))
            return io, len(text)
        except (OSError, IndexError, ValueError):
            self.forget(tid)
            return None

    def read(self, tid: int) -> Reading | None:
        """Return the counters of a thread, or None where it is gone."""
        io = self.io(tid)
        if io is None and self._has_io:
            return None
        try:
            return Reading(thread_cpu_ns(tid), *(io[0] if io else ()))
        except OSError:
            return None

    def step(self, ident: int) -> tuple[int, Reading, Reading] | None:
        """Return (tid, last reading, reading now) of a thread; the next step begins at this one."""
        tid = self._tids.get(ident)
        end = self.read(tid) if tid is not None else None
        if end is None:
            tid = self.tid(ident)
            end = self.read(tid) if tid is not None else None
        if tid is None or end is None:
            return None
        base = self.base(tid)
        self._last[tid] = end
        return tid, base, end

    def base(self, tid: int) -> Reading:
        """Return the reading that the next step begins at."""
        return self._last.get(tid) or Reading(0)

    def worked(self, ident: int) -> bool:
        """Return whether a thread used more CPU since its last reading than it takes to wait for work."""
        tid = self.tid(ident)
        try:
            return tid is not None and thread_cpu_ns(tid) - self.base(tid).cpu_ns > WAITING_NS
        except OSError:
            return False

    def forget(self, tid: int) -> None:
        """Drop what is kept for a thread that is gone."""
        self._last.pop(tid, None)
        self._texts.pop(tid, None)
        if (descriptor := self._io.pop(tid, None)) is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def close(self) -> None:
        """Close the descriptors."""
        for tid in list(self._io):
            self.forget(tid)


class Memory:
    """Resident memory of this process, and its high-water mark between two looks.

    Parameters
    ----------
    reset : bool
        Whether the mark may be reset; without it there is no peak.

    Source: proc(5): writing 5 to `clear_refs` resets the mark; getrusage(2): `ru_maxrss` is the higher of it and of
    what the process that started this one once had, which is why `VmHWM` is read where that is above our own.
    """

    def __init__(self, reset: bool) -> None:
        self._statm = _open("/proc/self/statm", os.O_RDONLY)
        self._status = _open("/proc/self/status", os.O_RDONLY) if reset else None
        self._clear = _open("/proc/self/clear_refs", os.O_WRONLY) if reset else None
        self._inherited = 0
        if self._clear is not None and self.peak() is not None:
            mark = _maxrss()
            if mark > (self._hwm() or 0) + (1 << 20):
                self._inherited = mark

    def rss(self) -> int | None:
        """Return the resident memory in bytes."""
        if self._statm is None:
            return None
        return int(os.pread(self._statm, 128, 0).split()[1]) * _PAGE

    def peak(self) -> int | None:
        """Return the highest resident memory in bytes since the last call, and begin anew; None where it is off."""
        if self._clear is None:
            return None
        mark: int | None = _maxrss()
        if mark is not None and mark <= self._inherited:
            mark = self._hwm()
        try:
            os.write(self._clear, b"5")
        except OSError:
            os.close(self._clear)
            self._clear = None
            return None
        return mark

    def _hwm(self) -> int | None:
        if self._status is None:
            return None
        text = os.pread(self._status, 4096, 0)
        start = text.find(b"VmHWM:")
        return int(text[start + 6 :].split(None, 1)[0]) * 1024 if start >= 0 else None

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._statm, self._status, self._clear):
            if descriptor is not None:
                os.close(descriptor)
        self._statm = self._status = self._clear = None


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None


def _maxrss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
