"""Measurements that are over: a session that was read, and what earlier monitors left."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.adapters.frames import LevelSeries, pandas
from jumper.schema.errors import MonitorUnavailableError
from jumper.utilities import node_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OfflineMonitor", "RecordedData", "all_hardware", "frames_of", "joined_stores", "nodes_of"]


class RecordedData(PerformanceData):
    """The tables of a node that is not measured any more.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Level -> its samples, numbers only, with times that are absolute.
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame], info: NodeInfo) -> None:
        super().__init__(info.num_cpus, info.num_system_cpus, info.num_gpus)
        self.levels = list(frames)
        self._series = {level: LevelSeries.of_frame(frame) for level, frame in frames.items()}


class OfflineMonitor:
    """A monitor of the protocol that shows what was measured elsewhere; it cannot be started.

    Parameters
    ----------
    nodes : NodeDataStore
    source : str
        Where it comes from.
    facts : mapping
        Of the monitor that measured: ``interval``, ``start_time``, ``stop_time``,
        ``wallclock_start_time``, ``wallclock_stop_time``, ``pid``, ``uid``, ``slurm_job``.
    """

    def __init__(self, nodes: NodeDataStore, source: str, facts: Mapping[str, Any]) -> None:
        whole = all_hardware(nodes)
        self.nodes = nodes
        self.levels = nodes.levels
        self.interval = float(facts.get("interval") or 1.0)
        self.running = False
        self.start_time: float | None = facts.get("start_time")
        self.stop_time: float | None = facts.get("stop_time")
        self.wallclock_start_time: float | None = facts.get("wallclock_start_time")
        self.wallclock_stop_time: float | None = facts.get("wallclock_stop_time")
        self.num_cpus = whole.num_cpus
        self.num_system_cpus = whole.num_system_cpus
        self.num_gpus = whole.num_gpus
        self.gpu_memory = whole.gpu_memory
        self.gpu_name = whole.gpu_name
        self.cpu_handles = whole.cpu_handles
        self.memory_limits = whole.memory_limits
        self.pid, self.uid, self.slurm_job = facts.get("pid"), facts.get("uid"), facts.get("slurm_job")
        self.is_imported = True
        self.session_source: str | None = source
        self.data: PerformanceData = RecordedData({level: nodes.view(level) for level in nodes.levels}, whole)

    def start(self, interval: float = 1.0) -> NoReturn:
        """Raise: what is over cannot go on."""
        raise MonitorUnavailableError(f"{self.session_source} is an imported session; start another monitor")

    def stop(self) -> None:
        """Do nothing."""


def nodes_of(monitor: Any) -> Any:
    """Return the nodes of a monitor: its own store, or one made of the protocol's attributes.

    Parameters
    ----------
    monitor : MonitorProtocol
    """
    nodes = getattr(monitor, "nodes", None)
    if nodes is not None:
        return nodes
    store = NodeDataStore()
    if monitor.data is not None:
        info = NodeInfo(
            node=node_name(),
            num_cpus=monitor.num_cpus,
            num_system_cpus=monitor.num_system_cpus,
            num_gpus=monitor.num_gpus,
            gpu_memory=monitor.gpu_memory,
            gpu_name=monitor.gpu_name,
            memory_limits=dict(monitor.memory_limits),
            cpu_handles=list(monitor.cpu_handles),
        )
        store.register_node(info, monitor.data)
    return store


def frames_of(nodes: Any, node: str) -> dict[str, pd.DataFrame]:
    """Return level -> samples of one node, for the levels that it has; nothing where it is not there."""
    frames: dict[str, pd.DataFrame] = {}
    for level in nodes.levels if node in nodes.node_names() else ():
        with contextlib.suppress(ValueError):  # not every node has every level
            frames[level] = nodes.view(level, node=node)
    return frames


def joined_stores(stores: Sequence[Any]) -> NodeDataStore:
    """Return one store of what several monitors measured one after the other on the same clock, as it is now."""
    out = NodeDataStore()
    infos: dict[str, NodeInfo] = {}
    for store in stores:
        infos.update(store.hardware)
    for node, info in infos.items():
        frames: dict[str, list[pd.DataFrame]] = {}
        for store in stores:
            for level, frame in frames_of(store, node).items():
                frames.setdefault(level, []).append(frame)
        joined = {level: _one_after_the_other(parts) for level, parts in frames.items()}
        out.register_node(info, RecordedData(joined, info))
    return out


def _one_after_the_other(frames: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    joined: pd.DataFrame = filled[0] if len(filled) == 1 else pandas().concat(filled, ignore_index=True)
    return joined


def all_hardware(nodes: Any) -> NodeInfo:
    """Return the nodes' hardware as if it were one node's: counts and limits summed, the largest device.

    Examples
    --------
    >>> store = NodeDataStore()
    >>> for name in ("n1", "n2"):
    ...     store.register_node(NodeInfo(name, 2, 4, memory_limits={"process": 8.0}))
    >>> whole = all_hardware(store)
    >>> whole.node, whole.num_cpus, whole.num_system_cpus, whole.memory_limits
    ('n1, n2', 4, 8, {'process': 16.0})
    """
    infos: list[NodeInfo] = list(nodes.hardware.values())
    if len(infos) == 1:
        return infos[0]
    limits: dict[str, float] = {}
    for info in infos:
        for level, limit in info.memory_limits.items():
            limits[level] = limits.get(level, 0.0) + limit
    return NodeInfo(
        node=", ".join(info.node for info in infos),
        num_cpus=sum(info.num_cpus for info in infos),
        num_system_cpus=sum(info.num_system_cpus for info in infos),
        num_gpus=sum(info.num_gpus for info in infos),
        gpu_memory=max((info.gpu_memory for info in infos), default=0.0),
        gpu_name=next((info.gpu_name for info in infos if info.gpu_name), ""),
        memory_limits=limits,
        cpu_handles=[],
    )
