"""Which of the built-in collectors beside the engine have something to read on this machine, and why others do not.

Looked at before a collector is imported, so that a machine pays for none that it cannot have.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from jumper.config.entries import BUILT_IN, CollectorConfig, CollectorEntry

#: what a driver makes, and the module and package that speak with its library
_GPU_DEVICES = (
    ("/dev/nvidiactl", "pynvml", "nvidia-ml-py"),
    ("/dev/dxg", "pynvml", "nvidia-ml-py"),  # WSL
    ("/dev/kfd", "amdsmi", "amdsmi"),
)
_NVML = "libnvidia-ml.so.1"
_POWERCAP = "/sys/class/powercap"


def gpu(pid: int) -> str | None:
    """Return why GPUs cannot be read here; None where a driver and its bindings are.

    Examples
    --------
    >>> gpu(1) is None or gpu(1).startswith(("no GPU", "a GPU"))
    True
    """
    found = [(module, package) for path, module, package in _GPU_DEVICES if os.path.exists(path)]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if any(folder and os.path.exists(os.path.join(folder, _NVML)) for folder in folders):
        found.append(("pynvml", "nvidia-ml-py"))
    if not found:
        return "no GPU driver on this machine (no /dev/nvidiactl, /dev/dxg, /dev/kfd)"
    import importlib.util  # only where there is a device

    if any(importlib.util.find_spec(module) is not None for module, _ in found):
        return None
    return f"a GPU driver is here, but not the package {found[0][1]}"


def energy(pid: int) -> str | None:
    """Return why the energy of the CPUs cannot be read here; None where it can."""
    if not os.path.isdir(_POWERCAP):
        return f"no {_POWERCAP}: the kernel, or the virtual machine, counts none"
    from jumper.monitor.metrics.energy.rapl import zones

    return None if zones(_POWERCAP) else f"{_POWERCAP} has no counter of a CPU package that this user may read"


def cgroup(pid: int) -> str | None:
    """Return why no control group of a process is watched; None where one bounds its memory."""
    from jumper.monitor.metrics.cgroup.groups import group_of

    group = group_of(pid)
    if group is None:
        return "its control group is the whole machine, or counts no memory"
    if group.limit_bytes is None:
        return f"no limit of memory to watch: neither {group.memory} nor those above it set one"
    return None


def namespaces(pid: int) -> str | None:
    """Return why network namespaces cannot be told apart; None where they can."""
    return None if os.path.exists("/proc/self/ns/net") else "no /proc/PID/ns/net"


#: name of an entry of the built-in collectors.yaml -> why it has nothing to read for a target, or None
BESIDE: dict[str, Callable[[int], str | None]] = {
    "gpu_counters": gpu,
    "gpu": gpu,
    "energy": energy,
    "cgroup": cgroup,
    "network_namespaces": namespaces,
}


#: those that have something to say only now and then
RARE = frozenset({"network_namespaces"})


def is_beside(entry: CollectorEntry) -> bool:
    """Return whether an entry reads what the native engine does not."""
    return entry.origin != BUILT_IN or entry.name in BESIDE


def without_absent(config: CollectorConfig, pid: int) -> CollectorConfig:
    """Return a configuration without those built-in entries that have nothing to read for a target here."""
    ours = {entry.name for entry in config.entries if entry.origin == BUILT_IN}
    gone = {name for name, why_not in BESIDE.items() if name in ours and why_not(pid) is not None}
    return config._replace(entries=tuple(entry for entry in config.entries if entry.name not in gone))
