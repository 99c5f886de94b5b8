"""What a monitor measured, by level and by node, readable while it is being measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import LevelSeries, read_frame, to_frame, with_cells, write_frame
from jumper.schema.errors import JumperError
from jumper.utilities import get_available_levels

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["NodeDataStore", "NodeInfo", "PerformanceData"]

_LEVELS = ("process", "user", "system", "slurm")
_IO = ("io_read", "io_write", "io_read_count", "io_write_count")


class PerformanceData:
    """The samples of one node, a series for each level.

    Any thread may add while others read; a reader gets the rows that were whole
    when it asked. Pandas is needed for reading only.

    Parameters
    ----------
    num_cpus : int
        CPUs available to the target.
    num_system_cpus : int
        CPUs of the machine.
    num_gpus : int

    Attributes
    ----------
    levels : list of str
    start_time : float or None
        Start of the measurement, monotonic seconds, where it is known. A series
        whose first time lies below it counts from it, and is shifted when read.

    Examples
    --------
    >>> data = PerformanceData(2, 2, 0)
    >>> data.add_sample("process", 10.0, [50.0, 100.0], 1.5, [], [], [], [0, 0, 0, 0])
    >>> data.add_sample("process", 12.0, [0.0, 50.0], 1.5, [], [], [], [100, 0, 4, 0])
    >>> data.view()[["time", "io_read", "io_read_count", "cpu_util_avg"]].to_numpy().tolist()
    [[10.0, nan, nan, 75.0], [12.0, 50.0, 2.0, 25.0]]
    """

    def __init__(self, num_cpus: int = 0, num_system_cpus: int = 0, num_gpus: int = 0) -> None:
        self.num_cpus = num_cpus
        self.num_system_cpus = num_system_cpus
        self.num_gpus = num_gpus
        self.start_time: float | None = None
        self.levels: list[str] = get_available_levels()
        self._series = {level: LevelSeries() for level in self.levels}
        self._io: dict[str, tuple[float, list[float | None]]] = {}
        self._lock = threading.Lock()

    def add_sample(
        self,
        level: str,
        time: float | Mapping[str, Any],
        cpu_util: Sequence[float] | None = None,
        memory: float | None = None,
        gpu_util: Sequence[float] | None = None,
        gpu_band: Sequence[float] | None = None,
        gpu_mem: Sequence[float] | None = None,
        io: Sequence[float | None] | None = None,
    ) -> None:
        """Add one sample: the documents' eight arguments, or ``add_sample(level, row)``.

        Parameters
        ----------
        level : str
        time : float or mapping
            Monotonic seconds; or the whole row, column -> number or None.
        cpu_util : sequence of float
            Percent of each core.
        memory : float
            GiB.
        gpu_util, gpu_band, gpu_mem : sequence of float
            Of each device: percent, percent, GiB.
        io : sequence of four numbers
            Bytes read, bytes written, reads, writes, all since some moment. They
            become rates by the time between two samples; the first sample has
            none, nor has one before which a counter was reset.

        Raises
        ------
        ValueError
            Where the level is unknown or ``io`` has not four values.
        TypeError
            Where a value is no number.
        """
        with self._lock:
            if level not in self._series:
                if level not in _LEVELS:
                    raise ValueError(f"unknown level {level!r}; known are {', '.join(_LEVELS)}")
                self.levels.append(level)
                self._series[level] = LevelSeries()
            if isinstance(time, Mapping):
                row = dict(time)
            else:
                row = {"time": time, "memory": memory, **self._rates(level, float(time), io)}
                for prefix, values in (
                    ("cpu_util", cpu_util),
                    ("gpu_util", gpu_util),
                    ("gpu_band", gpu_band),
                    ("gpu_mem", gpu_mem),
                ):
                    row.update(_devices(prefix, values))
            self._series[level].append(row)

    def __len__(self) -> int:
        with self._lock:
            return max(map(len, self._series.values()), default=0)

    @property
    def data(self) -> Mapping[str, pd.DataFrame]:
        """Level -> its samples as a table, made when it is asked for."""
        return _Frames(self)

    def view(
        self,
        level: str = "process",
        slice_: tuple[int, int] | None = None,
        cell_history: Any = None,
    ) -> pd.DataFrame:
        """Return the samples of a level.

        Parameters
        ----------
        level : str
        slice_ : (int, int), optional
            First and last row, both included.
        cell_history : object, optional
            Adds ``cell_index``; see :func:`jumper.adapters.frames.with_cells`.

        Returns
        -------
        DataFrame, shape (samples, columns)
            float64, in the documents' order: ``time`` (monotonic s), ``memory``
            (GiB), ``io_read`` and ``io_write`` (bytes/s), ``io_read_count`` and
            ``io_write_count`` (1/s), ``cpu_util_*`` (percent), ``gpu_*``, then all others.

        Raises
        ------
        ValueError
            Where there is no such level.
        """
        with self._lock:
            if level not in self._series:
                raise ValueError(f"no level {level!r} here; there are {', '.join(self.levels)}")
            columns = self._series[level].copy()
            start = self.start_time
        frame = to_frame(columns, start)
        return _chosen(frame, slice_, cell_history)

    def export(
        self,
        filename: str | os.PathLike[str] = "performance_data.csv",
        level: str = "process",
        cell_history: Any = None,
    ) -> None:
        """Write a level as CSV, JSON or Parquet, by the name's suffix.

        Raises
        ------
        JumperError
            Where the suffix is another one.
        """
        write_frame(self.view(level, cell_history=cell_history), filename)

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> pd.DataFrame:
        """Return the table that :meth:`export` wrote.

        Raises
        ------
        JumperError
            Where the file cannot be read as one.
        """
        return read_frame(filename)

    def _rates(self, level: str, time: float, io: Sequence[float | None] | None) -> dict[str, float | None]:
        given = [None] * 4 if io is None or len(io) == 0 else io
        counts: list[float | None] = [None if v is None else float(v) for v in given]
        if len(counts) != 4:
            raise ValueError(f"io: expected bytes read, bytes written, reads and writes, found {len(counts)} values")
        last_time, last = self._io.get(level, (time, [None] * 4))
        self._io[level] = (time, counts)
        rates: dict[str, float | None] = dict.fromkeys(_IO)
        for name, count, before in zip(_IO, counts, last, strict=True):
            if count is not None and before is not None and count >= before and time > last_time:
                rates[name] = (count - before) / (time - last_time)
        return rates


class _Frames(Mapping[str, "pd.DataFrame"]):
    """`PerformanceData.data`: looks like a dictionary of tables, holds none."""

    def __init__(self, owner: PerformanceData) -> None:
        self._owner = owner

    def __getitem__(self, level: str) -> pd.DataFrame:
        if level not in self._owner.levels:
            raise KeyError(level)
        return self._owner.view(level)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._owner.levels))

    def __len__(self) -> int:
        return len(self._owner.levels)


def _devices(prefix: str, values: Sequence[float] | None) -> dict[str, float | None]:
    """Return the columns of a list with one number a device."""
    if values is None or len(values) == 0:
        return {}
    known = [float(v) for v in values if v is not None and v == v]
    return {
        f"{prefix}_avg": sum(known) / len(known) if known else None,
        f"{prefix}_min": min(known, default=None),
        f"{prefix}_max": max(known, default=None),
        **{f"{prefix}_{index}": value for index, value in enumerate(values)},
    }


def _chosen(frame: pd.DataFrame, slice_: tuple[int, int] | None, cell_history: Any) -> pd.DataFrame:
    if slice_ is not None:
        frame = frame.iloc[slice_[0] : slice_[1] + 1]
    return frame if cell_history is None else with_cells(frame, cell_history)


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
        return _chosen(join_nodes(frames, weights), slice_, cell_history)

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
