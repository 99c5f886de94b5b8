"""The samples of one node, by level, readable while they are being taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import LevelSeries, chosen, read_frame, to_frame, write_frame
from jumper.utilities import get_available_levels

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["PerformanceData"]

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
        return chosen(frame, slice_, cell_history)

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
