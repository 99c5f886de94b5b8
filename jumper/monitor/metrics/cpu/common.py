"""What every CPU collector returns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jumper.monitor.metrics.common import CollectionContext, CollectorBackend


class CpuCollectorBackend(CollectorBackend):
    """A source of CPU utilisation."""

    name = "cpu-base"

    @abstractmethod
    def collect(self, level: str, context: CollectionContext) -> Sequence[float | None] | None:
        """Return percent of each core, 0 to 100; at levels of processes their mean over the CPUs, repeated."""
