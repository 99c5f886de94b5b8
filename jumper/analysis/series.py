"""The samples of a run cut into series: one for each process and thread of each host, by monotonic time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jumper.schema.columns import COLUMNS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]


_COUNTERS = frozenset(column.name for column in COLUMNS if column.kind == "counter")


@dataclass(slots=True)
class Series:
    """Samples of one process (or thread) of one host, by monotonic time; a missing value is NaN.

    Attributes
    ----------
    mono : array, shape (rows,)
    columns : dict of str to array
        Each has the rows of this series from ``first`` on: those of many series, which a run may have, are one.
    first : int
    """

    mono: Ints
    columns: Mapping[str, Floats]
    first: int = 0

    def column(self, name: str) -> Floats | None:
        """Return the values of a column, shape (rows,), or None."""
        return self._range(name, 0, len(self.mono))

    def _range(self, name: str, low: int, high: int) -> Floats | None:
        values = self.columns.get(name)
        return None if values is None else values[self.first + low : self.first + min(high, len(self.mono))]

    def window(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of rows with start <= time <= stop."""
        return int(self.mono.searchsorted(start, "left")), int(self.mono.searchsorted(stop, "right"))

    def part(self, start: int, stop: int | None) -> Series:
        """Return the rows of a time."""
        low, high = self.window(start, int(self.mono[-1]) if stop is None else int(stop))
        return Series(self.mono[low:high], self.columns, self.first + low)

    def highest(self, name: str, low: int, high: int) -> float | None:
        """Return the largest value of a column in a range of rows, or None."""
        import numpy as np

        part = self._range(name, low, high)
        if part is None or not part.size:
            return None
        most = float(np.fmax.reduce(part))
        return most if most == most else None

    def last(self, name: str, low: int, high: int) -> float | None:
        """Return the last value of a column in a range of rows, or None."""
        import numpy as np

        part = self._range(name, low, high)
        if part is None or not part.size:
            return None
        if (latest := float(part[-1])) == latest:  # as mostly
            return latest
        part = part[~np.isnan(part)]
        return float(part[-1]) if part.size else None


def joined(parts: Sequence[Series]) -> Series | None:
    """Return series that follow one another as one: counters go on where the one before ended."""
    import numpy as np

    parts = [part for part in parts if len(part.mono)]
    if len(parts) < 2:
        return parts[0] if parts else None
    columns: dict[str, Floats] = {}
    for name in {name for part in parts for name in part.columns}:
        before, found = 0.0, []
        for part in parts:
            values = part.column(name)
            if values is None:
                values = np.full(len(part.mono), np.nan)
            found.append(values + before if name in _COUNTERS else values)
            if name in _COUNTERS:
                before = found[-1][-1] if not np.isnan(found[-1][-1]) else before
        columns[name] = np.concatenate(found)
    return Series(np.concatenate([part.mono for part in parts]), columns)


class Samples:
    """The process and thread streams of a run, cut into series.

    Parameters
    ----------
    load : callable
        ``load(stream)`` gives the samples of a stream as a DataFrame.
    boots : mapping of str to str
        Segment -> boot id of its host.
    """

    def __init__(self, load: Callable[[str], pd.DataFrame], boots: Mapping[str, str]) -> None:
        self._load = load
        self._boots = boots
        self._series: dict[str, dict[tuple[Any, ...], Series]] = {}

    def process(self, node: str, boot: str, pid: int) -> Series | None:
        """Return the series of a target, or None."""
        return self._of("process", ("pid",)).get((node, boot, pid))

    def trees(self, node: str, boot: str, roots: Iterable[Sequence[int | None]]) -> Series | None:
        """Return the series of several targets that ran one after the other as one, or None.

        Parameters
        ----------
        roots : iterable of (pid, start, until)
            Monotonic ns in which the pid was this target; ``until`` None: to the end.
        """
        parts = []
        for pid, start, until in roots:
            series = self.process(node, boot, int(pid or 0))
            if series is not None:
                parts.append(series.part(int(start or 0), until))
        return joined(parts)

    def thread(self, node: str, boot: str, pid: int, tid: int) -> Series | None:
        """Return the series of a thread, or None."""
        return self._of("thread", ("pid", "tid")).get((node, boot, pid, tid))

    def threads(self, node: str, boot: str, pid: int) -> list[Series]:
        """Return the series of all threads of a process."""
        return [series for key, series in self._of("thread", ("pid", "tid")).items() if key[:3] == (node, boot, pid)]

    def _of(self, stream: str, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Series]:
        if stream not in self._series:
            self._series[stream] = dict(self._cut(self._load(stream), keys))
        return self._series[stream]

    def _cut(self, frame: pd.DataFrame, keys: tuple[str, ...]) -> list[tuple[tuple[Any, ...], Series]]:
        import numpy as np

        if frame.empty:
            return []
        frame = frame.assign(boot=frame["segment"].map(self._boots))
        names = ["node", "boot", *keys]
        group = frame.groupby(names, sort=False).ngroup().to_numpy()
        mono = frame["mono_ns"].to_numpy("int64")
        order = np.lexsort((mono, group))
        order = order[np.searchsorted(group[order], 0) :]  # -1: of no known host
        mono = mono[order]
        values = {
            str(name): frame[name].to_numpy("float64", na_value=np.nan)[order]
            for name in frame.columns
            if name not in ("node", "segment", "boot", "mono_ns", "time_ns")
        }
        firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
        found = []
        of_group = zip(*(frame[name].iloc[order[firsts]].tolist() for name in names), strict=True)
        for key, low, high in zip(of_group, firsts, [*firsts[1:], len(order)], strict=True):
            node, boot, *numbers = key
            found.append(((node, boot, *(int(str(n)) for n in numbers)), Series(mono[low:high], values, int(low))))
        return found
