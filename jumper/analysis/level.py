"""One level's samples, as a monitor has them: averages over time, what each cell cost, what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["CELL_COSTS", "averages", "cell_costs", "even", "missed_samples", "tags"]

#: Part of what there is from which on a resource is said to be the limit.
BUSY_CPU, FULL_MEMORY, BUSY_GPU, FULL_GPU = 0.7, 0.8, 0.8, 0.8
#: A device that holds more GiB than this, and in half of the time is not busier than so many percent, is idle.
IDLE_GPU_GIB, IDLE_GPU_PERCENT = 0.1, 5.0

CELL_COSTS = ("cell_index", "execution_count", "wall_s", "cpu_s", "memory_peak_bytes", "read_bytes", "write_bytes",
              "samples", "code")  # fmt: skip
_RATES = ("cpu_util", "gpu_util", "gpu_band", "io_", "net_")


def even(frame: pd.DataFrame, interval_s: float) -> pd.DataFrame:
    """Return the samples with those that lie closer than half an interval made one, weighted by time.

    Samples at the ends of cells come between two ticks; a rate over a millisecond says nothing.

    Parameters
    ----------
    frame : DataFrame
        With ``time`` in seconds; a rate holds for the time since the previous row.

    Examples
    --------
    >>> even(pd.DataFrame({"time": [0.0, 1.0, 1.01, 2.0], "io_read": [float("nan"), 5, 100, 5]}), 1.0).values.tolist()
    [[0.0, nan], [1.0, 5.0], [2.0, 5.95...]]
    """
    if len(frame) < 2:
        return frame
    steps, begins = _steps(frame, interval_s)
    groups = np.zeros(len(steps), dtype="int64")
    held = interval_s  # the first row of a series stands by itself
    for row in range(1, len(steps)):
        groups[row] = groups[row - 1] + (held >= interval_s / 2 or begins[row])
        held = interval_s if begins[row] else steps[row] + (held if groups[row] == groups[row - 1] else 0.0)
    if groups[-1] == len(steps) - 1:
        return frame
    out = frame.groupby(groups).last()
    weights = pd.Series(steps, index=frame.index)
    for name in frame.columns:
        if str(name).startswith(_RATES):
            known = weights.where(frame[name].notna())
            total = known.groupby(groups).sum(min_count=1)
            out[name] = (frame[name] * known).groupby(groups).sum(min_count=1) / total
    return out


def averages(frame: pd.DataFrame, column: str, interval_s: float) -> tuple[float, float, float] | None:
    """Return mean over time, lowest and highest value of a column, in its unit, or None where it has none."""
    if column not in frame:
        return None
    table = even(frame, interval_s)
    values = table[column].to_numpy("float64")
    known = ~np.isnan(values)
    if not known.any():
        return None
    mean = float(np.average(values[known], weights=_steps(table, interval_s)[0][known]))
    return mean, float(values[known].min()), float(values[known].max())


def missed_samples(frame: pd.DataFrame, interval_s: float) -> int:
    """Return how many ticks of the schedule have no sample, from the first to the last of each series.

    Examples
    --------
    >>> missed_samples(pd.DataFrame({"time": [0.0, 1.0, 1.2, 2.0, 5.0]}), 1.0)
    2
    """
    steps, begins = _steps(frame, interval_s)
    return int(np.maximum(0, np.round(steps[~begins] / interval_s) - 1).sum())


def cell_costs(frame: pd.DataFrame, cells: pd.DataFrame, num_cpus: int) -> pd.DataFrame:
    """Return what each cell cost, by the samples of one level.

    Parameters
    ----------
    frame : DataFrame
        Samples with ``time`` in the clock of the cells.
    cells : DataFrame
        Columns of :data:`jumper.adapters.cells.CELL_COLUMNS`.
    num_cpus : int
        That ``cpu_util_avg`` is a part of, for samples without the counter ``cpu_ns``.

    Returns
    -------
    DataFrame
        A row a cell with :data:`CELL_COSTS`; what was not measured is null. Counters
        are read at the cell's ends, between two samples in proportion.
    """
    times = frame["time"].to_numpy("float64") if "time" in frame else np.empty(0)
    used = {
        "cpu_s": _used(frame, "cpu_ns", 1e-9)
        if "cpu_ns" in frame
        else _integral(frame, "cpu_util_avg", num_cpus / 100),
        "read_bytes": _used(frame, "read_bytes") if "read_bytes" in frame else _integral(frame, "io_read"),
        "write_bytes": _used(frame, "write_bytes") if "write_bytes" in frame else _integral(frame, "io_write"),
    }
    rows = []
    for cell in cells.to_dict("records"):
        start, end = float(cell["start_time"]), float(cell["end_time"])
        seen = len(times) > 1 and end > times[0] and start < times[-1]
        inside = (times >= start) & (times <= end)
        row = {
            "cell_index": cell["cell_index"],
            "execution_count": cell.get("execution_count"),
            "wall_s": end - start,
            "samples": int(inside.sum()),
            "memory_peak_bytes": _peak(frame, times, start, end),
            "code": str(cell["raw_cell"]).strip().split("\n")[0],
        }
        for name, sums in used.items():
            row[name] = float(np.interp(end, times, sums) - np.interp(start, times, sums)) if seen else None
        rows.append(row)
    return pd.DataFrame(rows, columns=list(CELL_COSTS))


def tags(frame: pd.DataFrame, interval_s: float, limits: Mapping[str, Any]) -> list[str]:
    """Return what the samples were bound by, the most used first.

    Parameters
    ----------
    limits : mapping
        ``memory`` and ``gpu_memory`` in GiB, where known.

    Returns
    -------
    list of str
        Of ``cpu-bound`` (70 % of the CPUs on average), ``memory-bound`` (80 % of the limit),
        ``gpu-bound``, ``gpu-memory-bound`` (80 %), ``gpu-idle`` (memory held, not busy in half of the time).
    """

    def part(column: str, whole: float | None) -> float:
        found = averages(frame, column, interval_s)
        return found[0] / whole if found and whole else 0.0

    shares = {
        "cpu-bound": (part("cpu_util_avg", 100.0), BUSY_CPU),
        "memory-bound": (part("memory", limits.get("memory")), FULL_MEMORY),
        "gpu-bound": (part("gpu_util_avg", 100.0), BUSY_GPU),
        "gpu-memory-bound": (part("gpu_mem_avg", limits.get("gpu_memory")), FULL_GPU),
    }
    out = [name for name, (share, least) in sorted(shares.items(), key=lambda s: -s[1][0]) if share >= least]
    if {"gpu_mem_avg", "gpu_util_avg"} <= set(frame.columns) and len(frame):
        idle = (frame["gpu_mem_avg"] > IDLE_GPU_GIB) & (frame["gpu_util_avg"] <= IDLE_GPU_PERCENT)
        out += ["gpu-idle"] if idle.mean() >= 0.5 else []
    return out


def _steps(frame: pd.DataFrame, interval_s: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the time that each row stands for, in seconds and never 0, and which rows begin a series.

    The first row has no rates, nor has the first one after a stop and a start: what lies before is not measured.
    """
    times = frame["time"].to_numpy("float64")
    rates = [name for name in ("cpu_util_avg", "io_read", "io_write") if name in frame]
    begins = np.array(frame[rates].isna().all(axis=1)) if rates else np.zeros(len(times), dtype=bool)
    begins &= not begins.all()  # rates that nobody may read say nothing
    begins[:1] = True
    steps = np.maximum(np.diff(times, prepend=times[:1]), 1e-9)
    usual = float(np.median(steps[~begins])) if (~begins).any() else interval_s
    return np.where(begins, min(interval_s, usual), steps), begins


def _used(frame: pd.DataFrame, column: str, factor: float = 1.0) -> Floats:
    """Return a counter as a sum that begins at 0, shape (rows,); what lies between two measurements is not in it."""
    values = frame[column].ffill().to_numpy("float64")
    grown = np.maximum(0.0, np.nan_to_num(np.diff(values, prepend=values[:1])))
    grown[_steps(frame, 1.0)[1]] = 0.0
    sums: Floats = np.cumsum(grown) * factor
    return sums


def _integral(frame: pd.DataFrame, column: str, factor: float = 1.0) -> Floats:
    """Return a rate summed over time, shape (rows,)."""
    if column not in frame:
        return np.zeros(len(frame))
    times = frame["time"].to_numpy("float64")
    sums: Floats = np.cumsum(np.nan_to_num(frame[column].to_numpy("float64")) * np.diff(times, prepend=times[:1]))
    return sums * factor


def _peak(frame: pd.DataFrame, times: Floats, start: float, end: float) -> int | None:
    """Return the most memory of a cell in bytes: samples inside, and peaks since the sample before each."""
    found = [frame["memory"].to_numpy("float64")[(times >= start) & (times <= end)] * 2**30]
    if "memory_peak_bytes" in frame:
        before = np.concatenate([times[:1], times[:-1]])
        found.append(frame["memory_peak_bytes"].to_numpy("float64")[(before >= start) & (times <= end)])
    values = np.concatenate(found)
    values = values[~np.isnan(values)]
    return int(values.max()) if len(values) else None
