"""The counters of a target's tree from psutil, for systems without /proc; an estimate from below.

What a child used between the last look and its end is not seen here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil

from jumper.monitor.metrics.process.source import Counters

_WIDTH = 5


class PsutilSource:
    """The process tree of one target, as psutil sees it.

    Parameters
    ----------
    pid : int
        The target.
    exclude : collection of int, optional
        Pids that do not count.
    """

    def __init__(self, pid: int, exclude: Collection[int] = ()) -> None:
        self._pid = pid
        self._exclude = set(exclude)
        self._seen: dict[tuple[int, float], list[int]] = {}
        self._living: set[tuple[int, float]] = set()

    @property
    def alive(self) -> bool:
        """Whether the target is there. Source: kill(2), signal 0."""
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's
            pass
        return True

    @property
    def pids(self) -> set[int]:
        """The processes of the target now."""
        return {pid for pid, _ in self._living}

    def poll(self) -> float | None:
        """Return None: no looks between ticks."""
        return None

    def close(self) -> None:
        """Release nothing."""

    def update(self) -> Counters:
        """Take one reading of the whole tree; the last values of the dead stay in the sums.

        A target that is there and cannot be read is null, as is what was never read.
        """
        processes: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            target = psutil.Process(self._pid)
            processes = [target, *target.children(recursive=True)]
        rss = threads = 0
        self._living = set()
        readable = False
        for process in processes:
            if process.pid in self._exclude:
                continue
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                identity = (process.pid, process.create_time())
                values = [round(times.user * 1e9), round(times.system * 1e9), 0, 0, 0]
                if hasattr(process, "io_counters"):
                    io = process.io_counters()
                    values[2:] = (io.read_bytes, io.write_bytes, io.read_count + io.write_count)
                    readable = True
                rss += process.memory_info().rss
                threads += process.num_threads()
                self._seen[identity] = values
                self._living.add(identity)
        if not self._seen or (not self._living and self.alive):
            return {"pid": self._pid}
        user, system, read, write, _ = (sum(v[i] for v in self._seen.values()) for i in range(_WIDTH))
        return {
            "pid": self._pid,
            "cpu_ns": user + system,
            "cpu_user_ns": user,
            "cpu_system_ns": system,
            "rss_bytes": rss,
            "memory_bytes": rss,
            "rss_peak_bytes": rss,
            "memory_peak_bytes": rss,
            "read_bytes": read if readable else None,
            "write_bytes": write if readable else None,
            "processes": len(self._living),
            "threads": threads,
            "pss_missing": max(0, len(self._living) - 1),
        }
