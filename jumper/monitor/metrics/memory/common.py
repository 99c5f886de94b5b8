"""What every memory collector returns."""

from __future__ import annotations

from abc import abstractmethod

from jumper.monitor.metrics.common import CollectionContext, CollectorBackend


class MemoryCollectorBackend(CollectorBackend):
    """A source of memory in use."""

    name = "memory-base"

    @abstractmethod
    def collect(self, level: str, context: CollectionContext) -> float | None:
        """Return GiB in use at the level."""
