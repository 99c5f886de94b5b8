"""Facts about this node and its limits: the smallest of cgroup, Slurm, rlimit and physical memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import Any

from jumper.monitor.metrics import here
from jumper.utilities import node_name

#: cgroup v1 shows "no limit" as the largest number of pages
_UNLIMITED = 1 << 60


def online_cpus() -> int:
    """Return how many CPUs this process may run on.

    Source: sched_getaffinity(2); elsewhere the number of CPUs.
    """
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def physical_memory_bytes() -> int | None:
    """Return the machine's memory in bytes, or None. Source: sysconf(3)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def cgroup_memory_limit_bytes(pid: int | str = "self", root: str = "/") -> int | None:
    """Return the smallest memory limit on the cgroup path of a process, or None where there is none.

    Source: Documentation/admin-guide/cgroup-v2.rst, ``memory.max``; cgroup-v1/memory.rst,
    ``memory.limit_in_bytes``. Each parent's limit applies too.
    """
    try:
        with open(f"{root}/proc/{pid}/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    groups = f"{root}/sys/fs/cgroup"
    limits: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, name = [groups, f"{groups}/unified"], "memory.max"
        elif "memory" in controllers.split(","):
            mounts, name = [f"{groups}/memory"], "memory.limit_in_bytes"
        else:
            continue
        parts = path.rstrip("/").split("/")
        for mount in mounts:
            for depth in range(len(parts), 0, -1):
                limits += _number(f"{mount}{'/'.join(parts[:depth])}/{name}")
    return min(limits, default=None)


def _number(path: str) -> list[int]:
    try:
        with open(path) as file:
            value = int(file.read())
    except (OSError, ValueError):  # absent, or "max"
        return []
    return [value] if value < _UNLIMITED else []


def slurm_memory_bytes() -> int | None:
    """Return what Slurm gave this job on this node, in bytes, or None.

    Source: sbatch(1): SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU in MiB; 0 is all of the node.
    """
    try:
        if per_node := int(os.environ.get("SLURM_MEM_PER_NODE", "0")):
            return per_node << 20
        per_cpu = int(os.environ.get("SLURM_MEM_PER_CPU", "0"))
        cpus = int(os.environ.get("SLURM_CPUS_ON_NODE", "0"))
        return (per_cpu * cpus) << 20 or None
    except ValueError:
        return None


def process_table() -> str | None:
    """Return what names the process ids that are seen here: on no other host do they mean the same; None without /proc.

    Source: proc_sys_kernel(5), "random/boot_id"; pid_namespaces(7).
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def memory_limits_bytes(slurm: int | None = None) -> dict[str, int]:
    """Return each limit on this process's memory that is set, by where it comes from, in bytes."""
    found = {
        "physical": physical_memory_bytes(),
        "cgroup": cgroup_memory_limit_bytes(),
        "slurm": slurm or slurm_memory_bytes(),
    }
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found["rlimit"] = soft
    return {name: value for name, value in found.items() if value}


def memory_limit_bytes() -> int | None:
    """Return the smallest limit on this process's memory, in bytes."""
    return min(memory_limits_bytes().values(), default=None)


def node_facts(job: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the ``node`` record of a segment; see docs/segment.md.

    Parameters
    ----------
    job : mapping, optional
        ``cpus`` and ``memory_bytes`` of the target's job on this node, for who is in it with a share of its own.

    Examples
    --------
    >>> node_facts()["num_cpus"] >= 1
    True
    """
    total = physical_memory_bytes()
    job = job or {}
    limits = memory_limits_bytes(job.get("memory_bytes"))
    smallest = min(limits.values(), default=0)
    gib = smallest / 2**30
    return {
        "type": "node",
        "node": node_name(),
        "hostname": os.uname().nodename,
        "kernel": os.uname().release,
        "num_cpus": min(job.get("cpus") or online_cpus(), os.cpu_count() or 1),
        "num_system_cpus": os.cpu_count() or 1,
        **_gpus(),
        "cpu_handles": cpu_handles(),
        "memory_bytes": total,
        "limits_bytes": limits,
        "memory_limits": {
            "process": gib,
            "user": gib,
            "system": (total or 0) / 2**30,
            "slurm": (limits.get("slurm") or smallest) / 2**30,
        },
    }


def _gpus() -> dict[str, Any]:
    """Return what this process may use of the node's GPUs; see :func:`jumper.monitor.metrics.gpu.sources.gpu_facts`."""
    if here.gpu(os.getpid()) is not None:
        return {"num_gpus": 0, "gpu_memory": 0.0, "gpu_name": ""}
    from jumper.monitor.metrics.gpu.sources import gpu_facts  # ctypes and a vendor's bindings

    return gpu_facts()


def cpu_handles() -> list[int]:
    """Return the CPUs that this process may run on. Source: sched_getaffinity(2)."""
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return list(range(os.cpu_count() or 1))
