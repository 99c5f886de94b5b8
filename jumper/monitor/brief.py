"""Short system calls that keep the GIL: beside a busy thread, each one that lets go of it gets it back 5 ms later.

That wait and the switches of threads around it cost more CPU than the calls. None of these blocks for longer than 1 ms.
"""

from __future__ import annotations

import ctypes
import os

_library = ctypes.PyDLL(None)
_O_READ = os.O_RDONLY | os.O_CLOEXEC
_Pair = ctypes.c_int * 2
_READABLE = 1
_PATIENCE_MS = 1


class _Poll(ctypes.Structure):
    """struct pollfd of poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def pipe() -> tuple[int, int]:
    """Return a new pipe's ends, to read and to write, as :func:`os.pipe` does.

    Raises
    ------
    OSError
        Where there are no descriptors left.
    """
    ends = _Pair()
    if _library.pipe2(ends, os.O_CLOEXEC) != 0:
        return os.pipe()  # it says why
    return ends[0], ends[1]


def open_to_read(path: str) -> int | None:
    """Open a file of /proc, or return None where it cannot be.

    Examples
    --------
    >>> open_to_read("/proc/none") is None
    True
    """
    fd: int = _library.open(path.encode(), _O_READ)
    return fd if fd >= 0 else None


def read_at_start(fd: int, size: int) -> bytes | None:
    """Return up to so many bytes from the beginning of a file of /proc, or None where it cannot be read.

    Examples
    --------
    >>> fd = open_to_read("/proc/self/comm")
    >>> read_at_start(fd, 2) == open("/proc/self/comm", "rb").read(2), close(fd)
    (True, None)
    """
    buffer = ctypes.create_string_buffer(size)
    count = _library.pread(fd, buffer, ctypes.c_size_t(size), ctypes.c_long(0))
    return buffer.raw[:count] if count >= 0 else None


def read_soon(fd: int, size: int) -> bytes | None:
    """Return up to so many bytes from a pipe, as they are there within 1 ms; else None.

    Examples
    --------
    >>> ours, theirs = pipe()
    >>> read_soon(ours, 1), os.write(theirs, b"ab"), read_soon(ours, 1)
    (None, 2, b'a')
    >>> close(ours), close(theirs)
    (None, None)
    """
    if _library.poll(ctypes.byref(_Poll(fd, _READABLE, 0)), 1, _PATIENCE_MS) != 1:
        return None
    buffer = ctypes.create_string_buffer(size)
    count = _library.read(fd, buffer, ctypes.c_size_t(size))
    return buffer.raw[:count] if count >= 0 else None


def close(fd: int) -> None:
    """Close a descriptor of a pipe or of a file of /proc."""
    _library.close(fd)


def reap(pid: int) -> bool:
    """Collect a child where it has ended; whether it is collected, by us or by another.

    Examples
    --------
    >>> import subprocess
    >>> child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    >>> reap(child.pid)
    False
    >>> child.communicate() and reap(child.pid)
    True
    """
    return bool(_library.waitpid(pid, None, os.WNOHANG) != 0)
