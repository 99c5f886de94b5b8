"""The `cgroup` collector: what the kernel counts of the target's control group, versions 1 and 2."""

from __future__ import annotations

import re

from jumper.monitor.metrics.cgroup.groups import Group, group_of, read, whole
from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext

Counters = dict[str, int | None]


class CgroupCollector(CollectorBackend):
    """Memory, its limit and peak, how often it was reached, OOM kills, CPU time and throttling.

    At the level ``process`` only: all processes of the group count, whether the target's or not.

    Parameters
    ----------
    pid : int
        The target.
    root : str
        Where /proc and /sys are; default: here.
    """

    name = "cgroup"

    def __init__(self, pid: int, root: str = "") -> None:
        self._pid = pid
        self._root = root
        self._group: Group | None = None

    def setup(self) -> None:
        """Find the group; the target is in it from its start on."""
        self._group = group_of(self._pid, self._root)

    def collect(self, level: str, context: CollectionContext) -> Counters | None:
        """Return the group's figures; None where one is not counted."""
        group = self._group
        if group is None or level != "process":
            return None
        found = {
            "cgroup_memory_limit_bytes": group.limit_bytes,
            **(_second(group) if group.version == 2 else _first(group)),
        }
        return {name: value for name, value in found.items() if value is not None}


def _second(group: Group) -> Counters:
    folder = group.memory
    events, cpu = read(f"{folder}/memory.events"), read(f"{folder}/cpu.stat")
    some = re.search(r"^some .*total=(\d+)", read(f"{folder}/memory.pressure"), re.MULTILINE)
    return {
        "cgroup_memory_bytes": whole(read(f"{folder}/memory.current")),
        "cgroup_memory_peak_bytes": whole(read(f"{folder}/memory.peak")),
        "cgroup_swap_bytes": whole(read(f"{folder}/memory.swap.current")),
        "cgroup_limit_hits": _field(events, "max"),
        "cgroup_oom_kills": _field(events, "oom_kill"),
        "cgroup_pressure_ns": int(some[1]) * 1000 if some else None,
        "cgroup_cpu_ns": _field(cpu, "usage_usec", 1000),
        "cgroup_throttled_ns": _field(cpu, "throttled_usec", 1000),
    }


def _first(group: Group) -> Counters:
    folder = group.memory
    used, with_swap = (whole(read(f"{folder}/{name}.usage_in_bytes")) for name in ("memory", "memory.memsw"))
    return {
        "cgroup_memory_bytes": used,
        "cgroup_memory_peak_bytes": whole(read(f"{folder}/memory.max_usage_in_bytes")),
        "cgroup_swap_bytes": None if used is None or with_swap is None else max(0, with_swap - used),
        "cgroup_limit_hits": whole(read(f"{folder}/memory.failcnt")),
        "cgroup_oom_kills": _field(read(f"{folder}/memory.oom_control"), "oom_kill"),
        "cgroup_cpu_ns": whole(read(f"{group.cpuacct}/cpuacct.usage")),
        "cgroup_throttled_ns": _field(read(f"{group.cpu}/cpu.stat"), "throttled_time"),
    }


def _field(text: str, name: str, unit: int = 1) -> int | None:
    """Return a line's number; None where there is no such line."""
    found = re.search(rf"^{name} (\d+)", text, re.MULTILINE)
    return int(found[1]) * unit if found else None
