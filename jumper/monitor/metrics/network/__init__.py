"""Network traffic of the node."""

from __future__ import annotations

from jumper.monitor.metrics.network.common import NetworkCollectorBackend
from jumper.monitor.metrics.network.counters import NetworkCollector

__all__ = ["NetworkCollector", "NetworkCollectorBackend"]
