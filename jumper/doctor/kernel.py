"""Checks of what the kernel shows of processes, and of memory limits and the spool."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

from jumper.doctor.check import Check, text_of


def proc_folder() -> Check:
    """Whether /proc shows this process (it is Linux, and this namespace's)."""
    if not sys.platform.startswith("linux"):
        return Check("kernel", "/proc", "none", f"{platform.system()} has none: every number is an estimate by psutil")
    try:
        own = os.readlink("/proc/self")
    except OSError as error:
        return Check("kernel", "/proc", "missing", str(error), "mount it: mount -t proc proc /proc")
    if own != str(os.getpid()):
        return Check(
            "kernel", "/proc", "missing", f"it is another PID namespace's: it calls {os.getpid()} {own}",
            "mount this namespace's own: unshare --mount-proc",
        )  # fmt: skip
    return Check("kernel", "/proc", "ok", f"kernel {platform.release()}")


def other_processes(mounts: str = "/proc/mounts") -> Check:
    """Whether other users' processes can be seen (proc(5), ``hidepid``)."""
    options = ""
    for line in text_of(mounts).splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == "/proc" and fields[2] == "proc":
            options = fields[3]
    hide = next((o.partition("=")[2] for o in options.split(",") if o.startswith("hidepid=")), "0")
    if hide in ("0", "off"):
        return Check("kernel", "hidepid", "ok", "off: processes of all users are visible")
    return Check(
        "kernel", "hidepid", "limited", f"{hide}: the count of processes at the level system is of those you may see",
        "nothing to do for your own tasks; an administrator can add you to the group of the mount option gid=",
    )  # fmt: skip


def children_files() -> Check:
    """Whether a thread's children are listed (proc_pid_task(5), CONFIG_PROC_CHILDREN), and what a look costs."""
    path = f"/proc/self/task/{os.getpid()}/children"
    if not os.access(path, os.R_OK):
        return Check(
            "kernel", "children files", "limited", "not there: trees are found by a walk over /proc, at more cost",
            "nothing to do; kernels built with CONFIG_PROC_CHILDREN have them",
        )  # fmt: skip
    start = time.perf_counter_ns()
    for _ in range(100):
        text_of(path)
    cost_us = (time.perf_counter_ns() - start) / 100_000
    return Check("kernel", "children files", "ok", f"{cost_us:.0f} us a thread")


def cpu_clocks() -> Check:
    """Whether another process's CPU clock can be read (clock_getcpuclockid(3)): nanoseconds instead of ticks."""
    try:
        time.clock_gettime_ns((~os.getppid()) << 3 | 2)
    except (OSError, AttributeError, OverflowError) as error:
        return Check("kernel", "CPU clocks", "limited", f"{error}: CPU time is in ticks of 10 ms")
    return Check("kernel", "CPU clocks", "ok", "nanoseconds")


def io_file() -> Check:
    """Whether bytes read and written are counted (proc_pid_io(5), CONFIG_TASK_IO_ACCOUNTING)."""
    if "write_bytes" in text_of("/proc/self/io"):
        return Check("kernel", "I/O counters", "ok", "/proc/PID/io")
    return Check("kernel", "I/O counters", "missing", "no /proc/self/io: bytes are null", "no step helps from outside")


def shared_pages() -> Check:
    """Whether shared pages can be counted once (proc_pid_smaps_rollup(5))."""
    if "Pss:" in text_of("/proc/self/smaps_rollup"):
        return Check("kernel", "smaps_rollup", "ok", "shared pages count once")
    return Check("kernel", "smaps_rollup", "limited", "not readable: memory of a tree is its RSS, an upper bound")


def peak_reset() -> Check:
    """Whether a process can reset its own high-water mark (proc_pid_clear_refs(5)); tries it on this one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        return Check(
            "kernel", "clear_refs", "limited", f"{error.strerror}: peaks of Dask tasks are the highest sample",
            "a shorter interval sees more",
        )  # fmt: skip
    return Check("kernel", "clear_refs", "ok", "a task's peak can be told from the one before")


def cgroup_files() -> Check:
    """Which memory files of this process's cgroup can be read (cgroup-v2.rst, memory.rst)."""
    wanted = {"2": ("memory.current", "memory.peak", "memory.max", "memory.events"),
              "1": ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes")}  # fmt: skip
    for line in text_of("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mount = "2", Path("/sys/fs/cgroup")
        elif "memory" in controllers.split(","):
            version, mount = "1", Path("/sys/fs/cgroup/memory")
        else:
            continue
        # a container shows the path of the host, where only the mount itself is ours
        for folder in (mount / path.strip("/"), mount):
            found = [name for name in wanted[version] if os.access(folder / name, os.R_OK)]
            if found:
                lacking = [name for name in wanted[version] if name not in found]
                text = f"version {version}: {', '.join(found)}" + (f"; not {', '.join(lacking)}" if lacking else "")
                return Check("memory", "cgroup", "limited" if lacking else "ok", text)
    return Check("memory", "cgroup", "none", "no cgroup of this process counts memory that we can read")


def memory_limit() -> Check:
    """The smallest limit that applies here, and who set it."""
    from jumper.monitor.nodefacts import memory_limits_bytes

    limits = memory_limits_bytes()
    if not limits:
        return Check("memory", "limit", "limited", "no limit could be read")
    source = min(limits, key=lambda name: limits[name])
    return Check("memory", "limit", "ok", f"{limits[source] / 2**30:.1f} GiB, by {source}")


def spool() -> Check:
    """Whether samples can be written, where, and on what kind of file system."""
    from jumper.monitor.segment import spool_folder

    try:
        folder = spool_folder()
        room = os.statvfs(folder)
    except OSError as error:
        return Check("storage", "spool", "missing", str(error), "set JUMPER_SPOOL to a folder of your own on this node")
    free_gib = room.f_bavail * room.f_frsize / 2**30
    kind = _file_system(folder)
    text = f"{folder} ({kind or 'unknown file system'}, {free_gib:.1f} GiB free)"
    if kind in ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph"):
        return Check("storage", "spool", "limited", f"{text}: shared", "set JUMPER_SPOOL to a folder on a local disk")
    if free_gib < 0.1:
        return Check("storage", "spool", "limited", text, "make room there, or set JUMPER_SPOOL to another folder")
    return Check("storage", "spool", "ok", text)


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder by its longest mount point; proc_pid_mounts(5)."""
    best, kind = "", ""
    for line in text_of("/proc/mounts").splitlines():
        _, point, name, *_ = line.split()
        if len(point) >= len(best) and folder.is_relative_to(point.replace("\\040", " ")):
            best, kind = point, name
    return kind
