"""How much memory an attempt held at most, from high-water marks and samples, and how sure that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jumper.analysis.series import Series

Row = dict[str, Any]
#: bounds of a peak that lie further apart than this are flagged
CLOSE = 1.02
SLACK_BYTES = 1 << 20
#: while it is not known what a tree's processes share, so much of each is taken for what programs map from files
MAPPED_BYTES = 4 << 20


def memory_peaks(row: Row, facts: Row, series: Series | None, window: tuple[int, int] | None, whole: bool) -> None:
    """Fill in the peaks of an attempt: marks as far as the kernel keeps them, samples otherwise, and how sure that is.

    Parameters
    ----------
    row : dict
        Of the tasks table; gets its columns of memory, in bytes, and the flag ``memory-estimated``.
    facts : dict
        What the front end recorded: ``hwm_bytes`` between its boundaries, the waiter's ``rusage``.
    series : Series, optional
        Samples of its processes.
    window : (int, int), optional
        Monotonic ns from its start to its stop.
    whole : bool
        The attempt is all that the series shows.
    """
    usage = facts.get("rusage") or {}
    candidates: list[tuple[float, str, bool]] = []
    seen = upper = risen = 0.0
    if facts.get("hwm_bytes") is not None:
        candidates.append((float(facts["hwm_bytes"]), "hwm", False))
        upper = float(facts["hwm_bytes"])
    marks = [value for value, _, _ in candidates]
    if series is not None and window is not None:
        low, high = (0, len(series.mono)) if whole else series.window(*window)
        peak = _sampled_peak(series, low, high, whole)
        if peak is not None:
            candidates.append(peak)
            seen = peak[0]
        inside = low if whole else min(low + 1, high)  # a row's peaks cover the time since the row before
        single = series.highest("hwm_max_bytes", inside, high) if whole else None
        if single is not None:
            candidates.append((single, "hwm", False))
            marks.append(single)
        sums = [series.highest("rss_bytes", low, high), series.highest("rss_peak_bytes", inside, high), *marks]
        row["rss_peak_bytes"] = _int(max((value for value in sums if value is not None), default=None))
        row["pss_peak_bytes"] = _int(series.highest("pss_bytes", low, high))
        row["swap_peak_bytes"] = _int(series.highest("swap_bytes", low, high))
        upper = max(upper, series.highest("hwm_bytes", inside, high) or 0.0)
        if not whole and not marks:
            upper = max(upper, risen := _risen(series, low, high))
    elif marks:
        row["rss_peak_bytes"] = _int(max(marks))
    largest = float(usage.get("maxrss_bytes") or 0)
    if largest > float(usage.get("maxrss_floor_bytes") or 0):
        candidates.append((largest, "hwm", False))
        row["rss_peak_bytes"] = max(row["rss_peak_bytes"] or 0, int(largest))
    unseen = _unseen_bytes(series) if whole else 0.0
    upper = max(upper, largest, seen) + (unseen or 0.0)
    row["rss_peak_upper_bytes"] = _int(upper) if upper else None
    if not candidates or max(candidates)[0] <= 0:
        return
    value, source, estimated = max(candidates, key=lambda candidate: (candidate[0], not candidate[2]))
    row["memory_peak_bytes"], row["memory_peak_source"] = int(value), source
    bound = max(value, seen + (unseen or 0.0), risen)
    evidence = max(float(row["rss_peak_bytes"] or 0), largest)
    if value > CLOSE * evidence + SLACK_BYTES:
        estimated = True  # a mark of one process, put on top of what the others had about then
    if unseen is None:
        estimated = True  # whether it was alone is not known
    if series is not None and window is not None and _may_be_more(series, low, high, value):
        estimated = True  # before it was read what its processes share, they may have held more
    if series is not None and whole and _never_known(series, value):
        estimated = True
    if estimated or bound > CLOSE * value + SLACK_BYTES:
        row["flags"].append("memory-estimated")


def _sampled_peak(series: Series, low: int, high: int, whole: bool) -> tuple[float, str, bool] | None:
    """Return (bytes, source, estimated) of the highest sampled memory in a range of rows."""
    import numpy as np

    if high <= low:
        return None
    instant = series.column("memory_bytes")
    between = series.column("memory_peak_bytes")
    if instant is None:
        return None
    values = instant[low:high].copy()
    if between is not None:
        inside = 0 if whole else 1
        values[inside:] = np.fmax(values[inside:], between[low + inside : high])
    best = int(np.fmax(values, -1.0).argmax())
    if np.isnan(values[best]):
        return None
    missing = series.column("pss_missing")
    count = series.column("processes")
    several = count is not None and count[low + best] > 1
    unsure = missing is not None and missing[low + best] > 0
    return float(values[best]), "pss" if several and not unsure else "rss", bool(several and unsure)


def _may_be_more(series: Series, low: int, high: int, value: float) -> bool:
    """Return whether processes whose sharing was not known held so much RSS that the peak may be above value."""
    import numpy as np

    rss, missing, count = (series.column(name) for name in ("rss_bytes", "pss_missing", "processes"))
    if rss is None or missing is None or count is None:
        return False
    unsure = np.nan_to_num(missing[low:high]) > 0
    let_pass = CLOSE * value + SLACK_BYTES + MAPPED_BYTES * (np.nan_to_num(count[low:high]) - 1)
    return bool((unsure & (np.nan_to_num(rss[low:high]) > let_pass)).any())


def _never_known(series: Series, value: float) -> bool:
    """Return whether all of an attempt's processes held so much RSS between rows that the peak may be above value.

    For one that ended before any PSS was read: its few rows were taken when little of it was left.
    """
    rows = len(series.mono)
    rss, seen = series.highest("rss_peak_bytes", 0, rows), series.highest("processes_seen", 0, rows)
    if rss is None or seen is None or series.highest("pss_bytes", 0, rows) is not None:
        return False
    return rss > CLOSE * value + SLACK_BYTES + MAPPED_BYTES * (seen - 1)


def _risen(series: Series, low: int, high: int) -> float:
    """Return the mark of a single process that rose about these rows, bytes: between two samples it held so much."""
    before = series.last("hwm_max_bytes", 0, low)
    after = series.last("hwm_max_bytes", 0, high + 1)  # what rose between the last row and the end is in the next one
    if before is None or after is None or after <= before:
        return 0.0
    grown = series.last("rss_bytes", high, high + 1) or 0.0  # what it holds then, it may have got after the end
    return after if after > CLOSE * grown + SLACK_BYTES else 0.0


def _unseen_bytes(series: Series | None) -> float | None:
    """Return how much memory children that died unseen may have touched: their page faults, in bytes.

    None where nobody counted these.
    """
    faults = series.last("unseen_faults", 0, len(series.mono)) if series is not None else None
    return None if faults is None else faults * _fault_bytes()


def _fault_bytes() -> int:
    """Return how much one page fault can touch: a huge page where they are given to everybody."""
    try:
        always = "[always]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        always = False
    return 2 << 20 if always and sys.platform == "linux" else 4096


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
