"""The nodes that a monitor measured: their hardware and their samples, each node's or all of them joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import chosen, read_frame, write_frame
from jumper.adapters.samples import PerformanceData
from jumper.schema.errors import JumperError
from jumper.utilities import get_available_levels

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["NodeDataStore", "NodeInfo", "PerformanceData"]


@dataclass
class NodeInfo:
    """A node's hardware, as the monitors and the collectors' ``node_info`` have it.

    Attributes
    ----------
    node : str
        Its name.
    num_cpus, num_system_cpus, num_gpus : int
        CPUs available to the target; CPUs of the machine; devices.
    gpu_memory : float
        GiB a device.
    gpu_name : str
    memory_limits : dict of str to float
        Level -> GiB.
    cpu_handles : list of int
        The available CPUs' numbers.
    """

    node: str
    num_cpus: int
    num_system_cpus: int
    num_gpus: int = 0
    gpu_memory: float = 0.0
    gpu_name: str = ""
    memory_limits: dict[str, float] = field(default_factory=dict)
    cpu_handles: list[int] = field(default_factory=list)


class NodeDataStore:
    """The nodes that a monitor measured: their hardware and their samples.

    Attributes
    ----------
    hardware : dict of str to NodeInfo

    Examples
    --------
    >>> store = NodeDataStore()
    >>> for name, gib in [("n1", 1.0), ("n2", 2.0)]:
    ...     store.register_node(NodeInfo(name, 2, 2))
    ...     for second in (0.0, 1.0):
    ...         store.add_sample(name, "process", {"time": second, "memory": gib})
    >>> store.view("process")["memory"].tolist()
    [3.0, 3.0]
    """

    def __init__(self) -> None:
        self.hardware: dict[str, NodeInfo] = {}
        self._data: dict[str, PerformanceData] = {}

    def register_node(self, info: NodeInfo, data: PerformanceData | None = None) -> None:
        """Add a node, or replace it.

        Parameters
        ----------
        info : NodeInfo
        data : PerformanceData, optional
            Its samples, where a monitor keeps them itself; else a new, empty container.
        """
        if data is None:
            data = PerformanceData(info.num_cpus, info.num_system_cpus, info.num_gpus)
        self._data = {**self._data, info.node: data}
        self.hardware = {**self.hardware, info.node: info}

    def node_names(self) -> list[str]:
        """Return the names of the nodes that are measured."""
        return list(self.hardware)

    @property
    def levels(self) -> list[str]:
        """Levels of the nodes' samples."""
        if not self._data:
            return get_available_levels()
        return list(dict.fromkeys(level for data in self._data.values() for level in data.levels))

    def add_sample(self, node: str, level: str, row: Mapping[str, Any]) -> None:
        """Add one row of a node.

        Raises
        ------
        JumperError
            Where the node was not registered.
        """
        self._of(node).add_sample(level, row)

    def view(
        self,
        level: str = "process",
        node: str | None = None,
        slice_: tuple[int, int] | None = None,
        cell_history: Any = None,
    ) -> pd.DataFrame:
        """Return the samples of a level: of one node, or of all, joined by time.

        Parameters
        ----------
        level : str
        node : str, optional
            Default: all nodes; see :func:`jumper.adapters.join.join_nodes`.
        slice_, cell_history
            As in :meth:`PerformanceData.view`.

        Raises
        ------
        JumperError
            Where there is no such node.
        ValueError
            Where there is no such level.
        """
        stores = self._data
        if node is not None or len(stores) == 1:
            return self._of(node or next(iter(stores))).view(level, slice_, cell_history)
        if not stores:
            return PerformanceData().view(level, slice_, cell_history)
        if level not in self.levels:
            raise ValueError(f"no level {level!r} here; there are {', '.join(self.levels)}")
        from jumper.adapters.join import join_nodes

        weights = {
            name: float(info.num_system_cpus if level == "system" else info.num_cpus)
            for name, info in self.hardware.items()
        }
        frames = {name: data.view(level) for name, data in stores.items() if level in data.levels}
        return chosen(join_nodes(frames, weights), slice_, cell_history)

    def joined(self) -> PerformanceData:
        """Return what :meth:`view` gives of all nodes, now and later, as one container that is only read."""
        return _Joined(self)

    def export(
        self,
        filename: str | os.PathLike[str] = "performance_data.csv",
        level: str = "process",
        cell_history: Any = None,
        node: str | None = None,
    ) -> None:
        """Write what :meth:`view` returns as CSV, JSON or Parquet, by the name's suffix."""
        write_frame(self.view(level, node, cell_history=cell_history), filename)

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> pd.DataFrame:
        """Return the table that :meth:`export` wrote."""
        return read_frame(filename)

    def _of(self, node: str) -> PerformanceData:
        if node not in self._data:
            raise JumperError(f"no node {node!r} here; there are {', '.join(self._data) or 'none'}")
        return self._data[node]


class _Joined(PerformanceData):
    """All nodes of a store as one, which is only read."""

    def __init__(self, store: NodeDataStore) -> None:
        self._store = store
        self.start_time = None

    @property
    def num_cpus(self) -> int:  # type: ignore[override]
        return sum(info.num_cpus for info in self._store.hardware.values())

    @property
    def num_system_cpus(self) -> int:  # type: ignore[override]
        return sum(info.num_system_cpus for info in self._store.hardware.values())

    @property
    def num_gpus(self) -> int:  # type: ignore[override]
        return sum(info.num_gpus for info in self._store.hardware.values())

    @property
    def levels(self) -> list[str]:  # type: ignore[override]
        return self._store.levels

    def __len__(self) -> int:
        return max(map(len, self._store._data.values()), default=0)

    def add_sample(self, level: str, *arguments: Any, **keywords: Any) -> None:
        raise JumperError("samples of several nodes are added to a node: nodes.add_sample(node, level, row)")

    def view(
        self, level: str = "process", slice_: tuple[int, int] | None = None, cell_history: Any = None
    ) -> pd.DataFrame:
        return self._store.view(level, None, slice_, cell_history)
