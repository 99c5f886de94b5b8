"""What a job of a batch system holds beside the task: its Snakemakes, of which the Slurm plugin runs two a job.

Their memory counts against what the rule asks for, and is not the rule's.
"""

from __future__ import annotations

import os
import re
from functools import cache

from jumper.monitor.metrics.process.procfs import ProcFS
from jumper_snakemake.jobs import EXTERNAL_IDS
from jumper_snakemake.settings import TAG

#: how a Snakemake is called that a batch system shall run (`snakemake_interface_executor_plugins`, `ExecMode.REMOTE`);
#: one that somebody started in a job of their own asks for nothing by its rules
_REMOTE = re.compile(rb"\0--mode[=\0]remote\0")


def memory_beside(in_process: bool, fs: ProcFS | None = None, own: int | None = None) -> int | None:
    """Return the memory of the processes of this batch job on this node that are no task's, in bytes.

    Parameters
    ----------
    in_process : bool
        The task is Python in this process, which is then its own.
    fs : ProcFS, optional
    own : int, optional
        The process id of this Snakemake.

    Returns
    -------
    int or None
        Sum of their high-water marks (``VmHWM``); shared pages count in each. None where this Snakemake was not
        started by another one as a job of a batch system.
    """
    fs, own = fs or ProcFS(), os.getpid() if own is None else own
    pids = _others(fs.root, own)
    if pids is None:
        return None
    marks = [status.hwm for pid in (*pids, *(() if in_process else (own,))) if (status := fs.status(pid)) is not None]
    return sum(marks)


@cache
def _others(root: str, own: int) -> tuple[int, ...] | None:
    """Return this batch job's processes but this one, what it started, and what is of a task or of a monitor."""
    tag = next((f"{name}={os.environ[name]}" for name in EXTERNAL_IDS if os.environ.get(name)), None)
    fs = ProcFS(root)
    parents = {pid: stat.ppid for pid in fs.pids() if (stat := fs.stat(pid)) is not None}
    if tag is None or not any(map(_REMOTE.search, (fs.read(f"{pid}/cmdline") or b"" for pid in _line(own, parents)))):
        return None
    found = []
    for pid in parents:
        if fs.tagged(pid, tag.encode()) and own not in _line(pid, parents):
            environ = b"\0" + (fs.read(f"{pid}/environ", 1 << 17) or b"")
            if f"\0{TAG}=".encode() not in environ:  # of no task, though it left its tree
                found.append(pid)
    return tuple(found)


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    """Return a process and those that it descends from."""
    line = [pid]
    while (parent := parents.get(line[-1], 0)) > 1 and parent not in line:
        line.append(parent)
    return line
