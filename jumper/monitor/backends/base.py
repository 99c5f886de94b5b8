"""What our monitors have in common: the attributes of the protocol, and rows into tables."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any

from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.monitor.nodefacts import node_facts
from jumper.monitor.pipeline import load_config
from jumper.schema.errors import JumperError
from jumper.utilities import get_available_levels, parse_interval, slurm_job_id


class BaseMonitor:
    """State that every monitor of ours has from the start on, as real attributes.

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
    """

    def __init__(
        self,
        levels: Collection[str] | None = None,
        collectors: str | os.PathLike[str] | None = None,
        pid: int | None = None,
    ) -> None:
        known = get_available_levels()
        self.levels: list[str] = list(known if levels is None else levels)
        unknown = [level for level in self.levels if level not in known]
        if unknown:
            raise JumperError(f"unknown level {unknown[0]!r}; here are {', '.join(known)}")
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
        self.num_gpus = 0
        self.gpu_memory = 0.0
        self.gpu_name = ""
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
            num_gpus=0,
            gpu_memory=0.0,
            gpu_name="",
            memory_limits=self.memory_limits,
            cpu_handles=self.cpu_handles,
        )
        self._reset()

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
        if level in self.levels:
            clean = {name: value for name, value in row.items() if name not in ("mono_ns", "pid")}
            self.data.add_sample(level, {"time": row["mono_ns"] / 1e9, **clean})

    def _note(self, record: Mapping[str, Any]) -> None:
        self.events.append(dict(record))
