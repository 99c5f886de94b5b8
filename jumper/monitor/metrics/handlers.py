"""Handlers: the value of a collector becomes columns of a row.

What each does with None, NaN, numpy arrays, lists of another length and a
counter that was reset is the table in docs/collectors.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from jumper.monitor.metrics.common import StorageHandler, Value

__all__ = [
    "CountersHandler",
    "CumulativeRateHandler",
    "NoOpHandler",
    "PerDeviceAggregateHandler",
    "PerDeviceMultiAggregateHandler",
    "ScalarHandler",
    "StorageHandler",
    "number",
]

#: a column of whole numbers holds 8 bytes; what lies beyond is a float
_I8 = 1 << 63


def number(value: object) -> Value:
    """Return a value as a Python number; None where it is missing, NaN, infinite or beyond any float.

    Raises
    ------
    TypeError
        Where it is no number (text is none, even if it looks like one).

    Examples
    --------
    >>> number(3), number(float("nan")), number(None)
    (3, None, None)
    """
    if value is None or (type(value) is int and -_I8 <= value < _I8):
        return value
    if type(value) is not float:
        if isinstance(value, Integral):
            value = int(value)
            if -_I8 <= value < _I8:
                return value
        if not hasattr(value, "__float__"):
            raise TypeError(f"expected a number, found {value!r} ({type(value).__name__})")
        try:
            value = float(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def _numbers(raw: object, what: str) -> list[Value]:
    """Return a list, tuple or one-dimensional array as numbers."""
    if hasattr(raw, "tolist"):
        raw = raw.tolist()
    if isinstance(raw, (str, bytes, Mapping)) or not isinstance(raw, Iterable):
        raise TypeError(f"{what}, found {raw!r} ({type(raw).__name__})")
    return [number(v) for v in raw]


class ScalarHandler:
    """One number, one column.

    Parameters
    ----------
    column : str

    Examples
    --------
    >>> ScalarHandler("memory").transform(1.5, "process")
    {'memory': 1.5}
    """

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return ``{column: value}``."""
        return {} if raw is None else {self.columns[0]: number(raw)}


class PerDeviceAggregateHandler:
    """One number a device (core, GPU, disk): a column each, and their mean, lowest and highest.

    Parameters
    ----------
    prefix : str
        Of the columns, such as ``cpu_util_``.

    Examples
    --------
    >>> PerDeviceAggregateHandler("t_").transform([10, 30], "system")
    {'t_avg': 20.0, 't_min': 10, 't_max': 30, 't_0': 10, 't_1': 30}
    >>> PerDeviceAggregateHandler("t_").transform([None, 30], "system")["t_avg"]
    30.0
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.columns = tuple(f"{prefix}{part}" for part in ("avg", "min", "max", "#"))

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return the aggregates over the devices that have a value, then the devices."""
        values = [] if raw is None else _numbers(raw, "expected a list with one number a device")
        if not values:
            return {}
        known = [v for v in values if v is not None]
        row: dict[str, Value] = {
            f"{self.prefix}avg": sum(known) / len(known) if known else None,
            f"{self.prefix}min": min(known, default=None),
            f"{self.prefix}max": max(known, default=None),
        }
        row.update((f"{self.prefix}{index}", value) for index, value in enumerate(values))
        return row


class PerDeviceMultiAggregateHandler:
    """Several metrics of the same devices, each as :class:`PerDeviceAggregateHandler` does it.

    Parameters
    ----------
    prefix : str
    metrics : sequence of str
        Names of the metrics, in the order in which the collector returns their lists.

    Examples
    --------
    >>> handler = PerDeviceMultiAggregateHandler("gpu_", ["util", "mem"])
    >>> row = handler.transform(([50, 70], [1, 3]), "system")
    >>> row["gpu_util_avg"], row["gpu_mem_1"]
    (60.0, 3)
    """

    def __init__(self, prefix: str, metrics: Sequence[str]) -> None:
        self._handlers = [PerDeviceAggregateHandler(f"{prefix}{metric}_") for metric in metrics]
        self.metrics = list(metrics)
        self.columns = tuple(c for handler in self._handlers for c in handler.columns)

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return the columns of all metrics.

        Raises
        ------
        ValueError
            Where there is not one list a metric, or they are not of one length.
        """
        if raw is None:
            return {}
        lists = [[] if r is None else _numbers(r, "expected a list with one number a device") for r in raw]
        if len(lists) != len(self._handlers):
            raise ValueError(f"expected {len(self._handlers)} lists ({', '.join(self.metrics)}), found {len(lists)}")
        if len({len(values) for values in lists}) > 1:
            found = ", ".join(f"{m}: {len(v)}" for m, v in zip(self.metrics, lists, strict=True))
            raise ValueError(f"expected the same number of devices in each list, found {found}")
        row: dict[str, Value] = {}
        for handler, values in zip(self._handlers, lists, strict=True):
            row.update(handler.transform(values, level))
        return row


class CumulativeRateHandler:
    """Counters that only grow become rates per second, by the time of the sample.

    The first sample of a level has no rate, nor has the interval in which a
    counter was reset. A counter that is missing for some ticks gives, when it is
    back, the rate over the time that it was away.

    Parameters
    ----------
    columns : sequence of str
        One a counter, in the order in which the collector returns them.

    Examples
    --------
    >>> handler = CumulativeRateHandler(["sent"])
    >>> for at, count in [(10.0, 100), (12.0, 300), (13.0, 5), (14.0, 6)]:
    ...     handler.at(at)
    ...     handler.transform([count], "system")
    {'sent': None}
    {'sent': 100.0}
    {'sent': None}
    {'sent': 1.0}
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._time_s: float | None = None
        self._last: dict[str, list[tuple[float, float] | None]] = {}

    def at(self, time_s: float) -> None:
        """Take the monotonic time of the samples that follow, in seconds."""
        self._time_s = time_s

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return the rates since the sample before, per second.

        Raises
        ------
        ValueError
            Where there is not one counter a column.
        """
        if raw is None:
            return {}
        counts = _numbers(raw, "expected a list of counters")
        if len(counts) != len(self.columns):
            raise ValueError(f"expected {len(self.columns)} values ({', '.join(self.columns)}), found {len(counts)}")
        now = time.perf_counter() if self._time_s is None else self._time_s
        last = self._last.setdefault(level, [None] * len(counts))
        row: dict[str, Value] = {}
        for index, (column, count) in enumerate(zip(self.columns, counts, strict=True)):
            row[column] = None
            if count is None:
                continue
            before = last[index]
            last[index] = (now, count)
            if before is not None and count >= before[1] and now > before[0]:
                row[column] = (count - before[1]) / (now - before[0])
        return row


class CountersHandler:
    """Columns that are named already: passed on as they are.

    Examples
    --------
    >>> CountersHandler().transform({"cpu_ns": 5}, "process")
    {'cpu_ns': 5}
    """

    columns: tuple[str, ...] = ()

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return the collector's mapping."""
        return {} if raw is None else dict(raw)


class NoOpHandler:
    """No columns, for a collector that only shares what it read with the others.

    Examples
    --------
    >>> NoOpHandler().transform(object(), "process")
    {}
    """

    columns: tuple[str, ...] = ()

    def transform(self, raw: Any, level: str) -> dict[str, Value]:
        """Return nothing."""
        return {}
