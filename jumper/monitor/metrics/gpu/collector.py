"""The `gpu_counters` collector: what GPUs do, for the node, and for the processes of each level."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.gpu.columns import Counters, columns_of, sum_of
from jumper.monitor.metrics.gpu.common import SAMPLE_NS, Device, GpuSource, State, Use
from jumper.monitor.metrics.gpu.sources import open_source
from jumper.monitor.metrics.gpu.visible import setting, visible

#: the first PID namespace (PROC_PID_INIT_INO of the kernel's proc_ns.h): here numbers are what a driver calls them
_FIRST_NAMESPACE = "pid:[4026531836]"


class GpuCollector(CollectorBackend):
    """Cumulative counters and gauges of GPUs, by device and in all; see docs/gpu.md.

    The level ``system`` has what all devices of the node say of themselves, whoever uses them; the other levels
    what their processes use: of the devices that the target may use (``process``), or of all.

    Parameters
    ----------
    pid : int
        The target, whose ``CUDA_VISIBLE_DEVICES`` counts.
    """

    name = "gpu-counters"

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._source: GpuSource | None = None
        self._mine: list[Device] = []
        self._leaves: list[Device] = []
        self._tick = self._previous = -1
        self._states: dict[int, State] = {}
        self._uses: dict[int, Mapping[int, Use] | None] = {}
        self._before: dict[str, int] = {}
        self._totals: dict[tuple[str, int, str], int] = {}
        self._energy: dict[tuple[str, int], tuple[int, int]] = {}
        self._recent: dict[str, set[int]] = {}
        self._unknown: dict[int, set[int]] = {}
        self._strange = False

    def setup(self) -> dict[str, Any] | None:
        """Open the library."""
        self._source = source = open_source()
        split = {device.parent for device in source.devices}
        self._leaves = [device for device in source.devices if device.number not in split]
        self._mine = visible(source.devices, setting(self._pid, source.variables))
        return None

    def collect(self, level: str, context: CollectionContext) -> Counters | None:
        """Return the counters of a level, and put them into the context for who derives from them."""
        if self._source is None:
            return None
        now = context["mono_ns"]
        if self._tick != now:
            self._previous, self._tick = self._tick, now
            self._states.clear()
            self._uses.clear()
        # one who takes a level again does not know what was meanwhile
        elapsed = now - self._previous if self._before.get(level) == self._previous else 0
        self._before[level] = now
        if level == "system":
            rows = {device.number: self._whole(device, elapsed) for device in self._source.devices}
            counted = [rows[device.number] for device in self._source.devices if device.parent is None]
        else:
            here: set[int] = context[f"{level}_pids"]  # type: ignore[literal-required]
            pids = here | self._recent.get(level, set())  # what one did that has just ended is told now
            self._recent[level] = set(here)
            devices = self._mine if level == "process" else self._leaves
            rows = {device.number: self._part(device, level, pids) for device in devices}
            counted = list(rows.values())
        found = columns_of(rows, counted)
        context["counters"].setdefault(level, {}).update(found)
        return found

    def _whole(self, device: Device, elapsed: int) -> Counters:
        """Return what a device says of itself."""
        state = self._state(device)
        row: Counters = {"busy_ns": None, "band_ns": None, "memory_bytes": state.memory_bytes}
        for name, part in (("busy_ns", state.busy), ("band_ns", state.band)):
            if part is not None:
                row[name] = self._grown("system", device, name, round(part * elapsed))
        if device.parent is None:
            row.update(energy_uj=state.energy_uj, power_uw=state.power_uw, temperature_c=state.temperature_c)
        return row

    def _part(self, device: Device, level: str, pids: set[int]) -> Counters:
        """Return what the processes of a level use of a device."""
        row: Counters = dict.fromkeys(("busy_ns", "band_ns", "memory_bytes", "energy_uj"))
        uses = self._used(device)
        if uses is None:
            return row
        mine = [use for pid, use in uses.items() if pid in pids]
        row["memory_bytes"] = sum_of(use.memory_bytes for use in mine)
        for name in ("busy_ns", "band_ns"):
            grown = sum_of(getattr(use, name) for use in mine)
            if grown is not None and all(use.busy_ns is not None for use in uses.values()):
                row[name] = self._grown(level, device, name, grown)
        row["energy_uj"] = self._share(device, level, mine, uses)
        return row

    def _share(self, device: Device, level: str, mine: list[Use], uses: Mapping[int, Use]) -> int | None:
        """Return the energy of a level: of what the device took since the look before, its part of the busy time.

        What it took while nobody computed is nobody's.
        """
        energy = self._state(device).energy_uj
        if energy is None or any(use.busy_ns is None for use in uses.values()):
            return None
        before, since = self._energy.setdefault((level, device.number), (energy, self._tick))
        whole, ours = (sum(use.busy_ns or 0 for use in some) for some in (uses.values(), mine))
        if whole or self._tick - since > SAMPLE_NS:  # else the driver may have no new sample yet
            self._energy[level, device.number] = energy, self._tick
        return self._grown(level, device, "energy_uj", max(0, energy - before) * ours // whole if whole else 0)

    def _grown(self, level: str, device: Device, name: str, by: int) -> int:
        key = (level, device.number, name)
        self._totals[key] = self._totals.get(key, 0) + by
        return self._totals[key]

    def _state(self, device: Device) -> State:
        assert self._source is not None
        if device.number not in self._states:
            self._states[device.number] = self._source.state(device)
        return self._states[device.number]

    def _used(self, device: Device) -> Mapping[int, Use] | None:
        """Return who uses a device; None where the driver does not say, or speaks of another namespace's processes."""
        assert self._source is not None
        if device.number not in self._uses:
            uses = self._source.uses(device)
            unknown = _of_elsewhere(uses or ())
            self._strange = self._strange or bool(unknown & self._unknown.get(device.number, set()))
            self._unknown[device.number] = unknown  # one that is met again has not just ended
            self._uses[device.number] = None if unknown or self._strange else uses
        return self._uses[device.number]

    def close(self) -> None:
        """Let go of the library."""
        if self._source is not None:
            self._source.close()
            self._source = None


def _of_elsewhere(pids: Iterable[int]) -> set[int]:
    """Return those numbers that are no process of this PID namespace, where it is a container's."""
    try:
        if os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE:
            return set()
    except OSError:
        return set()
    return {pid for pid in pids if not os.path.exists(f"/proc/{pid}")}
