"""AMD's devices through amdsmi, which comes with ROCm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jumper.monitor.metrics.gpu.common import Device, State, Use

LIBRARY = "libamd_smi.so"


class AmdSource:
    """All devices of the node that amdsmi shows.

    It tells what a process holds, not for how long it computed: ``busy_ns`` of a process is None.

    Raises
    ------
    ImportError
        Without amdsmi.
    amdsmi.AmdSmiException
        Without a driver that answers.
    """

    variables = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

    def __init__(self) -> None:
        import amdsmi

        self._smi = amdsmi
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        self._handles = list(amdsmi.amdsmi_get_processor_handles())
        self.devices = [self._device(index, handle) for index, handle in enumerate(self._handles)]

    def _device(self, index: int, handle: Any) -> Device:
        smi = self._smi
        uuid = self._get(smi.amdsmi_get_gpu_device_uuid, handle) or f"GPU-{index}"
        asic = self._get(smi.amdsmi_get_gpu_asic_info, handle) or {}
        total = self._get(smi.amdsmi_get_gpu_memory_total, handle, smi.AmdSmiMemoryType.VRAM)
        return Device(index, str(uuid), str(asic.get("market_name") or "AMD GPU"), _whole(total))

    def state(self, device: Device) -> State:
        """Return what a device does now; see :meth:`GpuSource.state`."""
        smi, handle = self._smi, self._handles[device.number]
        activity = self._get(smi.amdsmi_get_gpu_activity, handle) or {}
        energy = self._get(smi.amdsmi_get_energy_count, handle) or {}
        power = self._get(smi.amdsmi_get_power_info, handle) or {}
        counts, step = _number(energy.get("energy_accumulator")), _number(energy.get("counter_resolution"))
        watts = _number(power.get("current_socket_power"))
        watts = _number(power.get("average_socket_power")) if watts is None else watts
        return State(
            _part(activity.get("gfx_activity")),
            _part(activity.get("umc_activity")),
            _whole(self._get(smi.amdsmi_get_gpu_memory_usage, handle, smi.AmdSmiMemoryType.VRAM)),
            None if counts is None or step is None else round(counts * step),
            None if watts is None else round(watts * 1e6),
            self._temperature(handle),
        )

    def _temperature(self, handle: Any) -> int | None:
        smi = self._smi
        for place in (smi.AmdSmiTemperatureType.EDGE, smi.AmdSmiTemperatureType.HOTSPOT):
            found = self._get(smi.amdsmi_get_temp_metric, handle, place, smi.AmdSmiTemperatureMetric.CURRENT)
            if found is not None:
                return int(found)
        return None

    def uses(self, device: Device) -> Mapping[int, Use] | None:
        """Return what each process holds; see :meth:`GpuSource.uses`."""
        found = self._get(self._smi.amdsmi_get_gpu_process_list, self._handles[device.number])
        if found is None:
            return None
        return {int(one["pid"]): Use(_whole((one.get("memory_usage") or {}).get("vram_mem"))) for one in found}

    def _get(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._smi.AmdSmiLibraryException as error:
            codes = self._smi.amdsmi_wrapper
            if error.get_error_code() in (codes.AMDSMI_STATUS_NOT_INIT, codes.AMDSMI_STATUS_DRIVER_NOT_LOADED):
                raise
            return None

    def close(self) -> None:
        """Let go of the library."""
        self._smi.amdsmi_shut_down()


def _number(value: Any) -> float | None:
    """Return a figure; amdsmi says "N/A" where it has none."""
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _part(percent: Any) -> float | None:
    number = _number(percent)
    return number / 100 if number is not None and 0 <= number <= 100 else None
