"""Network traffic of the node through psutil, loopback included: the documents' example."""

from __future__ import annotations

import psutil

from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.network.common import NetworkCollectorBackend


class PsutilNetworkCollector(NetworkCollectorBackend):
    """Bytes and packets of all interfaces, at the level ``system``; zeros at the others.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> len(PsutilNetworkCollector().collect("system", new_context(0, 0)))
    4
    """

    name = "network-psutil"

    def collect(self, level: str, context: CollectionContext) -> list[int]:
        """Return the four counters."""
        traffic = psutil.net_io_counters() if level == "system" else None
        if traffic is None:
            return [0, 0, 0, 0]
        return [traffic.bytes_sent, traffic.bytes_recv, traffic.packets_sent, traffic.packets_recv]
