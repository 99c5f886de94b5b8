"""What every network collector returns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jumper.monitor.metrics.common import CollectionContext, CollectorBackend


class NetworkCollectorBackend(CollectorBackend):
    """A source of network traffic."""

    name = "network-base"

    @abstractmethod
    def collect(self, level: str, context: CollectionContext) -> Sequence[int | None] | None:
        """Return the cumulative bytes sent, bytes received, packets sent and packets received."""
