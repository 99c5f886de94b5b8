"""What our monitors have in common: the attributes of the protocol, start and stop, and rows into tables."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.config.libraries import LEVELS
from jumper.monitor.nodefacts import node_facts
from jumper.monitor.pipeline import load_config
from jumper.schema.errors import JumperError
from jumper.utilities import get_available_levels, parse_interval, slurm_job_id


class Source(Protocol):
    """Where the rows of a monitor come from: an engine in this process, or an agent."""

    on_end: Callable[[str | None], None] | None

    def start(self) -> Any:
        """Begin; the first sample is taken before this returns."""
        ...

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on."""
        ...

    def flush(self) -> int:
        """Take a sample now."""
        ...

    def stop(self) -> None:
        """Take the last sample and end."""
        ...


class BaseMonitor(ABC):
    """A monitor but for where its rows come from; its state stands in real attributes from the start on.

    Parameters
    ----------
    levels : collection of str, optional
        Default: all of :func:`jumper.utilities.get_available_levels`.
    collectors : path, optional
        A collectors.yaml that adds to the built-in one.
    pid : int, optional
        The target; default this process.

    Raises
    ------
    JumperError
        Where a level is unknown here, or the collectors are wrong.

    Attributes
    ----------
    data : PerformanceData
        One row a tick and level.
    nodes : NodeDataStore
    reason : str or None
        Why it stopped, where nobody stopped it.
    """

    def __init__(
        self,
        levels: Collection[str] | None = None,
        collectors: str | os.PathLike[str] | None = None,
        pid: int | None = None,
    ) -> None:
        self.levels = _known(get_available_levels() if levels is None else levels)
        self.config = load_config(collectors)
        facts = node_facts()
        self.node = str(facts["node"])
        self.interval = 1.0
        self.running = False
        self.start_time: float | None = None
        self.stop_time: float | None = None
        self.wallclock_start_time: float | None = None
        self.wallclock_stop_time: float | None = None
        self.num_cpus = int(facts["num_cpus"])
        self.num_system_cpus = int(facts["num_system_cpus"])
        self.num_gpus = int(facts["num_gpus"])
        self.gpu_memory = float(facts["gpu_memory"])
        self.gpu_name = str(facts["gpu_name"])
        self.cpu_handles: list[int] = list(facts["cpu_handles"])
        self.memory_limits: dict[str, float] = dict(facts["memory_limits"])
        self.is_imported = False
        self.session_source: str | None = None
        self.pid = pid if pid is not None else os.getpid()
        self.uid = os.getuid()
        self.slurm_job = slurm_job_id()
        self.reason: str | None = None
        self.events: list[dict[str, Any]] = []
        self.node_info = NodeInfo(
            node=self.node,
            num_cpus=self.num_cpus,
            num_system_cpus=self.num_system_cpus,
            num_gpus=self.num_gpus,
            gpu_memory=self.gpu_memory,
            gpu_name=self.gpu_name,
            memory_limits=self.memory_limits,
            cpu_handles=self.cpu_handles,
        )
        self._source: Source | None = None
        self._reset()

    @abstractmethod
    def _make(self) -> Source:
        """Return a new source for the target, interval, levels and collectors."""

    def start(self, interval: float = 1.0) -> None:
        """Begin to sample; the first sample is taken before this returns.

        Parameters
        ----------
        interval : float
            Seconds between samples.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        MonitorUnavailableError
            Where the thread or the process that samples does not start; the message says why.
        """
        if self.running:
            return
        self._begin(interval)
        self._source = source = self._make()
        source.on_end = self._ended
        self.running = True  # before its first sample, after which it may have ended already
        try:
            source.start()
        except BaseException:
            self.running = False
            raise

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on, also while it runs; the schedule goes on.

        What was taken of the others stays. A level that comes back begins its counters anew,
        so its first row has no rates.

        Raises
        ------
        JumperError
            Where a level is unknown here; nothing is changed then.
        """
        self.levels = _known(levels)
        if self._source is not None and self.running:
            self._source.set_levels(self.levels)

    def sample(self) -> None:
        """Take a sample now, beside the schedule; nothing happens where the monitor does not run."""
        if self._source is not None and self.running:
            self._source.flush()

    def stop(self) -> None:
        """Take a last sample and end; safe to call twice, and before :meth:`start`."""
        if self._source is None or not self.running:
            return
        self._source.stop()
        self._finish()

    def _ended(self, reason: str | None) -> None:
        self.reason = reason
        self._finish()

    def _reset(self) -> None:
        self.data = PerformanceData(self.num_cpus, self.num_system_cpus, self.num_gpus)
        self.nodes = NodeDataStore()
        self.nodes.register_node(self.node_info, self.data)

    def _begin(self, interval: float) -> None:
        """Set what :meth:`start` sets, before the first sample."""
        self.interval = parse_interval(interval)
        if self.start_time is not None:
            self._reset()
        self.reason = None
        self.stop_time = self.wallclock_stop_time = None
        self.start_time = time.monotonic()
        self.wallclock_start_time = time.time()
        self.data.start_time = self.start_time

    def _finish(self) -> None:
        self.running = False
        self.stop_time = time.monotonic()
        self.wallclock_stop_time = time.time()

    def _take(self, level: str, row: Mapping[str, Any]) -> None:
        """Put a row of a level into the tables; other streams are not tables of the documents."""
        if level in LEVELS:
            clean = {name: value for name, value in row.items() if name not in ("mono_ns", "pid")}
            self.data.add_sample(level, {"time": row["mono_ns"] / 1e9, **clean})

    def _note(self, record: Mapping[str, Any]) -> None:
        self.events.append(dict(record))


def _known(levels: Collection[str]) -> list[str]:
    known = get_available_levels()
    for level in levels:
        if level not in known:
            raise JumperError(f"unknown level {level!r}; here are {', '.join(known)}")
    return list(levels)
