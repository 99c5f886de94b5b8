"""Who uses an NVIDIA device, by the lists and the samples that NVML has of processes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from typing import Any

from jumper.monitor.metrics.gpu.common import SAMPLE_NS, Device, Use

Get = Callable[..., Any]

#: NVML's mark of a value that it does not know, 64 bits of ones
_UNKNOWN = (1 << 64) - 1


def quiet(nvml: Any) -> Get:
    """Return what calls a function of the bindings: None where a figure or a device has no answer.

    A driver that is gone raises.
    """
    gone = (
        nvml.NVMLError_Uninitialized, nvml.NVMLError_DriverNotLoaded, nvml.NVMLError_LibraryNotFound,
        nvml.NVMLError_LibRmVersionMismatch,
    )  # fmt: skip

    def get(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except gone:
            raise
        except nvml.NVMLError:
            return None

    return get


class _ProcessV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t of nvml.h: 16 bytes; drivers before 450 have no other, and the bindings no call for it."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


class NvmlProcesses:
    """The processes of devices.

    Parameters
    ----------
    nvml : module
        ``pynvml``.
    get : callable
        From :func:`quiet`.
    """

    def __init__(self, nvml: Any, get: Get) -> None:
        self._nvml = nvml
        self._get = get
        #: device -> time stamp of its newest sample (us), and of our last look (ns)
        self._seen: dict[int, tuple[int, int]] = {}
        self._lists: dict[str, Callable[[Any], list[Any]]] = {}

    def uses(self, device: Device, handle: Any) -> Mapping[int, Use] | None:
        """Return what each process uses; see :meth:`GpuSource.uses`."""
        lists = [self._get(self._running, kind, handle) for kind in ("Compute", "Graphics")]
        if lists == [None, None]:
            return None
        memory: dict[int, int | None] = {}
        for entry in (entry for found in lists if found is not None for entry in found):
            used, pid = entry.usedGpuMemory, int(entry.pid)
            known = None if used is None or used == _UNKNOWN else int(used)
            # one that computes and draws is in both lists, with all that it has
            memory[pid] = max((v for v in (memory.get(pid), known) if v is not None), default=None)
        busy = None if device.parent is not None else self._get(self._utilization, device, handle)
        if busy is None:
            return {pid: Use(used) for pid, used in memory.items()}
        return {pid: Use(memory.get(pid, 0), *busy.get(pid, (0, 0))) for pid in {*memory, *busy}}

    def _running(self, kind: str, handle: Any) -> list[Any]:
        """Return the processes of a list, by the newest call that the driver has."""
        if kind in self._lists:
            return self._lists[kind](handle)
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        calls = [getattr(self._nvml, name + version, None) for version in ("_v3", "_v2")]
        for call in (*filter(None, calls), lambda handle: self._running_v1(name, handle)):
            try:
                found: list[Any] = call(handle)
            except self._nvml.NVMLError_FunctionNotFound:
                continue
            self._lists[kind] = call
            return found
        raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def _running_v1(self, name: str, handle: Any) -> list[Any]:
        nvml, count = self._nvml, ctypes.c_uint(0)
        call = nvml._nvmlGetFunctionPointer(name)
        code = call(handle, ctypes.byref(count), None)
        if code == nvml.NVML_SUCCESS:
            return []
        if code == nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            count.value = 2 * count.value + 5
            found = (_ProcessV1 * count.value)()
            code = call(handle, ctypes.byref(count), found)
        nvml._nvmlCheckReturn(code)
        return list(found[: count.value])

    def _utilization(self, device: Device, handle: Any) -> dict[int, tuple[int, int]]:
        """Return process id -> (busy, band) in ns since the look before, of those that did something.

        A sample stands for the time since the one before it, at most for that since the look before or the
        longest time between two samples: a device where nobody does anything has none.
        """
        now = time.monotonic_ns()
        since, looked = self._seen.get(device.number, (0, 0))
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError_NotFound:  # nobody did
            samples = []
        # some drivers leave rests of other samples in the list
        fresh = [s for s in samples if s.timeStamp > since and s.smUtil <= 100 and s.memUtil <= 100]
        newest = max((s.timeStamp for s in fresh), default=since)
        self._seen[device.number] = newest, now
        if not looked:
            return {}
        span = min((newest - since) * 1000, max(now - looked, SAMPLE_NS)) // 100
        last = {int(s.pid): s for s in sorted(fresh, key=lambda s: int(s.timeStamp))}
        return {pid: (int(s.smUtil) * span, int(s.memUtil) * span) for pid, s in last.items()}
