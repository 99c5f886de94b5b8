"""AMD devices: what `amdsmi` gives, by a stand-in of the module with the names and shapes of release 7.0."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.gpu import GpuCollector, collector
from jumper.monitor.metrics.gpu.amd import AmdSource
from jumper.monitor.metrics.gpu.common import State, Use

GIB = 1 << 30


class AmdSmiLibraryException(Exception):
    """Of amdsmi: carries the library's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def get_error_code(self) -> int:
        return self.code


NOT_SUPPORTED, NOT_INIT, NO_DRIVER = 2, 32, 34


def smi(**changed: Any) -> ModuleType:
    """The module on a node with one device; a value that is an int is the code that its call fails with."""
    module = ModuleType("amdsmi")
    answers: dict[str, Any] = {
        "amdsmi_init": None, "amdsmi_shut_down": None, "amdsmi_get_processor_handles": ["handle"],
        "amdsmi_get_gpu_device_uuid": "b3ff74a1-0000-1000-8000-2a3b4c5d6e7f",
        "amdsmi_get_gpu_asic_info": {"market_name": "Instinct MI300X"},
        "amdsmi_get_gpu_memory_total": SimpleNamespace(value=192 * GIB),
        "amdsmi_get_gpu_memory_usage": SimpleNamespace(value=5 * GIB),
        "amdsmi_get_gpu_activity": {"gfx_activity": 80, "umc_activity": 25, "mm_activity": "N/A"},
        "amdsmi_get_energy_count": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_power_info": {"current_socket_power": 310, "average_socket_power": "N/A"},
        "amdsmi_get_temp_metric": SimpleNamespace(value=55),
        "amdsmi_get_gpu_process_list": [
            {"pid": 11, "mem": 1, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 2 * GIB}},
            {"pid": 12, "mem": 1, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": GIB}},
        ],
    }  # fmt: skip

    def answer(value: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if type(value) is int:
                raise AmdSmiLibraryException(value)
            return value.value if isinstance(value, SimpleNamespace) else value

        return call

    for name, value in {**answers, **changed}.items():
        setattr(module, name, answer(value))
    for name in ("AmdSmiInitFlags", "AmdSmiMemoryType", "AmdSmiTemperatureType", "AmdSmiTemperatureMetric"):
        names = ("INIT_AMD_GPUS", "VRAM", "EDGE", "HOTSPOT", "CURRENT")
        setattr(module, name, SimpleNamespace(**dict.fromkeys(names, name)))
    codes = {"AMDSMI_STATUS_NOT_INIT": NOT_INIT, "AMDSMI_STATUS_DRIVER_NOT_LOADED": NO_DRIVER}
    module.__dict__.update(AmdSmiLibraryException=AmdSmiLibraryException, amdsmi_wrapper=SimpleNamespace(**codes))
    return module


def source(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> AmdSource:
    monkeypatch.setitem(sys.modules, "amdsmi", smi(**changed))
    return AmdSource()


def test_a_devices_state(monkeypatch: pytest.MonkeyPatch) -> None:
    found = source(monkeypatch)
    (device,) = found.devices
    assert (device.uuid[:8], device.name, device.memory_bytes) == ("b3ff74a1", "Instinct MI300X", 192 * GIB)
    assert found.state(device) == State(0.8, 0.25, 5 * GIB, 15_300_000, 310_000_000, 55)
    assert found.uses(device) == {11: Use(2 * GIB), 12: Use(GIB)}


def test_what_a_device_does_not_support_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ("activity", "memory_usage", "process_list")
    absent = {f"amdsmi_get_gpu_{name}": NOT_SUPPORTED for name in calls}
    absent |= {f"amdsmi_get_{name}": NOT_SUPPORTED for name in ("energy_count", "power_info", "temp_metric")}
    found = source(monkeypatch, **absent)
    assert found.state(found.devices[0]) == State() and found.uses(found.devices[0]) is None


def test_levels_have_their_memory_and_null_for_busy_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one = source(monkeypatch)
    monkeypatch.setattr(collector, "open_source", lambda: one)
    for name in one.variables:
        monkeypatch.delenv(name, raising=False)
    counters = GpuCollector(1)
    counters.setup()
    context = new_context(0, 0)
    context["user_pids"] = {11}
    row = counters.collect("user", context)
    assert row is not None and row["gpu_memory_bytes"] == 2 * GIB
    assert row["gpu_0_busy_ns"] is None and "gpu_busy_ns" not in row


@pytest.mark.parametrize("code", [NOT_INIT, NO_DRIVER])
def test_a_driver_that_is_gone_raises(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    found = source(monkeypatch)
    monkeypatch.setattr(
        found._smi, "amdsmi_get_gpu_activity", smi(amdsmi_get_gpu_activity=code).amdsmi_get_gpu_activity
    )
    with pytest.raises(AmdSmiLibraryException):
        found.state(found.devices[0])
