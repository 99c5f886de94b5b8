"""A host's clock is followed by its exchanges with the reference: placed right, within the bound that is stored."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jumper
from jumper.monitor.segment import SegmentWriter
from jumper.store.bounds import bound
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


HEAD, NODE = ("head", "b"), ("node", "b")
#: of the two monotonic clocks against the time
TRUE = {HEAD: 5 * S, NODE: 100_000 * S}


def told(
    host: tuple[str, str], event: str, at: int, attempt: str = "1.1.1", kind: str = "task", **more: object
) -> tuple[tuple[str, str], dict[str, object]]:
    """A record of a job, made at a time."""
    witness = {"witness": "scheduler"} if host == HEAD else {}
    mono = at - TRUE[host]
    return host, {"type": kind, "key": "k", "attempt_id": attempt, "event": event, "mono_ns": mono, **witness, **more}


def bounded(ahead: int, *jobs: tuple[int, int, int, int]) -> Clock:
    """The clock of a node that is ahead, bound by jobs: when they were given, began, ended and were found done."""
    records = []
    for number, (given, began, ended, done) in enumerate(jobs, 1):
        name = {"attempt": f"{number}.1.1"}
        records += [told(HEAD, "start", given, ready=True, **name), told(NODE, "start", began, **name),
                    told(NODE, "stop", ended, **name), told(HEAD, "stop", done, state="done", **name)]  # fmt: skip
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] + ahead)}
    return {**clocks, **bound(clocks, records)}[NODE]


@pytest.mark.parametrize("ahead", [-50 * S, -S, 0, 2 * S, 300 * S])
def test_no_job_starts_before_it_was_submitted_or_ends_after_it_was_done(ahead: int) -> None:
    clock = bounded(ahead, (1000 * S, 1004 * S, 1010 * S, 1020 * S), (1100 * S, 1107 * S, 1190 * S, 1193 * S))
    off, error = clock.offset_ns(0) - TRUE[NODE], clock.error_ns(0)
    assert error is not None
    assert abs(off) <= error <= 7.1 * S + DRIFT_NS * 190
    # between 4 s too early, as it began 4 s after it was given away, and 3 s too late
    assert -4.1 * S <= off <= 3.1 * S
    if -4 * S < ahead < 3 * S:
        assert off == ahead


def test_one_bound_alone_moves_a_clock_and_says_nothing_of_its_error() -> None:
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] - 50 * S)}
    only = bound(clocks, [told(HEAD, "start", 1000 * S, ready=True), told(NODE, "start", 1004 * S)])
    assert only == {NODE: Clock.fixed(TRUE[NODE] - 4 * S)}
    given = told(HEAD, "start", 1000 * S, ready=True, external_id="7")  # it was, before that was told
    assert bound(clocks, [given, told(NODE, "start", 1004 * S)]) == {}


def test_jobs_of_a_group_began_after_the_run() -> None:
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] - 1800 * S)}
    records = [told(HEAD, "start", 1000 * S, ready=True, external_id="7"), told(NODE, "start", 1004 * S),
               told(NODE, "stop", 1014 * S), told(HEAD, "stop", 1015 * S, state="done")]  # fmt: skip
    clock = bound(clocks, records, [(HEAD, 998 * S - TRUE[HEAD])])[NODE]
    assert clock.offset_ns(0) - TRUE[NODE] == pytest.approx(-6 * S, abs=10_000_000)
    assert clock.error_ns(0) == pytest.approx(7 * S, abs=10_000_000)


@pytest.mark.parametrize(
    ("own", "by_batch", "known"),
    [({"exit_code": 3}, {}, True), ({"exit_code": -15}, {}, False), ({"exit_code": 143}, {}, False), ({}, {}, False),
     ({"exit_code": 1}, {"ended_by": "it ran out of time in Slurm"}, False)],
)  # fmt: skip
def test_a_job_that_failed_by_itself_did_so_before_that_was_found(
    own: dict[str, Any], by_batch: dict[str, Any], known: bool
) -> None:
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] + HOUR)}
    records = [told(HEAD, "start", 1000 * S, ready=True), told(NODE, "start", 1004 * S),
               told(NODE, "stop", 1014 * S, state="failed", **own), told(HEAD, "stop", 1017 * S, state="failed"),
               told(HEAD, "note", 1018 * S, **by_batch)]  # fmt: skip
    clock = bound(clocks, records)[NODE]
    if known:
        assert clock.offset_ns(0) - TRUE[NODE] == pytest.approx(3 * S, abs=10_000_000)
        assert clock.error_ns(0) == pytest.approx(7 * S, abs=10_000_000)
    else:
        assert clock == Clock.fixed(TRUE[NODE] + HOUR)


def test_a_job_of_two_runs_that_were_merged_ended_before_the_later_word_of_it() -> None:
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] + HOUR)}
    records = [told(HEAD, "stop", 1010 * S, state="done"), told(NODE, "stop", 1090 * S, state="failed", exit_code=1),
               told(HEAD, "stop", 1100 * S, state="failed")]  # fmt: skip
    assert bound(clocks, records) == {NODE: Clock.fixed(TRUE[NODE] + 10 * S)}


def test_another_node_of_a_job_is_bound_by_when_its_processes_were_seen() -> None:
    """Its end may be told late: a job waits for that some seconds only."""
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.fixed(TRUE[NODE] + HOUR)}
    records = [told(HEAD, "start", 1000 * S, ready=True), told(NODE, "start", 1004 * S, kind="part"),
               told(HEAD, "stop", 1010 * S, state="done"), told(NODE, "stop", 1012 * S, kind="part")]  # fmt: skip
    clock = bound(clocks, records)[NODE]
    assert (clock.offset_ns(0) - TRUE[NODE], clock.error_ns(0)) == (6 * S, 10 * S)


def test_the_bound_has_the_error_of_the_clock_that_it_is_told_by() -> None:
    clocks = {HEAD: Clock.of([(0, TRUE[HEAD], S)]), NODE: Clock.fixed(TRUE[NODE] + HOUR)}
    records = [told(HEAD, "start", 1000 * S, ready=True), told(NODE, "start", 1004 * S),
               told(NODE, "stop", 1014 * S), told(HEAD, "stop", 1017 * S, state="done")]  # fmt: skip
    error = bound(clocks, records)[NODE].error_ns(0)
    assert error is not None
    assert error > 9 * S


def test_bounds_that_contradict_each_other_and_clocks_that_are_known_leave_a_clock_alone() -> None:
    assert bounded(7, (1010 * S, 1004 * S, 1010 * S, 1009 * S)) == Clock.fixed(TRUE[NODE] + 7)
    clocks = {HEAD: Clock.fixed(TRUE[HEAD]), NODE: Clock.of([(0, TRUE[NODE], 1000)])}
    assert bound(clocks, [told(HEAD, "start", 1000 * S, ready=True), told(NODE, "start", 900 * S)]) == {}


@pytest.mark.parametrize(
    ("ends", "said"),
    [([], None), (["done"], "placed within 6.00 s of the reference clock"),
     (["done", None], "placed within 6.00 s of the reference clock; 1 node by its own wall clock"),
     ([None, None], "2 nodes by their own wall clocks")],
)  # fmt: skip
def test_the_page_says_how_well_nodes_are_placed_and_of_which_nobody_knows(
    tmp_path: Path, ends: list[str | None], said: str | None
) -> None:
    """One job a node, given 4 s before it began and found done 6 s after its end, or lost."""
    run = RunDirectory(tmp_path / "run")
    run.create("snakemake", run="r", interval_s=1.0)
    now = time.monotonic_ns() - HOUR
    scheduler = {"type": "task", "witness": "scheduler"}
    with SegmentWriter(run.spool, {"kind": "scheduler"}, node="head") as head:
        head.text({"type": "end"})
        for key, state in enumerate(ends):
            job = {"key": str(key), "attempt_id": "1.1.1"}
            head.text({**scheduler, **job, "event": "start", "ready": True, "mono_ns": now})
            with SegmentWriter(run.spool, {"kind": "snakemake"}, node=f"n{key}") as node:
                node.text({"type": "task", **job, "event": "start", "mono_ns": now + 4 * S})
                if state is not None:
                    node.text({"type": "task", **job, "event": "stop", "mono_ns": now + 9 * S, "state": state})
            head.text({**scheduler, **job, "event": "stop", "mono_ns": now + 15 * S, "state": state or "failed"})
    made = jumper.open_run(run.path)
    errors = {name.split(".")[0]: clock["error_ns"] for name, clock in made.info["clocks"].items()}
    assert errors["head"] == 0
    assert [errors[f"n{key}"] is None for key in range(len(ends))] == [state is None for state in ends]
    page = Path(made.report(tmp_path / "page.html")).read_text()
    assert (">clocks<" in page) == (said is not None)
    assert said is None or f">{said}<" in page
