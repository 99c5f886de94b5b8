"""Handlers: each row of the table in docs/collectors.md, and rates against known answers."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumper.monitor.metrics.handlers import (
    CountersHandler,
    CumulativeRateHandler,
    NoOpHandler,
    PerDeviceAggregateHandler,
    PerDeviceMultiAggregateHandler,
    ScalarHandler,
    number,
)

NAN = float("nan")
ALL = [
    ScalarHandler("x"),
    PerDeviceAggregateHandler("p_"),
    PerDeviceMultiAggregateHandler("g_", ["a", "b"]),
    CumulativeRateHandler(["x", "y"]),
    CountersHandler(),
    NoOpHandler(),
]


@pytest.mark.parametrize("handler", ALL, ids=lambda h: type(h).__name__)
def test_none_gives_no_columns(handler):
    assert handler.transform(None, "process") == {}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (1, 1),
        (1.5, 1.5),
        (True, 1),
        (NAN, None),
        (math.inf, None),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(2.0), 2.0),
    ],
)
def test_a_scalar_becomes_a_python_number_or_null(raw, expected):
    value = ScalarHandler("x").transform(raw, "system")["x"]
    assert value == expected
    assert type(value) in (int, float, type(None))


@pytest.mark.parametrize("raw", ["3", b"3", [1], {"a": 1}, object()])
def test_what_is_no_number_is_refused(raw):
    with pytest.raises(TypeError, match="expected a number, found"):
        ScalarHandler("x").transform(raw, "system")


def test_large_counters_stay_exact():
    assert number(2**62 + 1) == 2**62 + 1
    assert number(np.uint64(2**63)) == 2**63


@pytest.mark.parametrize(
    "raw",
    [[1, 2, 6], (1, 2, 6), np.array([1, 2, 6]), np.array([1.0, 2, 6]), iter([1, 2, 6])],
    ids=["list", "tuple", "ints", "floats", "iterator"],
)
def test_devices_in_any_sequence(raw):
    assert PerDeviceAggregateHandler("p_").transform(raw, "system") == {
        "p_avg": 3, "p_min": 1, "p_max": 6, "p_0": 1, "p_1": 2, "p_2": 6,
    }  # fmt: skip


@pytest.mark.parametrize("raw", [[NAN, 1, 2], [1, 2, NAN], [None, 1, 2]])
def test_a_missing_device_is_left_out_wherever_it_stands(raw):
    row = PerDeviceAggregateHandler("p_").transform(raw, "system")
    assert (row["p_avg"], row["p_min"], row["p_max"]) == (1.5, 1, 2)
    assert sorted(v is None for v in row.values()) == [False] * 5 + [True]


def test_devices_that_are_all_missing_keep_their_columns():
    assert PerDeviceAggregateHandler("p_").transform([None, NAN], "system") == dict.fromkeys(
        ("p_avg", "p_min", "p_max", "p_0", "p_1")
    )


def test_no_devices_no_columns():
    assert PerDeviceAggregateHandler("p_").transform([], "system") == {}
    assert PerDeviceMultiAggregateHandler("g_", ["a", "b"]).transform(([], []), "system") == {}


@pytest.mark.parametrize("raw", [5, "abc", {"a": 1}])
def test_devices_must_be_a_list(raw):
    with pytest.raises(TypeError, match="expected a list with one number a device, found"):
        PerDeviceAggregateHandler("p_").transform(raw, "system")


def test_two_metrics_of_two_devices():
    row = PerDeviceMultiAggregateHandler("g_", ["a", "b"]).transform(([1, 3], np.array([5, 7])), "system")
    assert (row["g_a_avg"], row["g_b_max"], row["g_b_0"]) == (2, 7, 5)
    assert len(row) == 10


@pytest.mark.parametrize("raw", [([1],), ([1], [2], [3])])
def test_lists_for_other_metrics_are_refused(raw):
    with pytest.raises(ValueError, match=r"expected 2 lists \(a, b\), found"):
        PerDeviceMultiAggregateHandler("g_", ["a", "b"]).transform(raw, "system")


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="same number of devices in each list, found a: 1, b: 2"):
        PerDeviceMultiAggregateHandler("g_", ["a", "b"]).transform(([1], [2, 3]), "system")


@pytest.mark.parametrize("raw", [[1], [1, 2, 3], []])
def test_counters_of_another_number_are_refused_from_the_first_call_on(raw):
    with pytest.raises(ValueError, match=r"expected 2 values \(x, y\), found"):
        CumulativeRateHandler(["x", "y"]).transform(raw, "system")


def rates(samples, columns=("x",)):
    handler = CumulativeRateHandler(list(columns))
    rows = []
    for at, raw in samples:
        handler.at(at)
        rows.append(handler.transform(raw, "system"))
    return [row.get("x") for row in rows]


def test_a_rate_is_by_the_time_of_the_sample():
    assert rates([(10.0, [5]), (12.5, [10]), (12.75, [11])]) == [None, 2.0, 4.0]


def test_a_reset_gives_null_for_that_interval_only():
    assert rates([(0.0, [100]), (1.0, [3]), (2.0, [5])]) == [None, None, 2.0]


def test_a_missing_count_gives_null_then_the_rate_over_the_whole_time():
    assert rates([(0.0, [0]), (1.0, [None]), (2.0, [NAN]), (4.0, [8])]) == [None, None, None, 2.0]


def test_time_that_stands_still_gives_null():
    assert rates([(1.0, [0]), (1.0, [5])]) == [None, None]


def test_levels_do_not_mix():
    handler = CumulativeRateHandler(["x"])
    for at, process, system in [(0.0, 0, 1000), (1.0, 1, 1010)]:
        handler.at(at)
        one, other = handler.transform([process], "process"), handler.transform([system], "system")
    assert (one["x"], other["x"]) == (1.0, 10.0)


def test_without_a_pipeline_the_handler_has_its_own_clock():
    handler = CumulativeRateHandler(["x"])
    handler.transform([0], "system")
    time.sleep(0.05)
    before = time.perf_counter()
    rate = handler.transform([1], "system")["x"]
    assert 0 < rate <= 20.0
    assert time.perf_counter() >= before


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_rates_times_their_intervals_give_the_count_back(steps):
    at, count, samples = 0, 0, [(0.0, [0])]
    for milliseconds, increase in steps:
        at += milliseconds
        count += increase
        samples.append((at / 1000, [count]))
    got = rates(samples)
    total = sum(r * (b[0] - a[0]) for r, a, b in zip(got[1:], samples, samples[1:], strict=False))
    assert total == pytest.approx(count, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "expected"), [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (2**63, 2.0**63), (10**400, None)]
)
def test_whole_numbers_beyond_eight_bytes_are_floats_or_null(value: int, expected: float | None) -> None:
    found = number(value)
    assert (found, type(found)) == (expected, type(expected))
