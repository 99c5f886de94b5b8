"""What every I/O collector returns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jumper.monitor.metrics.common import CollectionContext, CollectorBackend


class IoCollectorBackend(CollectorBackend):
    """A source of storage I/O."""

    name = "io-base"

    @abstractmethod
    def collect(self, level: str, context: CollectionContext) -> Sequence[int | None] | None:
        """Return the cumulative reads, writes, bytes read and bytes written of the level."""
