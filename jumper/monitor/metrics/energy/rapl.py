"""The `energy` collector: what the CPU packages and their memory took, by RAPL, and a tree's part of it."""

from __future__ import annotations

import os
import re

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.node.collector import parse_cpu

Counters = dict[str, int | None]

POWERCAP = "/sys/class/powercap"
#: of the zones those of a package, and of memory, which is in no package's figure; cores and graphics are
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
_PACKAGE, _MEMORY = re.compile(r"package-\d+.*"), "dram"


class Zone:
    """One counter of RAPL; it grows from 0 on, also where the kernel's starts anew.

    Source: Documentation/power/powercap/powercap.rst: ``energy_uj`` counts to ``max_energy_range_uj``.
    """

    def __init__(self, folder: str) -> None:
        self.name = _text(f"{folder}/name")
        self.uj: int | None = None
        self._path = f"{folder}/energy_uj"
        self._range = int(_text(f"{folder}/max_energy_range_uj") or 0)
        self._last: int | None = None

    def look(self) -> None:
        """Read it; None where it cannot be read any more."""
        text = _text(self._path)
        now = int(text) if text.isdigit() else None
        if now is None:
            self.uj = self._last = None
            return
        if self._last is None:
            self.uj = 0
        else:
            assert self.uj is not None
            self.uj += now - self._last if now >= self._last else max(0, self._range - self._last) + now
        self._last = now


def zones(root: str = POWERCAP) -> list[Zone]:
    """Return the zones of packages and of memory that can be read, in their order."""
    try:
        names = sorted(
            filter(_ZONE.fullmatch, os.listdir(root)), key=lambda name: [int(n) for n in name.split(":")[1:]]
        )
    except OSError:
        return []
    found = [Zone(f"{root}/{name}") for name in names if os.access(f"{root}/{name}/energy_uj", os.R_OK)]
    return [zone for zone in found if zone.name == _MEMORY or _PACKAGE.fullmatch(zone.name)]


class EnergyCollector(CollectorBackend):
    """Energy since the first sample, in uJ.

    ``system`` has all, and each package; the other levels have their part, as their processes have of the CPU
    time that was used on the node: an estimate, in which idle cores cost whoever was busy.

    Parameters
    ----------
    root, proc : str
        Where powercap and /proc are.
    """

    name = "energy"

    def __init__(self, root: str = POWERCAP, proc: str = "/proc") -> None:
        self._zones = zones(root)
        self._stat = f"{proc}/stat"
        self._tick = -1
        #: level -> (energy, CPU time of the node, of the level) when its part was last counted
        self._before: dict[str, tuple[int, int, int]] = {}
        self._parts: dict[str, int] = {}

    def collect(self, level: str, context: CollectionContext) -> Counters | None:
        """Return what a level took."""
        if self._tick != context["mono_ns"]:
            self._tick = context["mono_ns"]
            for zone in self._zones:
                zone.look()
        packages = [zone.uj for zone in self._zones if zone.name != _MEMORY]
        memory = [zone.uj for zone in self._zones if zone.name == _MEMORY]
        known = [uj for uj in (*packages, *memory) if uj is not None]
        if not known or len(known) < len(self._zones):
            return None
        if level != "system":
            return {"energy_uj": self._part(level, context, sum(known))}
        found: Counters = {f"energy_{number}_uj": uj for number, uj in enumerate(packages)}
        if memory:
            found["energy_dram_uj"] = sum(uj for uj in memory if uj is not None)
        return {"energy_uj": sum(known), **found}

    def _part(self, level: str, context: CollectionContext, energy: int) -> int | None:
        counters = context["counters"]
        used = counters.get(level, {}).get("cpu_ns")
        node = counters.get("system", {}).get("cpu_ns")
        if node is None:
            node = parse_cpu(_text(self._stat).encode()).get("cpu_ns")
        if used is None or node is None:
            return None
        energy_before, node_before, used_before = self._before.setdefault(level, (energy, node, used))
        if node > node_before:
            share = min(1.0, max(0, used - used_before) / (node - node_before))
            self._parts[level] = self._parts.get(level, 0) + round((energy - energy_before) * share)
            self._before[level] = (energy, node, used)
        return self._parts.setdefault(level, 0)


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
