"""The samples of a run cut into series: one for each process and thread of each host, by monotonic time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Series:
    """Samples of one process (or thread) of one host, by monotonic time; a missing value is NaN."""

    mono: Ints
    columns: dict[str, Floats]

    def window(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of rows with start <= time <= stop."""
        return int(self.mono.searchsorted(start, "left")), int(self.mono.searchsorted(stop, "right"))

    def highest(self, name: str, low: int, high: int) -> float | None:
        """Return the largest value of a column in a range of rows, or None."""
        import numpy as np

        values = self.columns.get(name)
        if values is None or high <= low:
            return None
        part = values[low:high]
        part = part[~np.isnan(part)]
        return float(part.max()) if part.size else None

    def last(self, name: str, low: int, high: int) -> float | None:
        """Return the last value of a column in a range of rows, or None."""
        import numpy as np

        values = self.columns.get(name)
        if values is None or high <= low:
            return None
        part = values[low:high]
        part = part[~np.isnan(part)]
        return float(part[-1]) if part.size else None


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

    def thread(self, node: str, boot: str, pid: int, tid: int) -> Series | None:
        """Return the series of a thread, or None."""
        return self._of("thread", ("pid", "tid")).get((node, boot, pid, tid))

    def _of(self, stream: str, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Series]:
        if stream not in self._series:
            self._series[stream] = dict(self._cut(self._load(stream), keys))
        return self._series[stream]

    def _cut(self, frame: pd.DataFrame, keys: tuple[str, ...]) -> list[tuple[tuple[Any, ...], Series]]:
        import numpy as np

        if frame.empty:
            return []
        frame = frame.assign(boot=frame["segment"].map(self._boots)).sort_values("mono_ns", kind="stable")
        found = []
        for key, part in frame.groupby(["node", "boot", *keys], sort=False):
            mono = part["mono_ns"].to_numpy("int64")
            values = {
                str(name): part[name].to_numpy("float64", na_value=np.nan)
                for name in part.columns
                if name not in ("node", "segment", "boot", "mono_ns", "time_ns")
            }
            node, boot, *numbers = key
            found.append(((node, boot, *(int(str(n)) for n in numbers)), Series(mono, values)))
        return found
