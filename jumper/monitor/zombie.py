"""What a child cost, learned while it is a zombie: waited for, but left for its own waiter to reap."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from functools import cache
from typing import Any, NamedTuple

#: number of the system call by machine; the C library's wrapper has no rusage
_WAITID = {"x86_64": 247, "aarch64": 95, "riscv64": 95, "ppc64le": 272, "s390x": 281}
_P_PID = 1
_CLD_EXITED = 1
_SIGINFO_BYTES = 128


class Ended(NamedTuple):
    """The end of a child that its waiter has not collected yet.

    Attributes
    ----------
    status : int
        Exit status, or the negative signal that ended it.
    cpu_user_ns, cpu_system_ns : int or None
        Of it and of all that it waited for; None where the kernel was not asked (no Linux).
    maxrss_bytes : int or None
        Largest single process among these; not below what the process that forked it had at most.
    mono_ns : int
    """

    status: int
    cpu_user_ns: int | None
    cpu_system_ns: int | None
    maxrss_bytes: int | None
    mono_ns: int


#: a siginfo_t
_Info = ctypes.c_int * (_SIGINFO_BYTES // 4)


class _Rusage(ctypes.Structure):
    """struct rusage of getrusage(2); two timevals and fourteen longs."""

    _fields_ = (
        ("utime_s", ctypes.c_long), ("utime_us", ctypes.c_long), ("stime_s", ctypes.c_long),
        ("stime_us", ctypes.c_long), ("maxrss_kib", ctypes.c_long), ("rest", ctypes.c_long * 13),
    )  # fmt: skip


@cache
def _syscall() -> tuple[Any, int] | None:
    number = _WAITID.get(os.uname().machine) if sys.platform == "linux" else None
    return None if number is None else (ctypes.CDLL(None, use_errno=True).syscall, number)


def await_end(pid: int) -> Ended | None:
    """Wait until a child has ended; it stays a zombie. None where somebody else has reaped it.

    Source: waitid(2), "C library/kernel differences": the system call fills a rusage, of the
    child and of what it waited for, also with WNOWAIT.

    Parameters
    ----------
    pid : int
        A child of this process.

    Examples
    --------
    >>> import subprocess
    >>> child = subprocess.Popen(["sh", "-c", "exit 3"])
    >>> await_end(child.pid).status, child.wait()
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
    return Ended(
        status if code == _CLD_EXITED else -status,
        usage.utime_s * 10**9 + usage.utime_us * 1000,
        usage.stime_s * 10**9 + usage.stime_us * 1000,
        usage.maxrss_kib * 1024,
        time.monotonic_ns(),
    )


def _await_plainly(pid: int) -> Ended | None:
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # reaped, or a system without it
        return None
    if info is None:
        return None
    status = info.si_status if info.si_code == _CLD_EXITED else -info.si_status
    return Ended(status, None, None, None, time.monotonic_ns())
