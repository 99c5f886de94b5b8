"""The system calls around a child of ours in Python: what ``_brief`` has compiled, for where that is not built."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import sys
import time
from functools import cache
from typing import Any, TypeAlias

#: status, CPU in user and in system mode in ns, largest process in bytes, when
End: TypeAlias = tuple[int, int | None, int | None, int | None, int]

#: number of the system call by machine; the C library's wrapper has no rusage
_WAITID = {"x86_64": 247, "aarch64": 95, "riscv64": 95, "ppc64le": 272, "s390x": 281}
_P_PID = 1
_CLD_EXITED = 1
_SIGINFO_BYTES = 128
_PATIENCE_MS = 1
#: a siginfo_t
_Info = ctypes.c_int * (_SIGINFO_BYTES // 4)


class _Rusage(ctypes.Structure):
    """struct rusage of getrusage(2); two timevals and fourteen longs."""

    _fields_ = (
        ("utime_s", ctypes.c_long), ("utime_us", ctypes.c_long), ("stime_s", ctypes.c_long),
        ("stime_us", ctypes.c_long), ("maxrss_kib", ctypes.c_long), ("rest", ctypes.c_long * 13),
    )  # fmt: skip


def pipe() -> tuple[int, int]:
    """Return a new pipe's ends, to read and to write.

    Raises
    ------
    OSError
        Where there are no descriptors left.
    """
    return os.pipe()


def open_to_read(path: str) -> int | None:
    """Open a file of /proc, or return None where it cannot be.

    Examples
    --------
    >>> open_to_read("/proc/none") is None
    True
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def read_io(fd: int) -> dict[str, int]:
    """Return the counters of an open /proc/PID/io; empty where it cannot be read. See proc_pid_io(5).

    Examples
    --------
    >>> fd = open_to_read("/proc/self/io")
    >>> sorted(read_io(fd)), close(fd)
    (['read_bytes', 'read_chars', 'reads', 'write_bytes', 'write_chars', 'writes'], None)
    """
    from jumper.monitor.metrics.process.procfs import parse_io

    try:
        return parse_io(os.pread(fd, 512, 0))._asdict()
    except (OSError, ValueError):
        return {}


def read_soon(fd: int, size: int) -> bytes | None:
    """Return up to so many bytes (at most 64) from a pipe, as they are there within 1 ms; else None.

    Examples
    --------
    >>> ours, theirs = pipe()
    >>> read_soon(ours, 1), os.write(theirs, b"ab"), read_soon(ours, 1)
    (None, 2, b'a')
    >>> close(ours), close(theirs)
    (None, None)
    """
    wanted = select.poll()
    wanted.register(fd, select.POLLIN)
    return os.read(fd, size) if wanted.poll(_PATIENCE_MS) else None


def close(fd: int) -> None:
    """Close a descriptor of a pipe or of a file of /proc."""
    with contextlib.suppress(OSError):
        os.close(fd)


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
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def await_end(pid: int) -> End | None:
    """Wait until a child has ended and leave it a zombie; None where somebody else has reaped it.

    Source: waitid(2), "C library/kernel differences": the system call fills a rusage, of the
    child and of what it waited for, also with WNOWAIT.

    Examples
    --------
    >>> import subprocess
    >>> child = subprocess.Popen(["sh", "-c", "exit 3"])
    >>> await_end(child.pid)[0], child.wait()
    (3, 3)
    """
    found = _syscall()
    if found is None:
        return _await_plainly(pid)
    call, number = found
    info = _Info()
    usage = _Rusage()
    options = os.WEXITED | os.WNOWAIT
    while call(number, _P_PID, pid, ctypes.byref(info), options, ctypes.byref(usage)) != 0:
        if ctypes.get_errno() != errno.EINTR:
            return None
    # si_signo, si_errno, si_code, then from the next 8 bytes on si_pid, si_uid, si_status
    code, status = info[2], info[6]
    return (
        status if code == _CLD_EXITED else -status,
        usage.utime_s * 10**9 + usage.utime_us * 1000,
        usage.stime_s * 10**9 + usage.stime_us * 1000,
        usage.maxrss_kib * 1024,
        time.monotonic_ns(),
    )


@cache
def _syscall() -> tuple[Any, int] | None:
    number = _WAITID.get(os.uname().machine) if sys.platform == "linux" else None
    return None if number is None else (ctypes.CDLL(None, use_errno=True).syscall, number)


def _await_plainly(pid: int) -> End | None:
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # reaped, or a system without it
        return None
    if info is None:
        return None
    status = info.si_status if info.si_code == _CLD_EXITED else -info.si_status
    return status, None, None, None, time.monotonic_ns()
