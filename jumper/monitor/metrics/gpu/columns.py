"""Figures of single devices as columns, and those of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

Counters = dict[str, int | None]

#: figure -> how it adds up over devices
_OVER: dict[str, Callable[[list[int]], int]] = {
    **dict.fromkeys(("busy_ns", "band_ns", "memory_bytes", "energy_uj", "power_uw"), sum),
    "temperature_c": max,
}


def sum_of(values: Iterable[int | None]) -> int | None:
    """Return the sum; None where one of them is not known."""
    found = list(values)
    return None if None in found else sum(value for value in found if value is not None)


def columns_of(rows: Mapping[int, Counters], counted: Sequence[Counters]) -> Counters:
    """Return the columns of the devices, and of all together as far as they are known."""
    found: Counters = {f"gpu_{index}_{name}": value for index, row in rows.items() for name, value in row.items()}
    for name, over in _OVER.items():
        known = [value for row in counted if (value := row.get(name)) is not None]
        if known:
            found[f"gpu_{name}"] = over(known)
    return found
