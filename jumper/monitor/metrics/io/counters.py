"""Input and output, as the `process` and `node` collectors counted it."""

from __future__ import annotations

from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.io.common import IoCollectorBackend


class IoCollector(IoCollectorBackend):
    """Reads, writes, bytes read and bytes written of the level so far.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> context = new_context(0, 0)
    >>> context["counters"]["process"] = {"reads": 2, "writes": 1, "read_bytes": 4096}
    >>> IoCollector().collect("process", context)
    [2, 1, 4096, None]
    """

    name = "io-counters"

    def collect(self, level: str, context: CollectionContext) -> list[int | None] | None:
        """Return the four counters; None where the level has none."""
        counters = context["counters"].get(level)
        if counters is None:
            return None
        return [counters.get(name) for name in ("reads", "writes", "read_bytes", "write_bytes")]
