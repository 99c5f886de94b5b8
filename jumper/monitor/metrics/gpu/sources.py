"""Which vendor's library answers on this machine, and the devices that it shows."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from jumper.monitor.metrics.gpu import amd, nvml
from jumper.monitor.metrics.gpu.common import GpuSource
from jumper.monitor.metrics.gpu.visible import setting, visible

#: a vendor's library, where it lies beside the usual places, and what opens it; the first that is here is taken
_VENDORS: tuple[tuple[tuple[str, ...], Callable[[], GpuSource]], ...] = (
    ((nvml.LIBRARY,), nvml.NvmlSource),
    ((amd.LIBRARY, f"/opt/rocm/lib/{amd.LIBRARY}"), amd.AmdSource),
)


def open_source() -> GpuSource:
    """Return the devices of the first vendor whose library is here.

    Raises
    ------
    LookupError
        Where there is none.
    Exception
        Of that library, where its driver does not answer.
    """
    for libraries, source in _VENDORS:
        if any(_loads(library) for library in libraries):
            return source()
    raise LookupError(f"expected {nvml.LIBRARY} or {amd.LIBRARY}, found neither; does `nvidia-smi` work here?")


def gpu_facts() -> dict[str, Any]:
    """Return the devices that this process may use, for the ``node`` record of a segment.

    Returns
    -------
    dict
        ``num_gpus``, ``gpu_memory`` (GiB, of the largest), ``gpu_name`` (of the first), and where the node has
        any, ``gpus``: for each device of the node ``number``, ``uuid``, ``name``, ``memory_bytes``, ``parent``
        (of an instance), ``visible``.

    Examples
    --------
    >>> sorted(gpu_facts())[:2]
    ['gpu_memory', 'gpu_name']
    """
    names = dict.fromkeys((*nvml.NvmlSource.variables, *amd.AmdSource.variables))
    return dict(_facts(os.getpid(), tuple(os.environ.get(name) for name in names)))


@functools.lru_cache(maxsize=4)
def _facts(pid: int, settings: tuple[str | None, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {"num_gpus": 0, "gpu_memory": 0.0, "gpu_name": ""}
    try:
        source = open_source()
    except Exception:  # of the library: the collector meets it too, and says so in the run's events
        return facts
    mine = visible(source.devices, setting(pid, source.variables))
    facts["gpus"] = [{**device._asdict(), "visible": device in mine} for device in source.devices]
    source.close()
    if mine:
        facts.update(num_gpus=len(mine), gpu_name=mine[0].name)
        facts["gpu_memory"] = max(device.memory_bytes or 0 for device in mine) / 2**30
    return facts


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
