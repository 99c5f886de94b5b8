"""One level's samples in memory, as a table, and in a file."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.schema.errors import JumperError, MissingExtraError

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["BASE_COLUMNS", "LevelSeries", "chosen", "column_order", "read_frame", "with_cells", "write_frame"]

#: The documents' columns that every level has, in their order.
BASE_COLUMNS = (
    "time",
    "memory",
    "io_read_count",
    "io_write_count",
    "io_read",
    "io_write",
    "cpu_util_avg",
    "cpu_util_min",
    "cpu_util_max",
)

_GPU = {
    f"gpu_{metric}_{part}": (1 + index)
    for index, (part, metric) in enumerate((p, m) for p in ("avg", "min", "max") for m in ("util", "band", "mem"))
}
_DEVICE = re.compile(r"(cpu_util|gpu_util|gpu_band|gpu_mem)_(\d+)")
_NAN = float("nan")


class LevelSeries:
    """Rows of one level, held by column in 8 bytes a value; not safe by itself against another thread.

    Examples
    --------
    >>> series = LevelSeries()
    >>> series.append({"time": 1.0, "memory": 2.0})
    >>> series.append({"time": 2.0, "temperature": 40})
    >>> len(series), series.columns["memory"][1] != series.columns["memory"][1]
    (2, True)
    """

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {}
        self._rows = 0

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> LevelSeries:
        """Return the series of a table of numbers."""
        series = cls()
        series.columns = {str(name): array("d", frame[name].to_numpy("float64").tobytes()) for name in frame}
        series._rows = len(frame)
        return series

    def __len__(self) -> int:
        return self._rows

    def append(self, row: Mapping[str, Any]) -> None:
        """Take one row; a column that it lacks, and None, are missing values.

        Raises
        ------
        TypeError
            Where a value is no number; nothing of the row is taken then.
        """
        values = {}
        for name, value in row.items():
            try:
                values[name] = _NAN if value is None else float(value)
            except (TypeError, ValueError):
                raise TypeError(f"column {name}: expected a number or None, found {value!r:.60}") from None
        for name in values.keys() - self.columns.keys():
            self.columns[name] = array("d", [_NAN]) * self._rows
        for name, column in self.columns.items():
            column.append(values.get(name, _NAN))
        self._rows += 1

    def copy(self) -> dict[str, array[float]]:
        """Return the columns as they are now."""
        return {name: column[:] for name, column in self.columns.items()}


def column_order(names: Iterable[str]) -> list[str]:
    """Return the names in the documents' order; what they do not know comes last, as it came.

    Examples
    --------
    >>> column_order(["cpu_util_10", "cpu_util_2", "temperature", "gpu_mem_0", "cpu_util_avg", "time"])
    ['time', 'cpu_util_avg', 'cpu_util_2', 'cpu_util_10', 'gpu_mem_0', 'temperature']
    """

    def place(name: str) -> tuple[int, int, int]:
        if name in BASE_COLUMNS:
            return 0, BASE_COLUMNS.index(name), 0
        if name in _GPU:
            return 2, _GPU[name], 0
        device = _DEVICE.fullmatch(name)
        if device is None:
            return 4, 0, 0
        kind = ("cpu_util", "gpu_util", "gpu_band", "gpu_mem").index(device[1])
        return (1, 0, int(device[2])) if kind == 0 else (3, kind, int(device[2]))

    return sorted(names, key=place)


def to_frame(columns: Mapping[str, array[float]], start_time: float | None) -> pd.DataFrame:
    """Return columns as a table of float64.

    Parameters
    ----------
    columns : mapping of str to array
        Of equal length.
    start_time : float or None
        Where the first time lies below it, all times count from it, and are shifted.
    """
    table = pandas().DataFrame
    import numpy as np

    frame: pd.DataFrame = table({name: np.empty(0) for name in BASE_COLUMNS})
    if not columns:
        return frame
    frame = table({name: np.frombuffer(columns[name], dtype="float64") for name in column_order(columns)})
    if start_time is not None and "time" in frame and len(frame) and frame["time"].iloc[0] < start_time:
        frame["time"] = frame["time"] + start_time
    return frame


def chosen(frame: pd.DataFrame, slice_: tuple[int, int] | None, cell_history: Any) -> pd.DataFrame:
    """Return the rows from a first to a last one, both included (None: all), with their cells where there are some."""
    if slice_ is not None:
        frame = frame.iloc[slice_[0] : slice_[1] + 1]
    return frame if cell_history is None else with_cells(frame, cell_history)


def with_cells(frame: pd.DataFrame, cell_history: Any) -> pd.DataFrame:
    """Return the table with a column ``cell_index``: the notebook cell that ran at each row's time, or null.

    Parameters
    ----------
    frame : DataFrame
    cell_history : DataFrame or object
        A table, or an object with it as ``data``, of ``cell_index``, ``start_time`` and ``end_time``.
    """
    cells = getattr(cell_history, "data", cell_history)
    frame = frame.copy()
    frame["cell_index"] = pandas().array([None] * len(frame), dtype="Int64")
    for cell in cells.itertuples(index=False):
        inside = (frame["time"] >= cell.start_time) & (frame["time"] <= cell.end_time)
        frame.loc[inside, "cell_index"] = cell.cell_index
    return frame


def write_frame(frame: pd.DataFrame, filename: str | os.PathLike[str]) -> None:
    """Write a table as CSV, JSON (a list of records) or Parquet, by the suffix; folders are made.

    Raises
    ------
    JumperError
        Where the suffix is another one.
    MissingExtraError
        Where Parquet is asked for and pyarrow is not installed.
    """
    path = Path(filename).expanduser()
    suffix = _suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".json":
        # not to_json: it rounds a float to 15 digits, and a time in ns needs more
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        path.write_text(json.dumps(records, indent=1, default=str) + "\n")
    else:
        _pyarrow()
        frame.to_parquet(path, index=False)


def read_frame(filename: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table that :func:`write_frame` wrote.

    Raises
    ------
    JumperError
        Where the file is not there, is no such table, or its suffix is unknown.
    """
    path = Path(filename).expanduser()
    suffix = _suffix(path)
    reader = pandas()
    frame: pd.DataFrame
    try:
        if suffix == ".csv":
            frame = reader.read_csv(path)
        elif suffix == ".json":
            frame = reader.DataFrame(json.loads(path.read_text())).apply(reader.to_numeric)
        else:
            _pyarrow()
            frame = reader.read_parquet(path)
    except (OSError, ValueError) as error:
        raise JumperError(f"{path}: cannot be read as {suffix[1:]}: {error}") from error
    if "time" not in frame:
        raise JumperError(
            f"{path}: expected exported samples with a column `time`, found {', '.join(map(str, frame)) or 'none'}"
        )
    return frame


def pandas() -> Any:
    """Return pandas, or raise an error that names the extra to install."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("tables need pandas: pip install 'jumper-workflows[report]'") from error
    return pd


def _pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'jumper-workflows[report]'") from error


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".json", ".parquet"):
        raise JumperError(f"{path}: expected a name that ends in .csv, .json or .parquet")
    return suffix
