"""The documents' columns of GPUs, out of what the `gpu_counters` collector counted."""

from __future__ import annotations

import re
from collections import deque

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.gpu.common import SAMPLE_NS

Values = list[float | None]

_DEVICE = re.compile(r"gpu_(\d+)_memory_bytes")
GIB = 2**30


class GpuUtilizationCollector(CollectorBackend):
    """Percent of the time in which each device computed and moved memory, and GiB in use.

    Over the last second, where ticks are faster: drivers do not tell more often what processes do.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> gpu = GpuUtilizationCollector()
    >>> for second, busy in [(0, 0), (1, 4 * 10**8)]:
    ...     context = new_context(second * 10**9, 0)
    ...     context["counters"]["process"] = {"gpu_0_busy_ns": busy, "gpu_0_memory_bytes": 3 << 29}
    ...     gpu.collect("process", context)
    ([None], [None], [1.5])
    ([40.0], [None], [1.5])
    """

    name = "gpu-utilization"

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, dict[str, int | None]]]] = {}

    def collect(self, level: str, context: CollectionContext) -> tuple[Values, Values, Values] | None:
        """Return utilisation and use of the memory's bandwidth in percent, and memory in GiB; a number a device."""
        counters = context["counters"].get(level, {})
        devices = sorted(int(found[1]) for name in counters if (found := _DEVICE.fullmatch(name)))
        if not devices:
            return None
        seen = self._seen.setdefault(level, deque())
        while len(seen) > 1 and seen[1][0] <= context["mono_ns"] - SAMPLE_NS:
            seen.popleft()
        last_ns, last = seen[0] if seen else (context["mono_ns"], {})
        elapsed = context["mono_ns"] - last_ns
        seen.append((context["mono_ns"], {name: counters[name] for name in counters if name.startswith("gpu_")}))
        lists: tuple[Values, Values, Values] = ([], [], [])
        for index in range(devices[-1] + 1):  # a device that the level may not use has no value, and keeps its number
            for values, name in zip(lists, ("busy_ns", "band_ns"), strict=False):
                now, before = (of.get(f"gpu_{index}_{name}") for of in (counters, last))
                known = now is not None and before is not None and now >= before and elapsed > 0
                values.append(min(100.0, 100.0 * (now - before) / elapsed) if known else None)  # type: ignore[operator]
            memory = counters.get(f"gpu_{index}_memory_bytes")
            lists[2].append(None if memory is None else memory / GIB)
        return lists
