"""What the kernel counts for this process and its threads: CPU, I/O, resident memory, by kept descriptors.

``counters`` reads them at a task's boundaries: compiled where that was built, else in Python, with the same results.
Where there is no /proc, I/O and memory are None.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any, NamedTuple

import msgspec

from jumper_dask import counters as _python

try:
    from jumper_dask import _boundary
except ImportError:
    counters: Any = _python
else:
    counters = _boundary

#: Reading the mark of a process that once forked from a larger one, instead of what that one had, in bytes.
SLACK_BYTES = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Reading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Cumulative counters of whoever ran a task: CPU in ns, the rest in bytes; None where it is not known."""

    cpu_ns: int
    read_bytes: int | None = None
    write_bytes: int | None = None
    read_chars: int | None = None
    write_chars: int | None = None


class Io(NamedTuple):
    """I/O counters in bytes, as `/proc/PID/io` has them (proc(5))."""

    read_bytes: int
    write_bytes: int
    read_chars: int
    write_chars: int


class ThreadsIo:
    """The I/O of all threads of this process, each by a kept descriptor of `/proc/self/task/TID/io`."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    @staticmethod
    def alive() -> list[int]:
        """Return the thread ids of this process."""
        try:
            return [int(name) for name in os.listdir("/proc/self/task")]
        except OSError:
            return []

    def io(self, tid: int) -> tuple[Io, int] | None:
        """Return the I/O of a thread, and how many bytes were read to learn it; None where it is gone."""
        descriptor = self._descriptors.get(tid)
        try:
            if descriptor is None:
                descriptor = self._descriptors[tid] = os.open(f"/proc/self/task/{tid}/io", os.O_RDONLY | os.O_CLOEXEC)
            text = os.pread(descriptor, 512, 0)
            return parse_io(text), len(text)
        except (OSError, IndexError, ValueError):
            self.forget(tid)
            return None

    def forget(self, tid: int) -> None:
        """Drop what is kept for a thread that is gone."""
        if (descriptor := self._descriptors.pop(tid, None)) is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def close(self) -> None:
        """Close the descriptors."""
        for tid in list(self._descriptors):
            self.forget(tid)


def parse_io(text: bytes) -> Io:
    """Return the counters in a `/proc/PID/io`.

    Examples
    --------
    >>> parse_io(b"rchar: 1\\nwchar: 2\\nsyscr: 3\\nsyscw: 4\\nread_bytes: 5\\nwrite_bytes: 6\\n")
    Io(read_bytes=5, write_bytes=6, read_chars=1, write_chars=2)
    """
    return Io(*_python.parse(text))


class Memory:
    """Resident memory of this process, and its high-water mark between two looks.

    Parameters
    ----------
    reset : bool
        Whether the mark may be reset; without it there is no peak.

    Attributes
    ----------
    clear, statm : int
        Descriptor by which the mark is reset, or the resident memory is read, where that is all that a look takes;
        else negative.

    Source: proc(5): writing 5 to `clear_refs` resets the mark; getrusage(2): `ru_maxrss` is the higher of it and of
    what the process that started this one once had. Right after a reset, the mark is what is resident now; where that
    is below the inherited one, `VmHWM` and `statm` are read instead.
    """

    def __init__(self, reset: bool) -> None:
        self._statm = open_or_none("/proc/self/statm", os.O_RDONLY)
        self._status = open_or_none("/proc/self/status", os.O_RDONLY) if reset else None
        self._clear = open_or_none("/proc/self/clear_refs", os.O_WRONLY) if reset else None
        self._inherited = 0
        if self._clear is not None and counters.peak(self._clear) is not None:
            mark = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if mark > (self._hwm() or 0) + SLACK_BYTES:
                self._inherited = mark
        self._choose()

    def _choose(self) -> None:
        self.clear = -1 if self._clear is None or self._inherited else self._clear
        self.statm = -1 if self._clear is not None or self._statm is None else self._statm

    def look(self) -> tuple[int | None, int | None, bool]:
        """Return (peak since the last look, resident now, whether a file was read for it); bytes, None: not known."""
        if self._clear is None:
            return None, self.rss(), True
        if self._inherited and (hwm := self._hwm()) is not None and hwm <= self._inherited:
            counters.peak(self._clear)
            return hwm, self.rss(), True
        found = counters.peak(self._clear)
        if found is None:
            os.close(self._clear)
            self._clear = None
            self._choose()
            return None, self.rss(), True
        if found[1] <= self._inherited:
            return found[0], self.rss(), True
        return found[0], found[1], False

    def rss(self) -> int | None:
        """Return the resident memory in bytes."""
        if self._statm is None:
            return None
        return int(os.pread(self._statm, 128, 0).split()[1]) * _PAGE

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
        self._choose()


def open_or_none(path: str, flags: int) -> int | None:
    """Return a descriptor that no child inherits, or None where the file cannot be opened."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None
