"""Checks of devices: GPUs, energy counters, network namespaces, the control group whose limit is watched."""

from __future__ import annotations

import os

from jumper.doctor.check import Check
from jumper.monitor.metrics import here


def gpus() -> Check:
    """Whether GPUs can be read, which they are, and which of them this process may use."""
    reason = here.gpu(os.getpid())
    if reason is not None and reason.startswith("no "):
        return Check("devices", "GPU", "none", reason)
    if reason is not None:
        return Check("devices", "GPU", "missing", reason, "pip install 'jumper-workflows[gpu]'")
    from jumper.monitor.metrics.gpu.sources import open_source
    from jumper.monitor.metrics.gpu.visible import setting, visible

    try:
        source = open_source()
    except Exception as error:  # of a vendor's library
        return Check("devices", "GPU", "missing", f"{type(error).__name__}: {error}", "does `nvidia-smi` work here?")
    mine = visible(source.devices, setting(os.getpid(), source.variables))
    named = [f"{device.number}: {device.name} ({device.uuid}){'' if device in mine else ', not for us'}"
             for device in source.devices]  # fmt: skip
    source.close()
    return Check("devices", "GPU", "ok" if mine else "limited", "; ".join(named) or "the driver shows no device")


def energy() -> Check:
    """Whether the CPU packages' energy counters can be read (powercap.rst): on most machines by root only."""
    reason = here.energy(os.getpid())
    if reason is None:
        from jumper.monitor.metrics.energy.rapl import zones

        return Check("devices", "energy", "ok", f"RAPL: {', '.join(zone.name for zone in zones())}")
    if "may read" in reason:
        step = "an administrator can make them readable: chmod o+r /sys/class/powercap/intel-rapl:*/energy_uj"
        return Check("devices", "energy", "missing", reason, step)
    return Check("devices", "energy", "none", reason)


def control_group() -> Check:
    """Whether a limit of memory applies by a control group, whose use, hits and OOM kills are then sampled."""
    reason = here.cgroup(os.getpid())
    if reason is None:
        return Check("memory", "cgroup limit", "ok", "use, peak, times at the limit and OOM kills are sampled")
    return Check("memory", "cgroup limit", "none", reason)


def namespaces() -> Check:
    """Whether traffic can be told by network namespace (network_namespaces(7))."""
    reason = here.namespaces(os.getpid())
    if reason is None:
        return Check("kernel", "network namespaces", "ok", "traffic of tasks in one of their own is told apart")
    return Check("kernel", "network namespaces", "none", reason)
