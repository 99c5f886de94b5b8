"""Memory in use, GiB."""

from __future__ import annotations

from jumper.monitor.metrics.memory.common import MemoryCollectorBackend
from jumper.monitor.metrics.memory.counters import MemoryCollector

__all__ = ["MemoryCollector", "MemoryCollectorBackend"]
