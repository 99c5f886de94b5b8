"""Several nodes' samples as one table: joined by time, each column added up as the schema says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import column_order, pandas
from jumper.schema.columns import COLUMNS, DERIVED, declared

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["join_nodes", "over_nodes"]

_OVER = {c.name: c.over_nodes for c in (*COLUMNS, *DERIVED)}
_COUNTERS = frozenset(c.name for c in COLUMNS if c.kind == "counter")
#: A column of one device; which device of which node it would be is not said by its number.
_DEVICE = re.compile(r".*_\d+")


def over_nodes(column: str) -> str:
    """Return how a column adds up over nodes: ``sum``, ``mean``, ``min``, ``max`` or ``none``.

    Columns that the schema does not know go by their ending (``_avg``, ``_min``,
    ``_max``), else they are summed.

    Examples
    --------
    >>> [over_nodes(c) for c in ("memory", "cpu_util_max", "gpu_mem_avg", "cpu_util_0", "net_sent")]
    ['sum', 'max', 'mean', 'none', 'sum']
    """
    if column in _OVER:
        return _OVER[column]
    if declared(column) is not None or _DEVICE.fullmatch(column):
        return "none"
    return {"_avg": "mean", "_min": "min", "_max": "max"}.get(column[-4:], "sum")


def join_nodes(frames: Mapping[str, pd.DataFrame], weights: Mapping[str, float]) -> pd.DataFrame:
    """Return one table of the samples of several nodes.

    Its rows stand at a grid of times, as far apart as the samples of the fastest
    node, where at least one node has a sample within half a step. Each node gives
    its sample nearest to that time, at most 1.5 of its own intervals away; a node
    without one takes no part in that row.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Node -> its samples, with ``time`` in seconds of one clock.
    weights : mapping of str to float
        Node -> its number of CPUs: ``cpu_util_avg`` is the mean over CPUs.

    Returns
    -------
    DataFrame
        Columns of single devices are left out.
    """
    tools = pandas()
    import numpy as np

    frames = {node: frame.dropna(subset=["time"]).sort_values("time") for node, frame in frames.items()}
    frames = {node: frame for node, frame in frames.items() if len(frame)}
    grid: pd.DataFrame = tools.DataFrame({"time": np.empty(0)})
    if not frames:
        return grid
    steps = {node: _interval(frame["time"].to_numpy()) for node, frame in frames.items()}
    step = min((s for s in steps.values() if s), default=1.0)
    every = np.concatenate([frame["time"].to_numpy() for frame in frames.values()])
    places = np.unique(np.floor((every - every.min()) / step + 0.5))
    grid = tools.DataFrame({"time": every.min() + places * step})
    aligned = {}
    for node, frame in frames.items():
        near = 1.5 * (steps[node] or step)
        taken = tools.merge_asof(grid, frame, on="time", direction="nearest", tolerance=near)
        counters = [c for c in taken if c in _COUNTERS]
        taken[counters] = taken[counters].ffill()
        aligned[node] = taken
    names = dict.fromkeys(str(c) for frame in frames.values() for c in frame)
    added = {name: _added(name, aligned, weights) for name in column_order(names) if over_nodes(name) != "none"}
    return grid.assign(**{name: values for name, values in added.items() if name != "time"})


def _interval(times: Any) -> float | None:
    import numpy as np

    return float(np.median(np.diff(times))) or None if len(times) > 1 else None


def _added(name: str, aligned: Mapping[str, pd.DataFrame], weights: Mapping[str, float]) -> Any:
    nodes = [node for node, frame in aligned.items() if name in frame]
    table = pandas().concat([aligned[node][name] for node in nodes], axis=1, keys=nodes)
    how = over_nodes(name)
    if how == "sum":
        return table.sum(axis=1, min_count=1)
    if name == "cpu_util_avg":
        cpus = table.notna().mul([float(weights.get(node) or 1) for node in nodes], axis=1)
        return (table.fillna(0.0) * cpus).sum(axis=1) / cpus.sum(axis=1).where(lambda total: total > 0)
    return getattr(table, how)(axis=1)
