"""Network traffic of the node, as the `node` collector counted it."""

from __future__ import annotations

from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.network.common import NetworkCollectorBackend


class NetworkCollector(NetworkCollectorBackend):
    """Bytes and packets of all interfaces but the loopback, at the level ``system`` only.

    The kernel counts traffic by network namespace, not by process.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> NetworkCollector().collect("process", new_context(0, 0)) is None
    True
    """

    name = "network-counters"

    def collect(self, level: str, context: CollectionContext) -> list[int | None] | None:
        """Return the four counters; None at every other level."""
        counters = context["counters"].get(level)
        if counters is None or level != "system":
            return None
        names = ("net_sent_bytes", "net_recv_bytes", "net_sent_packets", "net_recv_packets")
        return [counters.get(name) for name in names]
