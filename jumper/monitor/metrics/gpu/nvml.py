"""NVIDIA's devices through NVML, by the bindings of nvidia-ml-py.

A figure that a device does not have is None; a driver that is gone raises, which switches the collector off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jumper.monitor.metrics.gpu.common import Device, State, Use
from jumper.monitor.metrics.gpu.nvml_processes import NvmlProcesses, quiet

LIBRARY = "libnvidia-ml.so.1"


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
        self._get = quiet(pynvml)
        pynvml.nvmlInit()
        self._handles: list[Any] = []
        self.devices: list[Device] = []
        self._processes = NvmlProcesses(pynvml, self._get)
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
        nvml = self._nvml
        own = self._get(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        return nvml.nvmlDeviceGetMemoryInfo(handle) if own is None else own

    def uses(self, device: Device) -> Mapping[int, Use] | None:
        """Return what each process uses; see :meth:`GpuSource.uses`."""
        return self._processes.uses(device, self._handles[device.number])

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.nvmlShutdown()


def _part(percent: int) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None


def _text(value: str | bytes) -> str:
    """Return a name; the bindings before 11.5 give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
