"""The cells of a notebook, or marked blocks of a script: what ran, from when to when."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import pandas
from jumper.schema.errors import JumperError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CELL_COLUMNS", "Cell", "CellHistory", "parse_cells"]

#: Times in monotonic seconds (the samples' clock) and in seconds since 1970 UTC; the duration in seconds.
CELL_COLUMNS = (
    "cell_index",
    "raw_cell",
    "start_time",
    "end_time",
    "duration",
    "wallclock_start_time",
    "wallclock_end_time",
    "execution_count",
)
_RANGE = re.compile(r"\s*(-?\d+)?\s*(:)?\s*(-?\d+)?\s*")


@dataclass
class Cell:
    """One cell; `end_time` is None while it runs, `execution_count` the notebook's ``In [n]`` or None."""

    cell_index: int
    raw_cell: str
    start_time: float
    wallclock_start_time: float
    execution_count: int | None = None
    end_time: float | None = None
    wallclock_end_time: float | None = None

    @property
    def duration(self) -> float | None:
        """Seconds, or None while it runs."""
        return None if self.end_time is None else self.end_time - self.start_time


class CellHistory:
    """Cells in the order in which they began, numbered from 0; any thread may add.

    Examples
    --------
    >>> cells = CellHistory()
    >>> cell = cells.start("x = 1")
    >>> cells.end(cell)
    >>> cells.data[["cell_index", "raw_cell"]].to_numpy().tolist()
    [[0, 'x = 1']]
    """

    def __init__(self) -> None:
        self._cells: list[Cell] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cells)

    def start(self, raw_cell: str, execution_count: int | None = None) -> Cell:
        """Note that a cell begins now, and return it."""
        with self._lock:
            cell = Cell(len(self._cells), raw_cell, time.monotonic(), time.time(), execution_count)
            self._cells.append(cell)
        return cell

    @staticmethod
    def end(cell: Cell) -> None:
        """Note that a cell ends now."""
        cell.end_time, cell.wallclock_end_time = time.monotonic(), time.time()

    def forget(self, cell: Cell) -> None:
        """Drop the cell that began last."""
        with self._lock:
            if self._cells and self._cells[-1] is cell:
                self._cells.pop()

    @property
    def finished(self) -> list[Cell]:
        """Cells that have ended."""
        return [cell for cell in self._cells if cell.end_time is not None]

    @property
    def data(self) -> pd.DataFrame:
        """The cells that have ended, with :data:`CELL_COLUMNS`."""
        rows = [[getattr(cell, name) for name in CELL_COLUMNS] for cell in self.finished]
        frame: pd.DataFrame = pandas().DataFrame(rows, columns=list(CELL_COLUMNS))
        return frame.astype({"cell_index": "int64", "execution_count": "Int64"})

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> CellHistory:
        """Return the history that a table like :attr:`data` shows.

        Raises
        ------
        JumperError
            Where a column that is needed is missing.
        """
        missing = [name for name in CELL_COLUMNS[:4] if name not in frame]
        if missing:
            raise JumperError(f"expected a table of cells, found one without {', '.join(missing)}")
        history = cls()
        for row in frame.sort_values("cell_index").to_dict("records"):
            known: dict[str, Any] = {str(name): value for name, value in row.items() if value == value}  # no NaN
            history._cells.append(
                Cell(
                    int(row["cell_index"]),
                    str(row["raw_cell"]),
                    float(row["start_time"]),
                    float(known.get("wallclock_start_time") or 0.0),
                    int(known["execution_count"]) if known.get("execution_count") is not None else None,
                    known.get("end_time"),
                    known.get("wallclock_end_time"),
                )
            )
        return history


def parse_cells(text: str | int | tuple[int, int], count: int) -> tuple[int, int]:
    """Return the first and the last cell, both included, that a range means.

    Parameters
    ----------
    text : str, int or (int, int)
        ``5``, ``2:8`` (both included), ``:5``, ``3:``, ``-1`` (the last one).
    count : int
        How many cells there are.

    Raises
    ------
    JumperError
        Where it is no range, or there are no such cells.

    Examples
    --------
    >>> [parse_cells(text, 10) for text in ("5", "2:8", ":5", "3:", "-1", "-3:")]
    [(5, 5), (2, 8), (0, 5), (3, 9), (9, 9), (7, 9)]
    """
    given = f"{text[0]}:{text[1]}" if isinstance(text, tuple) else str(text)
    match = _RANGE.fullmatch(given)
    if match is None or not (match[1] or match[2]):
        raise JumperError(f"cells {given!r}: expected a number like 5 or -1, or a range like 2:8, :5 or 3:")
    first = int(match[1]) if match[1] else 0
    last = int(match[3]) if match[3] else -1 if match[2] else first
    first, last = (number + count if number < 0 else number for number in (first, last))
    if not 0 <= first <= last < count:
        here = f"cells 0 to {count - 1}" if count else "no cells"
        raise JumperError(f"cells {given!r}: there are {here} so far")
    return first, last
