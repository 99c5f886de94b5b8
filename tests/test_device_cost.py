"""What an attempt took of devices: out of counters that grow, at its own start and end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jumper.analysis.devices import device_cost
from jumper.analysis.series import Series

NAN = float("nan")
S = 10**9


def series(**columns: list[float]) -> Series:
    """A series with a sample a second from second 10 on."""
    return Series(
        10 * S + S * np.arange(len(next(iter(columns.values())))),
        {name: np.array(values, dtype="float64") for name, values in columns.items()},
    )


def cost(samples: Series | None, window: tuple[float, float] | None, whole: bool = False, *flags: str) -> list[Any]:
    row: dict[str, Any] = {"flags": list(flags)}
    device_cost(row, samples, None if window is None else tuple(round(at * S) for at in window), whole)  # type: ignore[arg-type]
    return [row.get(name) for name in ("gpu_seconds", "gpu_memory_peak_bytes", "energy_j")]


BUSY = series(
    gpu_busy_ns=[0, 1e9, 2e9, 2e9, 6e9], gpu_memory_bytes=[1, 7, 9, 2, 3],
    gpu_energy_uj=[5e6, 15e6, 25e6, 25e6, 45e6], energy_uj=[0, 1e6, 2e6, 3e6, 4e6],
)  # fmt: skip


@pytest.mark.parametrize(
    ("window", "whole", "expected"),
    [
        ((10, 14), True, [6.0, 9, 44.0]),
        ((11, 12), False, [1.0, 9, 11.0]),
        ((11.5, 13.5), False, [2.5, 9, 17.0]),  # half of the seconds at its ends
        ((12, 13), False, [0.0, 9, 1.0]),  # nothing was computed, and that is known
        ((13.25, 13.75), False, [2.0, None, 10.5]),  # no sample inside: no peak
        ((0, 99), True, [6.0, 9, 44.0]),
    ],
)  # fmt: skip
def test_counters_are_read_at_the_ends(window: tuple[float, float], whole: bool, expected: list[Any]) -> None:
    assert cost(BUSY, window, whole) == pytest.approx(expected)


def test_what_tasks_used_together_is_nobodys_but_the_peak() -> None:
    assert cost(BUSY, (10, 14), False, "shared") == [None, 9, None]
    assert cost(BUSY, (10, 14), False, "elsewhere") == [None, None, None]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (None, [None, None, None]),
        (series(cpu_ns=[0, 1]), [None, None, None]),
        (series(gpu_busy_ns=[NAN, NAN, NAN], gpu_memory_bytes=[NAN, 4, NAN]), [None, 4, None]),
        (series(gpu_busy_ns=[NAN, 0, NAN, 5e8]), [0.5, None, None]),
        (series(gpu_busy_ns=[3e9]), [None, None, None]),
        (series(energy_uj=[0, 2e6]), [None, None, 2.0]),
    ],
)
def test_what_was_not_sampled_is_null(samples: Series | None, expected: list[Any]) -> None:
    assert cost(samples, (10, 14), True) == expected
    assert cost(samples, None, True) == [None, None, None]
