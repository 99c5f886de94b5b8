"""Network traffic of the node, and of the network namespaces that processes are in."""

from __future__ import annotations

from jumper.monitor.metrics.network.common import NetworkCollectorBackend
from jumper.monitor.metrics.network.counters import NetworkCollector
from jumper.monitor.metrics.network.namespaces import NamespaceTrafficCollector

__all__ = ["NamespaceTrafficCollector", "NetworkCollector", "NetworkCollectorBackend"]
