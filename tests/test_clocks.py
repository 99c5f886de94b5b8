"""A host's clock is followed by its exchanges with the reference: placed right, within the bound that is stored."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import jumper
from jumper.monitor.segment import SegmentWriter
from jumper.store.clocks import DRIFT_NS, Clock
from jumper.store.rundir import RunDirectory

S = 1_000_000_000
HOUR = 3600 * S


def drifting(mono_ns: int, ppm: float = 60.0) -> int:
    """The true offset of a clock that drifts."""
    return 1_700_000_000 * S + round(mono_ns * ppm / 1e6)


def exchanges(seed: int, hours: float = 24.0, every_s: float = 60.0) -> list[tuple[int, int, int]]:
    """Exchanges of a day over a line of changing length: what an exchange reads is off by less than its bound."""
    draw = random.Random(seed)
    told = []
    for at in range(0, round(hours * HOUR), round(every_s * S)):
        error = round(draw.lognormvariate(13, 1.5))
        told.append((at, drifting(at) + round(draw.uniform(-1, 1) * error), error))
    return told


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_drifts_for_a_day_stays_within_the_bound_at_every_moment(seed: int) -> None:
    clock = Clock.of(exchanges(seed))
    times = np.arange(-HOUR, 25 * HOUR, 7 * S)
    off = [clock.offset_ns(int(time)) - drifting(int(time)) for time in times]
    bounds = [clock.error_ns(int(time)) for time in times]
    assert all(abs(o) <= b for o, b in zip(off, bounds, strict=True) if b is not None)
    day = (times >= 0) & (times <= 24 * HOUR - 60 * S)
    assert np.median(np.array(bounds)[day]) < 10_000_000
    assert abs(drifting(24 * HOUR) - drifting(0)) > 5 * S, "one offset for the day would have been far off"
    assert (np.diff(times + np.array(off)) > 0).all(), "and time goes on"
    placed = clock.offsets_ns(times)
    assert np.abs(placed - [clock.offset_ns(int(time)) for time in times]).max() <= 1


def test_a_bad_exchange_is_worth_less_than_a_good_one_some_time_ago() -> None:
    good, bad = (0, 100, 1000), (S, 10**9, 10**8)
    assert Clock.of([good, bad]) == Clock.of([good])
    assert len(Clock.of([good, (1000 * S, 10**9, 10**8)]).exchanges) == 2


def test_the_bound_grows_with_the_time_to_the_next_exchange() -> None:
    clock = Clock.of([(0, 0, 1000), (100 * S, 0, 1000)])
    assert clock.error_ns(50 * S) == 1000 + 50 * DRIFT_NS
    assert clock.error_ns(200 * S) == 1000 + 100 * DRIFT_NS
    assert clock.worst_ns(0, 100 * S) == clock.error_ns(50 * S)
    assert clock.worst_ns(0, 200 * S) == clock.error_ns(200 * S)
    assert (clock.told_by(0, 99 * S), clock.told_by(150 * S, 200 * S)) == (2, 1)


def test_the_reference_itself_has_no_error_and_a_host_that_never_asked_none_that_is_known() -> None:
    assert Clock.of([(0, 5, 3), (1, 7, 0)]).error_ns(HOUR) == 0
    assert (Clock.fixed(5).error_ns(0), Clock.fixed(5).offset_ns(9)) == (None, 5)


def test_samples_and_segments_are_placed_by_the_exchanges_around_them(tmp_path: Path) -> None:
    """A clock that drifts by 60 ppm over ten hours: 2 s from the first sample to the last."""
    run = RunDirectory(tmp_path / "run")
    run.create("dask", run="r", interval_s=1.0)
    with SegmentWriter(run.spool, {"interval_s": 1.0}, node="n1") as segment:
        for mono, offset, error in exchanges(0, 10.0):
            segment.text({"type": "clock", "mono_ns": mono, "offset_ns": offset, "error_ns": error})
        for at in range(0, 10 * HOUR, 600 * S):
            segment.row("process", {"mono_ns": at, "pid": 1})
    samples = jumper.open_run(run.path).samples("process")
    truth = [at + drifting(at) for at in samples["mono_ns"]]
    assert np.abs(samples["time_ns"] - truth).max() < 20_000_000
