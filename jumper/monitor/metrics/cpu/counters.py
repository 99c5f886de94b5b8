"""CPU utilisation out of the CPU time that the `process` and `node` collectors counted."""

from __future__ import annotations

import re
from typing import Protocol

from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.cpu.common import CpuCollectorBackend

_CORE = re.compile(r"cpu_(\d+)_ns")


class _Cpus(Protocol):
    num_cpus: int
    num_system_cpus: int


class CpuCollector(CpuCollectorBackend):
    """CPU time between two ticks over the time between them.

    Parameters
    ----------
    node_info : object
        With ``num_cpus`` (available to the target) and ``num_system_cpus``.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from jumper.monitor.metrics.context import new_context
    >>> cpu = CpuCollector(SimpleNamespace(num_cpus=2, num_system_cpus=2))
    >>> for second, used in [(0, 0), (1, 10**9)]:
    ...     context = new_context(second * 10**9, 0)
    ...     context["counters"]["process"] = {"cpu_ns": used}
    ...     cpu.collect("process", context)
    [None, None]
    [50.0, 50.0]
    """

    name = "cpu-counters"

    def __init__(self, node_info: _Cpus) -> None:
        self._node_info = node_info
        self._last: dict[str, tuple[int, dict[int, int]]] = {}

    def collect(self, level: str, context: CollectionContext) -> list[float | None] | None:
        """Return percent of each core; None where the level has no counters."""
        counters = context["counters"].get(level)
        if counters is None:
            return None
        cores, share, repeat = self._cores(level, counters)
        mono_ns = context["mono_ns"]
        last_ns, last = self._last.get(level, (mono_ns, {}))
        self._last[level] = (mono_ns, {core: ns for core, ns in cores.items() if ns is not None})
        elapsed = (mono_ns - last_ns) * share
        values: list[float | None] = []
        for core, ns in sorted(cores.items()):
            before = last.get(core)
            if ns is None or before is None or ns < before or elapsed <= 0:
                values.append(None)
            else:
                # two clocks read a moment apart can give a little more than all of the time
                values.append(min(100.0, 100.0 * (ns - before) / elapsed))
        return values * repeat

    def _cores(self, level: str, counters: dict[str, int | None]) -> tuple[dict[int, int | None], int, int]:
        """Return core -> CPU time in ns, the CPUs that each stands for, and how often to repeat the list."""
        if level == "system":
            cores = {int(m[1]): ns for name, ns in counters.items() if (m := _CORE.fullmatch(name))}
            if cores:
                return cores, 1, 1
            cpus = max(1, self._node_info.num_system_cpus)
        else:
            cpus = max(1, self._node_info.num_cpus)
        return {0: counters.get("cpu_ns")}, cpus, cpus
