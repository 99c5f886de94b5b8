"""NVIDIA's devices through NVML, by the bindings of nvidia-ml-py.

A figure that a device does not have is None; a driver that is gone raises, which switches the collector off.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from typing import Any

from jumper.monitor.metrics.gpu.common import SAMPLE_NS, Device, State, Use

LIBRARY = "libnvidia-ml.so.1"
#: NVML's mark of a value that it does not know, 64 bits of ones
_UNKNOWN = (1 << 64) - 1


class _ProcessV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t of nvml.h: 16 bytes; drivers before 450 have no other, and the bindings no call for it."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


class NvmlSource:
    """All devices of the node that NVML lets us see, and the MIG instances in them.

    Raises
    ------
    ImportError
        Without nvidia-ml-py.
    pynvml.NVMLError
        Without a driver that answers.
    """

    variables = ("CUDA_VISIBLE_DEVICES",)

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        #: what is the matter with one figure or one device, not with the driver
        self._absent = (
            pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission, pynvml.NVMLError_NotFound,
            pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_InsufficientSize, pynvml.NVMLError_InvalidArgument,
            pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired, pynvml.NVMLError_NoData,
            pynvml.NVMLError_InUse, pynvml.NVMLError_Timeout,
        )  # fmt: skip
        pynvml.nvmlInit()
        self._handles: list[Any] = []
        self.devices: list[Device] = []
        #: device -> time stamp of its newest sample (us), and of our last look (ns)
        self._seen: dict[int, tuple[int, int]] = {}
        self._lists: dict[str, Callable[[Any], list[Any]]] = {}
        for number in range(pynvml.nvmlDeviceGetCount()):
            # counted are those of other jobs, too, which a batch system keeps from us
            handle = self._get(pynvml.nvmlDeviceGetHandleByIndex, number)
            if handle is not None:
                self._add(handle, None)
        for device in list(self.devices):
            for instance in self._instances(self._handles[device.number]):
                self._add(instance, device.number)

    def _add(self, handle: Any, parent: int | None) -> None:
        nvml, number = self._nvml, len(self.devices)
        memory = self._get(self._memory, handle)
        self._handles.append(handle)
        self.devices.append(
            Device(
                number,
                _text(self._get(nvml.nvmlDeviceGetUUID, handle) or f"GPU-{number}"),
                _text(self._get(nvml.nvmlDeviceGetName, handle) or "GPU"),
                None if memory is None else int(memory.total),
                parent,
            )
        )

    def _instances(self, handle: Any) -> list[Any]:
        nvml = self._nvml
        mode = self._get(nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = self._get(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        found = (self._get(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number) for number in range(most))
        return [instance for instance in found if instance is not None]

    def state(self, device: Device) -> State:
        """Return what a device does now; see :meth:`GpuSource.state`."""
        nvml, handle = self._nvml, self._handles[device.number]
        rates = self._get(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._get(self._memory, handle)
        energy = power = temperature = None
        if device.parent is None:  # an instance has none of its own
            energy = self._get(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            power = self._get(nvml.nvmlDeviceGetPowerUsage, handle)
            temperature = self._get(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        return State(
            None if rates is None else _part(rates.gpu),
            None if rates is None else _part(rates.memory),
            None if memory is None else int(memory.used),
            None if energy is None else int(energy) * 1000,
            None if power is None else int(power) * 1000,
            None if temperature is None else int(temperature),
        )

    def _memory(self, handle: Any) -> Any:
        """Return the memory of a device without what the driver keeps for itself, where it tells them apart."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
        except self._absent:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)

    def uses(self, device: Device) -> Mapping[int, Use] | None:
        """Return what each process uses; see :meth:`GpuSource.uses`."""
        handle = self._handles[device.number]
        lists = [self._get(self._running, kind, handle) for kind in ("Compute", "Graphics")]
        if lists == [None, None]:
            return None
        memory: dict[int, int | None] = {}
        for entry in (entry for found in lists if found is not None for entry in found):
            used, pid = entry.usedGpuMemory, int(entry.pid)
            known = None if used is None or used == _UNKNOWN else int(used)
            # one that computes and draws is in both lists, with all that it has
            memory[pid] = max((v for v in (memory.get(pid), known) if v is not None), default=None)
        busy = None if device.parent is not None else self._get(self._utilization, device)
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

    def _utilization(self, device: Device) -> dict[int, tuple[int, int]]:
        """Return process id -> (busy, band) in ns since the look before, of those that did something.

        A sample stands for the time since the one before it, at most for that since the look before or the
        longest time between two samples: a device where nobody does anything has none.
        """
        now = time.monotonic_ns()
        since, looked = self._seen.get(device.number, (0, 0))
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handles[device.number], since)
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

    def _get(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._absent:
            return None

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.nvmlShutdown()


def _part(percent: int) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None


def _text(value: str | bytes) -> str:
    """Return a name; the bindings before 11.5 give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
