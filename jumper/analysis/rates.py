"""Rates out of counters: the documents' derived columns, computed at reading and never stored.

A counter that goes back, a null reading, and a gap of more than 2.5 intervals give null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.tables import floats, series, times

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

#: A distance between two samples beyond this many intervals is a gap.
GAP_INTERVALS = 2.5

_IO = {
    "io_read": "read_bytes",
    "io_write": "write_bytes",
    "io_read_count": "reads",
    "io_write_count": "writes",
    "net_bytes_sent": "net_sent_bytes",
    "net_bytes_recv": "net_recv_bytes",
    "net_packets_sent": "net_sent_packets",
    "net_packets_recv": "net_recv_packets",
}


def increments(time_ns: Ints, counter: Floats, interval_s: float) -> tuple[Floats, Floats]:
    """Return (seconds, increase) since the sample before; the increase is NaN where it is not known.

    Parameters
    ----------
    time_ns : array of int64, shape (n,)
        Rising.
    counter : array of float64, shape (n,)
    interval_s : float
        Seconds between two ticks.

    Returns
    -------
    seconds, increase : arrays of float64, shape (n,)
        Element 0 is NaN.

    Examples
    --------
    >>> time_ns = np.array([0, 1, 2, 6, 7]) * 10**9
    >>> increments(time_ns, np.array([0.0, 3, 2, 9, 10]), 1.0)[1].tolist()
    [nan, 3.0, nan, nan, 1.0]
    """
    seconds = np.full(len(time_ns), np.nan)
    increase = np.full(len(time_ns), np.nan)
    if len(time_ns) > 1:
        seconds[1:] = np.diff(time_ns) / 1e9
        increase[1:] = np.diff(counter)
    with np.errstate(invalid="ignore"):
        increase[(increase < 0) | (seconds <= 0) | (seconds > GAP_INTERVALS * interval_s)] = np.nan
    return seconds, increase


def rate(time_ns: Ints, counter: Floats, interval_s: float) -> Floats:
    """Return the rate per second of a counter over the interval that ends at each sample, shape (n,).

    NaN where :func:`increments` knows none.

    Examples
    --------
    >>> rate(np.array([0, 500_000_000]), np.array([0.0, 4.0]), 1.0).tolist()
    [nan, 8.0]
    """
    seconds, increase = increments(time_ns, counter, interval_s)
    return increase / seconds


def derived(samples: pd.DataFrame, interval_s: float, num_cpus: int) -> pd.DataFrame:
    """Return the documents' columns for samples of one level, row by row beside their keys.

    Parameters
    ----------
    samples : DataFrame
        Rows of ``process``, ``user``, ``system`` or ``slurm``.
    interval_s : float
    num_cpus : int
        CPUs that the level may use: the total is stated in percent of them.

    Returns
    -------
    DataFrame
        ``time_ns`` and the keys, ``cpu_util_avg``, ``_min``, ``_max`` (percent, 0 to 100 a
        core), ``cpu_util_<i>`` where there are counters per core, ``memory`` (GiB),
        ``io_*``, ``net_*`` (per second). Null where it is not known.

    Examples
    --------
    >>> rows = pd.DataFrame({"time_ns": [0, 10**9], "node": "n1", "segment": "s", "cpu_ns": [0, 10**9]})
    >>> derived(rows, 1.0, 2).cpu_util_avg.tolist()
    [nan, 50.0]
    """
    parts = [_derived(rows, interval_s, num_cpus) for _, rows in series(samples)]
    return pd.concat(parts).sort_index() if parts else pd.DataFrame(columns=["time_ns", "node"])


def _derived(rows: pd.DataFrame, interval_s: float, num_cpus: int) -> pd.DataFrame:
    time_ns = times(rows, "mono_ns" if "mono_ns" in rows else "time_ns")
    out = rows[[name for name in ("time_ns", "mono_ns", "node", "segment", "pid") if name in rows]].copy()
    cores = {
        int(name[4:-3]): rate(time_ns, floats(rows, name), interval_s) / 1e7
        for name in rows.columns
        if name.startswith("cpu_") and name.endswith("_ns") and name[4:-3].isdigit()
    }
    if cores:
        table = np.vstack(list(cores.values()))
        known = ~np.isnan(table).any(axis=0)
        for name, reduce in (("avg", np.mean), ("min", np.min), ("max", np.max)):
            out[f"cpu_util_{name}"] = np.where(known, reduce(table, axis=0), np.nan)
        for core, values in sorted(cores.items()):
            out[f"cpu_util_{core}"] = values
    else:
        total = rate(time_ns, floats(rows, "cpu_ns"), interval_s) / 1e7 / max(num_cpus, 1)
        for name in ("avg", "min", "max"):
            out[f"cpu_util_{name}"] = total
    out["memory"] = floats(rows, "memory_bytes") / 2**30
    for name, counter in _IO.items():
        if counter in rows:
            out[name] = rate(time_ns, floats(rows, counter), interval_s)
    return out
