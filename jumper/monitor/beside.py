"""GPUs and energy for trees of processes that come and go: what each uses, beside what an engine counts of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jumper.config.entries import BUILT_IN, Refused
from jumper.monitor.metrics import here
from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import new_context

Row = dict[str, int | None]


def _gpu() -> CollectorBackend:
    from jumper.monitor.metrics.gpu import GpuCollector  # only where there is a device

    return GpuCollector(os.getpid())


def _energy() -> CollectorBackend:
    from jumper.monitor.metrics.energy import EnergyCollector

    return EnergyCollector()


#: what can be told of one tree among others
_COLLECTORS: dict[str, Callable[[], CollectorBackend]] = {"gpu_counters": _gpu, "energy": _energy}


class Beside:
    """Collectors that are asked for one tree after the other; made only where :meth:`wanted`.

    Parameters
    ----------
    tell : callable
        Takes the event of a collector that was switched off.

    Examples
    --------
    >>> beside = Beside(print)
    >>> set(beside.row("7", {1}, {"cpu_ns": 5}, 10)) <= {"energy_uj"} or Beside.wanted()
    True
    """

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._collectors: dict[str, CollectorBackend] = {}
        for name, make in _COLLECTORS.items():
            if here.BESIDE[name](os.getpid()) is None:
                self._collectors[name] = collector = make()
                self._try(name, collector.setup)

    @staticmethod
    def wanted() -> bool:
        """Return whether this machine has any of it."""
        return any(here.BESIDE[name](os.getpid()) is None for name in _COLLECTORS)

    def row(self, level: str, pids: Collection[int], counters: Mapping[str, int | None], mono_ns: int) -> Row:
        """Return the columns of a tree, or of ``system``, at a tick.

        Parameters
        ----------
        level : str
            ``system``, or a name of the tree that no other one has.
        pids : collection of int
            Its processes.
        counters : mapping
            What the engine read of it at that tick.
        """
        context = new_context(mono_ns, time.time_ns())
        context["counters"][level] = dict(counters)
        context[f"{level}_pids"] = set(pids)  # type: ignore[literal-required]
        found: Row = {}
        for name, collector in list(self._collectors.items()):
            found.update(self._try(name, lambda one=collector: one.collect(level, context)) or {})  # type: ignore[misc]
        return found

    def _try(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # of a vendor's library
            del self._collectors[name]
            text = f"collector {name} ({BUILT_IN}) is off: {type(error).__name__}: {error}"
            self._tell(Refused(name, BUILT_IN, text).event())
            return None

    def close(self) -> None:
        """Let go of the libraries."""
        for name, collector in list(self._collectors.items()):
            self._try(name, collector.close)
