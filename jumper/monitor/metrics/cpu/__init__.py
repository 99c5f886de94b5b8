"""CPU utilisation, percent of each core."""

from __future__ import annotations

from jumper.monitor.metrics.cpu.common import CpuCollectorBackend
from jumper.monitor.metrics.cpu.counters import CpuCollector

__all__ = ["CpuCollector", "CpuCollectorBackend"]
