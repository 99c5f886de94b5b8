"""Reading one process from /proc: what the kernel keeps, with the errors made ours in one place.

A process that is gone gives None; a file that may not be read gives None for its part.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
#: reads of at least this size go on to the end of the file
LONG = 1 << 16
SHORT = 1 << 13

#: flag of /proc/PID/stat between fork and exec, while a process shows its parent's environment
#: (include/linux/sched.h, PF_FORKNOEXEC)
FORKED_ONLY = 0x40
#: in the environment of our own processes: no set that goes by environments lets them in
OWN_TAG = b"JUMPER_AGENT=1"

_ROLLUP = re.compile(rb"^(Rss|Pss|Anonymous):\s+(\d+)", re.MULTILINE)
_STATUS = re.compile(rb"^(Tgid|VmHWM|VmRSS|RssAnon|VmSwap|Threads):\s+(\d+)", re.MULTILINE)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used; times in clock ticks. Source: proc_pid_stat(5).

    ======== ============================================ =====
    field    meaning                                      index
    ======== ============================================ =====
    state    R, S, D, Z, T, ...                           3
    ppid     parent                                       4
    session  session; its number is its maker's pid       6
    flags    of the kernel                                9
    minflt   page faults without I/O                      10
    cminflt  those of waited-for children                 11
    utime    user time, dead threads included             14
    cutime   user time of waited-for children             16
    threads  number of threads                            20
    start    start time after boot                        22
    stack    bottom of the stack; 0 without ptrace access 28
    ======== ============================================ =====
    """

    pid: int
    comm: bytes
    state: str
    ppid: int
    utime: int
    stime: int
    cutime: int
    cstime: int
    threads: int
    start: int
    minflt: int
    cminflt: int
    stack: int
    flags: int
    session: int


class Status(NamedTuple):
    """Memory and identity from /proc/PID/status; sizes in bytes, 0 where the process has no memory (zombie)."""

    tgid: int
    threads: int
    rss: int
    hwm: int
    anon: int
    swap: int


class Io(NamedTuple):
    """The counters of /proc/PID/io, reaped children included. Source: proc_pid_io(5)."""

    read_chars: int
    write_chars: int
    reads: int
    writes: int
    read_bytes: int
    write_bytes: int


class Rollup(NamedTuple):
    """Sums over a process's memory areas, bytes: PSS, RSS, and anonymous memory."""

    pss: int
    rss: int
    anon: int


def parse_stat(data: bytes) -> Stat:
    """Parse /proc/PID/stat; a name may hold spaces, parentheses and newlines.

    Raises
    ------
    ValueError
        Where the text is cut short.

    Examples
    --------
    >>> s = parse_stat(b"7 (a) b (c) S 1 7 7 0 -1 0 5 6 0 0 11 12 13 14 20 0 1 0 99 0 0 0 0 0 77 0\\n")
    >>> s.comm, s.ppid, s.start, s.stack
    (b'a) b (c', 1, 99, 77)
    """
    opening, closing = data.find(b"("), data.rfind(b")")
    rest = data[closing + 2 :].split()
    if opening < 0 or closing < opening or len(rest) < 26:
        raise ValueError(f"not a /proc/PID/stat: {data[:80]!r}")
    return Stat(
        pid=int(data[:opening]),
        comm=data[opening + 1 : closing],
        state=rest[0].decode(),
        ppid=int(rest[1]),
        utime=int(rest[11]),
        stime=int(rest[12]),
        cutime=int(rest[13]),
        cstime=int(rest[14]),
        threads=int(rest[17]),
        start=int(rest[19]),
        minflt=int(rest[7]),
        cminflt=int(rest[8]),
        stack=int(rest[25]),
        flags=int(rest[6]),
        session=int(rest[3]),
    )


def parse_status(data: bytes) -> Status:
    """Parse /proc/PID/status.

    Examples
    --------
    >>> parse_status(b"Tgid:\\t7\\nVmHWM:\\t 8 kB\\nVmRSS:\\t 4 kB\\nThreads:\\t2\\n").hwm
    8192
    """
    found = {key: int(value) for key, value in _STATUS.findall(data)}
    kib = 1024
    return Status(
        tgid=found.get(b"Tgid", 0),
        threads=found.get(b"Threads", 1),
        rss=found.get(b"VmRSS", 0) * kib,
        hwm=found.get(b"VmHWM", 0) * kib,
        anon=found.get(b"RssAnon", 0) * kib,
        swap=found.get(b"VmSwap", 0) * kib,
    )


def parse_io(data: bytes) -> Io:
    """Parse /proc/PID/io.

    Raises
    ------
    ValueError
        Where fields are missing.

    Examples
    --------
    >>> parse_io(b"rchar: 1\\nwchar: 2\\nsyscr: 3\\nsyscw: 4\\nread_bytes: 5\\nwrite_bytes: 6\\n").write_bytes
    6
    """
    values = [int(line.split()[1]) for line in data.splitlines()[:6]]
    if len(values) < 6:
        raise ValueError("not a /proc/PID/io")
    return Io._make(values)


class ProcFS:
    """One /proc. Its root can be a folder of a test.

    Parameters
    ----------
    root : str
        Where it is mounted.
    """

    def __init__(self, root: str = "/proc") -> None:
        self.root = root

    def read(self, path: str, size: int = SHORT) -> bytes | None:
        """Return a file of /proc, or None where it cannot be read."""
        try:
            fd = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = chunk = os.read(fd, size)
            while chunk and size >= LONG:  # a long file comes in pieces
                chunk = os.read(fd, size)
                data += chunk
            return data
        except OSError:
            return None
        finally:
            os.close(fd)

    def stat(self, pid: int) -> Stat | None:
        """Return the process's stat, or None where it is gone."""
        data = self.read(f"{pid}/stat", 1024)
        try:
            return parse_stat(data) if data else None
        except ValueError:
            return None

    def status(self, pid: int) -> Status | None:
        """Return the process's status, or None where it is gone."""
        data = self.read(f"{pid}/status")
        if data and len(data) == SHORT:  # a user of very many groups: what we look for stands behind them
            data = self.read(f"{pid}/status", LONG)
        return parse_status(data) if data else None

    def io(self, pid: int | str) -> Io | None:
        """Return the process's I/O, or None where it is gone or another user's."""
        data = self.read(f"{pid}/io", 512)
        try:
            return parse_io(data) if data else None
        except ValueError:
            return None

    def pss(self, pid: int) -> Rollup | None:
        """Return the sums of smaps_rollup, or None. Holds the target's map lock while it reads.

        Source: Documentation/filesystems/proc.rst, "smaps_rollup".
        """
        data = self.read(f"{pid}/smaps_rollup")
        found = {name: int(kib) * 1024 for name, kib in _ROLLUP.findall(data or b"")}
        if b"Pss" not in found:
            return None
        return Rollup(found[b"Pss"], found.get(b"Rss", 0), found.get(b"Anonymous", 0))

    def rss(self, pid: int) -> int:
        """Return a process's RSS in bytes from statm, 0 where it is gone. Source: proc_pid_statm(5)."""
        data = self.read(f"{pid}/statm", 128)
        try:
            return int(data.split()[1]) * PAGE if data else 0
        except (IndexError, ValueError):
            return 0

    def threads(self, pid: int) -> list[int]:
        """Return the kernel thread ids of a process."""
        try:
            return [int(name) for name in os.listdir(f"{self.root}/{pid}/task")]
        except OSError:
            return []

    def pids(self) -> list[int]:
        """Return all process ids that are visible."""
        try:
            return [int(name) for name in os.listdir(self.root) if name.isdigit()]
        except OSError:
            return []

    def last_pid(self) -> int | None:
        """Return the pid given out last in the reader's pid namespace, or None.

        Source: proc_loadavg(5), fifth field. Containers may fake the file.
        """
        data = self.read("loadavg", 128)
        try:
            return int(data.split()[4]) if data else None
        except (IndexError, ValueError):
            return None

    def tagged(self, pid: int, tag: bytes) -> bool:
        """Return whether the environment that a process was started with holds ``tag`` (``NAME=value``).

        That of our own processes holds none.
        """
        data = b"\0" + (self.read(f"{pid}/environ", 1 << 17) or b"")
        return b"\0" + tag + b"\0" in data and b"\0" + OWN_TAG + b"\0" not in data


def cpu_clock_ns(pid: int) -> int | None:
    """Return the CPU time of a process and its dead threads, in ns; works on zombies and other users'.

    Source: clock_getcpuclockid(3); the id of a process's clock is ``(~pid << 3) | 2``
    (include/linux/posix-timers.h, CPUCLOCK_SCHED).
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except (OSError, OverflowError):
        return None
