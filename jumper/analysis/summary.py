"""What groups of attempts cost, and the key figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd

from jumper.analysis.tables import RunTables, floats, in_series, texts, times
from jumper.analysis.timeline import span_of
from jumper.schema.errors import JumperError

if TYPE_CHECKING:
    from jumper.analysis.tables import Bools, Floats, Ints

By = Literal["group", "node", "key"]


def summarize(tasks: pd.DataFrame, by: str = "group") -> pd.DataFrame:
    """Return one row a group of attempts, the most CPU first.

    Parameters
    ----------
    tasks : DataFrame
        The tasks table.
    by : {"group", "node", "key"}

    Returns
    -------
    DataFrame
        Indexed by ``by``: ``attempts``, ``failed`` (failed and lost), ``wall_s`` (sum),
        ``wall_median_s``, ``wall_max_s``, ``cpu_s`` (sum), ``cores`` (CPU seconds a second of
        wall time, over the attempts that have both), ``memory_peak_bytes``,
        ``memory_asked_bytes``, ``memory_limit_bytes`` (highest), ``read_bytes``,
        ``write_bytes``, ``read_chars``, ``write_chars`` (sums), ``rss_left_bytes`` (by how much
        RSS was higher at the stops than at the starts, summed over the attempts that were alone
        in their process), ``flagged`` (attempts that carry a flag). A figure that no attempt of
        the group has is null.

    Raises
    ------
    JumperError
        Where ``by`` is something else.

    Examples
    --------
    >>> tasks = pd.DataFrame({"group": "a", "state": ["done", "lost"], "wall_s": [1.0, 3.0], "cpu_s": [2.0, None]})
    >>> row = summarize(tasks).loc["a"]
    >>> int(row.attempts), int(row.failed), float(row.cpu_s), float(row.cores)
    (2, 1, 2.0, 2.0)
    """
    if by not in get_args(By):
        raise JumperError(f"a summary is by {', '.join(get_args(By))}; not by {by!r}")
    wall, cpu = floats(tasks, "wall_s"), floats(tasks, "cpu_s")
    both = np.isfinite(wall) & np.isfinite(cpu)
    figures = pd.DataFrame({
        "attempts": 1, "failed": np.isin(texts(tasks, "state"), ["failed", "lost"]).astype("int64"),
        "wall_s": wall, "wall_median_s": wall, "wall_max_s": wall, "cpu_s": cpu,
        "cores": np.where(both, cpu, np.nan), "_seconds": np.where(both, wall, np.nan),
        **{name: floats(tasks, name) for name in (*_PEAKS, *_SUMS)},
        "rss_left_bytes": left_behind(tasks), "flagged": filled(tasks, "flags").astype("int64"),
    })  # fmt: skip
    codes, names = pd.factorize(np.array(texts(tasks, by), dtype=object), sort=True)
    grouped = figures.groupby(codes, sort=True)
    table = grouped.sum(min_count=1)
    for name in ("wall_max_s", *_PEAKS):
        table[name] = grouped[name].max()
    table["wall_median_s"] = grouped["wall_s"].median()
    seconds = table.pop("_seconds")
    table["cores"] = np.where(seconds > 0, table["cores"] / seconds.where(seconds > 0), np.nan)
    for column in table.columns:
        whole = column in ("attempts", "failed", "flagged") or column.endswith("_bytes")
        values = table[column].round() if whole else table[column]
        table[column] = values.astype("Int64" if whole or column.endswith("_chars") else "Float64")
    table.index = pd.Index(names, name=by)
    return table.sort_values("cpu_s", ascending=False, na_position="last", kind="stable")


_PEAKS = ("memory_peak_bytes", "memory_asked_bytes", "memory_limit_bytes")
_SUMS = ("read_bytes", "write_bytes", "read_chars", "write_chars")


def left_behind(tasks: pd.DataFrame) -> Floats:
    """Return by how much each attempt left its process larger than it found it, in bytes; NaN where others ran there.

    Examples
    --------
    >>> tasks = pd.DataFrame({"rss_start_bytes": [10, 10], "rss_stop_bytes": [12, 12], "flags": [[], ["shared"]]})
    >>> left_behind(tasks).tolist()
    [2.0, nan]
    """
    left = floats(tasks, "rss_stop_bytes") - floats(tasks, "rss_start_bytes")
    known = np.flatnonzero(np.isfinite(left))
    shared = ["shared" in flags for flags in lists(tasks.iloc[known], "flags")]
    left[known[np.array(shared, dtype=bool)]] = np.nan
    return left


def lists(frame: pd.DataFrame, column: str) -> list[list[Any]]:
    """Return a column of lists, null as an empty one."""
    if column not in frame:
        return [[] for _ in range(len(frame))]
    return [list(value) if isinstance(value, list | tuple | np.ndarray) else [] for value in frame[column]]


def filled(frame: pd.DataFrame, column: str) -> Bools:
    """Return which cells of a column of lists hold something.

    Examples
    --------
    >>> filled(pd.DataFrame({"flags": [["shared"], [], None]}), "flags").tolist()
    [True, False, False]
    """
    if column not in frame:
        return np.zeros(len(frame), dtype=bool)
    values = frame[column].to_numpy(dtype=object)
    known = np.flatnonzero(pd.notna(values))
    out = np.zeros(len(values), dtype=bool)
    out[known] = np.fromiter(map(len, values[known]), dtype="int64", count=len(known)) > 0
    return out


def flag_rows(tasks: pd.DataFrame) -> dict[str, Ints]:
    """Return the rows of the attempts that carry each flag.

    Examples
    --------
    >>> {flag: rows.tolist() for flag, rows in flag_rows(pd.DataFrame({"flags": [["shared"], [], None]})).items()}
    {'shared': [0]}
    """
    if "flags" not in tasks:
        return {}
    flags = tasks["flags"].reset_index(drop=True).explode().dropna()
    return {str(flag): flags.index.to_numpy()[at] for flag, at in flags.groupby(flags).indices.items()}


def known_sum(values: Floats) -> float | None:
    """Return the sum of what is known, or None where nothing is."""
    return _known(np.sum, values)


def _known(reduce: Any, values: Floats) -> float | None:
    values = values[np.isfinite(values)]
    return float(reduce(values)) if len(values) else None


def headline(run: RunTables) -> dict[str, Any]:
    """Return the key figures of a run; None where one is not known.

    Returns
    -------
    dict
        ``start_ns``, ``stop_ns``, ``wall_s``; ``attempts``, ``failed``, ``lost``, ``running`` (had started,
        and not ended when the run was read), ``groups``;
        ``nodes``, ``cores`` (CPUs of all nodes); ``cpu_s`` (of everything watched, else of the
        attempts), ``tasks_cpu_s`` (of the attempts), ``busy_cores`` (mean of ``cpu_s`` over the run),
        ``memory_peak_bytes`` (the highest of any attempt), ``memory_used_share`` (of the memory that was
        asked for, weighed by wall time), ``read_bytes``, ``write_bytes``,
        ``read_chars``, ``write_chars``; ``monitor_cpu_s`` and ``monitor_share`` (of one core), ``flagged``.
    """
    tasks = run.tasks
    span = span_of(run)
    wall = (span[1] - span[0]) / 1e9 if span else None
    states = np.array(texts(tasks, "state"), dtype=object)
    cores = [int(node["num_cpus"]) for node in run.nodes.values() if node.get("num_cpus")]
    process = run.samples("process")
    cpu = _grown(process, "cpu_ns")
    of_tasks = known_sum(floats(tasks, "cpu_s"))
    cpu_s = max(cpu or 0.0, (of_tasks or 0.0) * 1e9) / 1e9 if cpu is not None or of_tasks is not None else None
    monitor = run.samples("monitor")
    own = _grown(monitor, "cpu_ns")
    times_of_monitor = times(monitor, "time_ns")
    watched = (times_of_monitor.max() - times_of_monitor.min()) if len(times_of_monitor) > 1 else 0
    return {
        "start_ns": span[0] if span else None,
        "stop_ns": span[1] if span else None,
        "wall_s": wall,
        "attempts": len(tasks),
        "failed": int((states == "failed").sum()),
        "lost": int((states == "lost").sum()),
        "running": int(((states == "") & (times(tasks, "start_ns") > 0)).sum()),
        "groups": len(set(texts(tasks, "group"))),
        "nodes": len(run.nodes) or len(set(texts(tasks, "node")) - {""}),
        "cores": sum(cores) or None,
        "cpu_s": cpu_s,
        "tasks_cpu_s": of_tasks,
        "busy_cores": cpu_s / wall if cpu_s is not None and wall else None,
        "memory_peak_bytes": _known(np.max, floats(tasks, "memory_peak_bytes")),
        "memory_used_share": used_share(tasks),
        **{name: known_sum(floats(tasks, name)) for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")},
        "monitor_cpu_s": own / 1e9 if own is not None else None,
        "monitor_share": float(own / watched) if own is not None and watched > 0 else None,
        "flagged": int(filled(tasks, "flags").sum()),
    }


def used_share(tasks: pd.DataFrame) -> float | None:
    """Return which part of the memory that attempts asked for their peaks used, weighed by wall time; None if unknown.

    Examples
    --------
    >>> used_share(pd.DataFrame({"memory_peak_bytes": [2, 1], "memory_asked_bytes": [4, 4], "wall_s": [3.0, 1.0]}))
    0.4375
    """
    peak, asked, wall = (floats(tasks, name) for name in ("memory_peak_bytes", "memory_asked_bytes", "wall_s"))
    known = np.isfinite(peak) & (asked > 0) & (wall > 0)
    held = float((asked[known] * wall[known]).sum())
    return float((peak[known] * wall[known]).sum()) / held if held else None


def _grown(samples: pd.DataFrame, column: str) -> float | None:
    """Return by how much a counter grew over all its series; a gap counts, going back does not."""
    order, number = in_series(samples)
    increase = np.diff(floats(samples, column)[order])
    return known_sum(increase[(np.diff(number) == 0) & (increase >= 0)])
