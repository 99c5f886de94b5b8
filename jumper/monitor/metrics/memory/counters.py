"""Memory in use, as the `process` and `node` collectors read it."""

from __future__ import annotations

from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.memory.common import MemoryCollectorBackend

GIB = 2**30


class MemoryCollector(MemoryCollectorBackend):
    """``memory_bytes`` of the level, in GiB.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> context = new_context(0, 0)
    >>> context["counters"]["system"] = {"memory_bytes": 3 << 29}
    >>> MemoryCollector().collect("system", context)
    1.5
    """

    name = "memory-counters"

    def collect(self, level: str, context: CollectionContext) -> float | None:
        """Return GiB in use at the level; None where it is not known."""
        used = context["counters"].get(level, {}).get("memory_bytes")
        return None if used is None else used / GIB
