"""Threads of the target: CPU and I/O of each, so that a series can be joined to the task that a thread ran."""

from __future__ import annotations

from typing import Any

from jumper.monitor.metrics.process.procfs import ProcFS


class ThreadReader:
    """Read every thread of a process.

    Parameters
    ----------
    pid : int
    fs : ProcFS, optional

    Examples
    --------
    >>> import os
    >>> rows = ThreadReader(os.getpid()).read(0)
    >>> {"tid", "cpu_ns"} <= rows[0].keys()
    True
    """

    def __init__(self, pid: int, fs: ProcFS | None = None) -> None:
        self._pid = pid
        self._fs = fs or ProcFS()

    def read(self, mono_ns: int) -> list[dict[str, Any]]:
        """Return one row a thread, columns as in :data:`jumper.schema.COLUMNS` with scope ``thread``.

        Source: Documentation/scheduler/sched-stats.rst (schedstat: ns on CPU); proc_tid_io(5).
        """
        rows: list[dict[str, Any]] = []
        for tid in self._fs.threads(self._pid):
            task = f"{self._pid}/task/{tid}"
            schedule = self._fs.read(f"{task}/schedstat", 128)
            if not schedule:
                continue
            row: dict[str, Any] = {"mono_ns": mono_ns, "pid": self._pid, "tid": tid, "cpu_ns": int(schedule.split()[0])}
            io = self._fs.io(task)
            if io is not None:
                row.update(
                    read_bytes=io.read_bytes,
                    write_bytes=io.write_bytes,
                    read_chars=io.read_chars,
                    write_chars=io.write_chars,
                )
            rows.append(row)
        return rows
