"""Input and output to storage."""

from __future__ import annotations

from jumper.monitor.metrics.io.common import IoCollectorBackend
from jumper.monitor.metrics.io.counters import IoCollector

__all__ = ["IoCollector", "IoCollectorBackend"]
