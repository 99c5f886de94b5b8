"""What an analysis needs of a run: its tables, behind one small protocol; and plain arrays out of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Texts = NDArray[np.object_]

#: Columns of samples that say where a row is from, and measure nothing.
KEYS = ("time_ns", "mono_ns", "node", "segment", "pid", "tid", "_series")


class RunTables(Protocol):
    """The tables of one run, as :class:`jumper.Run` has them.

    ``samples(stream)`` gives an empty frame where the run has no such stream.
    """

    @property
    def path(self) -> Path:
        """Where the run lies."""

    @property
    def info(self) -> Mapping[str, Any]:
        """run.json."""

    @property
    def tasks(self) -> pd.DataFrame:
        """The tasks table."""

    @property
    def events(self) -> pd.DataFrame:
        """The events table."""

    @property
    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Facts about each node."""

    def samples(self, stream: str, node: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Samples of a stream, by time."""


#: Columns of the tasks table that are read most often.
_WORDS = ("group", "node", "worker", "state")


class Cached:
    """The tables of a run, each stream of samples read once: for as long as one page or picture is made."""

    def __init__(self, run: RunTables) -> None:
        self.path, self.info, self.nodes = run.path, run.info, run.nodes
        words = [name for name in _WORDS if name in run.tasks and isinstance(run.tasks[name].dtype, pd.StringDtype)]
        # strings of Python are what all these analyses read, a dozen times
        self.tasks = run.tasks.astype(dict.fromkeys(words, pd.StringDtype("python"))) if words else run.tasks
        self.events = run.events
        self._run = run
        self._streams: dict[str, pd.DataFrame] = {}

    def samples(self, stream: str, node: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return samples as the run does; ``node`` and ``columns`` are not remembered."""
        if node is not None or columns is not None:
            return self._run.samples(stream, node, columns)
        if stream not in self._streams:
            samples = self._run.samples(stream)
            self._streams[stream] = samples.assign(_series=_numbered(samples)) if _series_keys(samples) else samples
        return self._streams[stream]


def floats(frame: pd.DataFrame, column: str) -> Floats:
    """Return a column as float64, null as NaN; all NaN where the frame lacks the column.

    Examples
    --------
    >>> floats(pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "a").tolist()
    [1.0, nan]
    """
    if column not in frame:
        return np.full(len(frame), np.nan)
    values = pd.to_numeric(frame[column], errors="coerce")
    return np.asarray(values.to_numpy(dtype="float64", na_value=np.nan), dtype="float64")


def times(frame: pd.DataFrame, column: str, missing: int = 0) -> Ints:
    """Return a column of UTC ns as int64 (a double would lose 256 ns), null as ``missing``."""
    if column not in frame:
        return np.full(len(frame), missing, dtype="int64")
    return np.asarray(frame[column].to_numpy(dtype="int64", na_value=missing), dtype="int64")


def texts(frame: pd.DataFrame, column: str) -> list[str]:
    """Return a column as strings, null as the empty string."""
    if column not in frame:
        return [""] * len(frame)
    if isinstance(frame[column].dtype, pd.StringDtype):
        return list(frame[column].to_numpy(dtype=object, na_value=""))
    values = frame[column].to_numpy(dtype=object)
    return ["" if missing else str(value) for value, missing in zip(values, pd.isna(values), strict=True)]


def series(samples: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Split samples into the series of single counters: one a node, segment, process and thread.

    Yields
    ------
    keys : dict
        ``node``, ``segment``, ``pid``, ``tid`` as far as the frame has them.
    rows : DataFrame
        Its rows in the order of time.
    """
    names = [name for name in ("node", "segment", "pid", "tid") if name in samples]
    if samples.empty or not names:
        return
    for values, rows in samples.groupby(names, dropna=False, sort=True):
        yield dict(zip(names, values, strict=True)), rows.sort_values("time_ns", kind="stable")


def in_series(samples: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the order of samples by series, each by time, and the number of its series for each of these.

    What :func:`series` yields one by one, for runs that have a series a job.

    Examples
    --------
    >>> frame = pd.DataFrame({"node": "n", "pid": [7, 3, 7], "time_ns": [2, 0, 1]})
    >>> [part.tolist() for part in in_series(frame)]
    [[1, 2, 0], [0, 1, 1]]
    """
    if samples.empty or not _series_keys(samples):
        return np.zeros(0, dtype="int64"), np.zeros(0, dtype="int64")
    if "_series" in samples:  # by time already, and what one stream has of series fits two bytes but rarely
        number = samples["_series"].to_numpy()
        order = np.argsort(number.astype("uint16") if number.max() < 2**16 else number, kind="stable")
        return order, np.cumsum(np.diff(number[order], prepend=number[order[:1]]) != 0)
    number = _numbered(samples)
    order = np.lexsort((times(samples, "time_ns"), number)).astype("int64")
    return order, number[order].astype("int64")


def _series_keys(samples: pd.DataFrame) -> list[str]:
    place = "segment" if "segment" in samples else "node"  # a segment is one node's
    return [name for name in (place, "pid", "tid") if name in samples]


def _numbered(samples: pd.DataFrame) -> Ints:
    """Return the number of the series of each sample."""
    return np.asarray(samples.groupby(_series_keys(samples), dropna=False, sort=True).ngroup(), dtype="int64")


def custom_columns(samples: pd.DataFrame) -> list[str]:
    """Return the columns that no built-in stored column declares: a custom collector's."""
    from jumper.schema.columns import declared

    return [name for name in samples.columns if declared(name) is None and name not in KEYS]


def interval_of(run: RunTables) -> float:
    """Return the sampling interval of a run in seconds; 1.0 where it is not recorded."""
    value = run.info.get("interval_s")
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0
