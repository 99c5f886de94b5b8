"""What an attempt took of the devices: GPU time and memory, energy; out of the series of its processes."""

from __future__ import annotations

from typing import Any

from jumper.analysis.series import Series


def device_cost(row: dict[str, Any], series: Series | None, window: tuple[int, int] | None, whole: bool) -> None:
    """Set ``gpu_seconds``, ``gpu_memory_peak_bytes`` and ``energy_j``; null where no sample has them.

    Between two samples a counter is taken to grow evenly. What several tasks of one process used together is
    nobody's: of them only the peak is told.

    Parameters
    ----------
    row : dict
        The attempt, with its flags.
    series : Series or None
        Samples of its process and all below it.
    window : (int, int) or None
        Its start and end by the node's monotonic clock, ns.
    whole : bool
        Whether it is all that the series shows.
    """
    if series is None or window is None or "elsewhere" in row["flags"]:
        return
    low, high = (0, len(series.mono)) if whole else series.window(*window)
    peak = series.highest("gpu_memory_bytes", low, high)
    row["gpu_memory_peak_bytes"] = None if peak is None else int(peak)
    if "shared" in row["flags"]:
        return
    busy = _grown(series, "gpu_busy_ns", window, whole)
    row["gpu_seconds"] = None if busy is None else busy / 1e9
    energies = [_grown(series, name, window, whole) for name in ("energy_uj", "gpu_energy_uj")]
    known = [energy for energy in energies if energy is not None]
    row["energy_j"] = sum(known) / 1e6 if known else None


def _grown(series: Series, name: str, window: tuple[int, int], whole: bool) -> float | None:
    """Return what a counter grew by in a time, or in all; None where it has no two values."""
    import numpy as np

    values = series.column(name)
    if values is None:
        return None
    known = ~np.isnan(values)
    mono, counter = series.mono[known], values[known]
    if len(mono) < 2:
        return None
    first, last = (counter[0], counter[-1]) if whole else np.interp(np.array(window, "f8"), mono.astype("f8"), counter)
    return max(0.0, float(last - first))
