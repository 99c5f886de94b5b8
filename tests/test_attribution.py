"""What an attempt cost: boundaries and samples with known numbers in, one row out."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from jumper.analysis import peaks
from jumper.analysis.attribution import attribute
from jumper.store.clocks import Clock
from jumper.store.merge import Merged

S = 1_000_000_000
MIB = 1 << 20
UTC = 1_700_000_000 * S
SMALL_PAGES = 4096

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fault touch 4 KiB, whatever this machine does."""
    monkeypatch.setattr(peaks, "_fault_bytes", lambda: SMALL_PAGES)


def record(event: str, at_s: float, **more: Any) -> Row:
    made = {"type": "task", "event": event, "key": "k", "attempt_id": "1", "kind": "dask", "pid": 7, "thread": 8}
    made |= {"node": "n1", "boot": "b", "segment": "s", "interval_s": 1.0, "mono_ns": round(at_s * S), "worker": "w"}
    return made | more


def frame(rows: list[Row]) -> pd.DataFrame:
    made = pd.DataFrame([{"node": "n1", "segment": "s", "pid": 7, **row} for row in rows])
    if not made.empty:
        made["mono_ns"] = (made.pop("at") * S).astype("int64")
    return made


def rows_of(records: list[Row], process: list[Row] = [], thread: list[Row] = [], **ends: float) -> list[Row]:  # noqa: B006
    """Return the tasks; ``ends`` says until when each segment goes."""
    merged = Merged(records=records, segments={"s": {"boot": "b"}, "t": {"boot": "b"}})
    merged.clocks = {("n1", "b"): Clock.fixed(UTC), ("n2", "c"): Clock.fixed(UTC + 100 * S)}
    merged.ends = {name: round(end * S) for name, end in ends.items()}
    streams = {"process": frame(process), "thread": frame([{"tid": 8, **row} for row in thread])}
    tasks, parts = attribute(merged, lambda stream: streams[stream])
    assert [(p["key"], p["attempt_id"]) for p in parts] == [(t["key"], t["attempt_id"]) for t in tasks]
    return tasks


def row_of(records: list[Row], process: list[Row] = [], thread: list[Row] = [], **ends: float) -> Row:  # noqa: B006
    (row,) = rows_of(records, process, thread, **ends)
    return row


def tick(at: float, memory: int = 100, **more: Any) -> Row:
    """A row of the process stream; memory in MiB."""
    made = {"at": at, "memory_bytes": memory * MIB, "rss_bytes": memory * MIB, "processes": 1, "pss_missing": 0}
    made["unseen_faults"] = 0
    return made | {name: v * MIB if name.endswith("_bytes") else v for name, v in more.items()}


# --- where and when ---------------------------------------------------------------------------


def test_times_are_the_reference_clocks() -> None:
    row = row_of([record("start", 1.5), record("stop", 4.0, state="done")])
    assert (row["start_ns"], row["stop_ns"], row["wall_s"]) == (UTC + 3 * S // 2, UTC + 4 * S, 2.5)
    assert (row["state"], row["node"], row["worker"], row["pid"], row["thread"]) == ("done", "n1", "w", 7, 8)
    assert (row["attempt"], row["flags"]) == (1, [])


def test_attempts_of_a_key_are_counted_by_start() -> None:
    records = [record("start", 9, attempt_id="a"), record("start", 1, attempt_id="b"), record("start", 2, key="other")]
    rows = rows_of(records, s=10)
    assert [(r["key"], r["attempt_id"], r["attempt"]) for r in rows] == [
        ("k", "b", 1),
        ("other", "1", 1),
        ("k", "a", 2),
    ]


def test_an_attempt_without_an_end_is_lost_and_reaches_to_its_segments() -> None:
    row = row_of([record("start", 1)], s=6.0, t=99.0)
    assert (row["state"], row["wall_s"], row["stop_ns"], row["flags"]) == ("lost", 5.0, UTC + 6 * S, ["truncated"])
    assert row["reason"]
    assert row_of([record("start", 7)], s=6.0)["wall_s"] == 0.0


def test_what_the_front_end_says_of_the_end_stays() -> None:
    row = row_of([record("start", 1, state="failed", reason="why")], s=6.0)
    assert (row["state"], row["reason"]) == ("failed", "why")


def test_a_record_without_anything_measured_is_a_row_of_nulls() -> None:
    row = row_of([record("stop", 5, state="failed")])
    assert (row["start_ns"], row["stop_ns"], row["wall_s"]) == (None, UTC + 5 * S, None)
    assert (row["cpu_s"], row["memory_peak_bytes"], row["samples"], row["gap_s"]) == (None, None, None, None)


def test_an_end_on_another_host_is_placed_by_the_clocks() -> None:
    row = row_of([record("start", 1), record("stop", 2, node="n2", boot="c")])
    assert (row["wall_s"], row["node"]) == (101.0, "n1")


def test_a_stop_that_tells_of_its_start_is_enough_and_corrects_what_was_announced() -> None:
    stop = record("stop", 4, begin_ns=round(1.5 * S), state="done")
    for records in ([stop], [record("start", 1), stop]):
        row = row_of(records)
        assert (row["start_ns"], row["wall_s"], row["state"]) == (UTC + 3 * S // 2, 2.5, "done")


def test_helper_threads_add_to_the_cpu_and_only_to_that() -> None:
    readings = {"base": {"cpu_ns": 1 * S, "read_chars": 5}, "end": {"cpu_ns": 3 * S, "read_chars": 6}}
    row = row_of([record("stop", 4, begin_ns=S, helpers_cpu_ns=S // 2, flags=["helpers"], **readings)])
    assert (row["cpu_s"], row["read_chars"], row["flags"]) == (2.5, 1, ["helpers"])


def test_counters_that_were_not_read_are_null_beside_those_that_were() -> None:
    row = row_of([record("stop", 4, begin_ns=S, base={"cpu_ns": 0}, end={"cpu_ns": S})])
    assert (row["cpu_s"], row["read_chars"], row["write_bytes"]) == (1.0, None, None)


def test_what_ran_in_another_process_does_not_have_this_one_s_memory() -> None:
    records = [record("stop", 4, begin_ns=S, flags=["elsewhere"])]
    assert row_of(records, [tick(2), tick(3)])["memory_peak_bytes"] is None


# --- who says what ------------------------------------------------------------------------------


def scheduler(event: str, at_s: float, **more: Any) -> Row:
    return record(
        event, at_s, witness="scheduler", node="n2", boot="c", segment="t", **{"pid": None, "worker": None, **more}
    )


def test_the_scheduler_fills_what_is_open_and_takes_back_nothing() -> None:
    own = [record("start", 1, group="own"), record("stop", 3, state="done")]
    word = scheduler("note", 50, group="theirs", layer="l", state="failed", worker="elsewhere")
    for records in ([word, *own], [*own, word]):
        row = row_of(records)
        assert (row["group"], row["layer"], row["state"], row["worker"]) == ("own", "l", "done", "w")
        assert (row["node"], row["wall_s"], row["start_ns"]) == ("n1", 2.0, UTC + S)


def test_an_attempt_has_waited_from_when_it_was_ready_until_it_began_elsewhere() -> None:
    ready = scheduler("start", 1, time_ns=UTC + 11 * S, ready=True)
    assert row_of([ready, record("start", 13.5), record("stop", 14)])["queued_s"] == 2.5
    assert row_of([record("start", 13.5), record("stop", 14), ready])["queued_s"] == 2.5
    early = {**ready, "time_ns": UTC + 14 * S}  # clocks are known to a bound
    assert row_of([early, record("start", 13.5), record("stop", 14)])["queued_s"] == 0
    assert row_of([ready, record("start", 13.5, queued_s=1.0), record("stop", 14)])["queued_s"] == 1.0
    assert row_of([ready, scheduler("stop", 4, state="done")])["queued_s"] is None


def test_an_attempt_that_only_the_scheduler_saw_has_its_times_and_no_cost() -> None:
    records = [
        scheduler("start", 1, time_ns=UTC + 11 * S, flags=["unmonitored"], worker="w"),
        scheduler("stop", 4, time_ns=UTC + 14 * S, state="done", ran_on="n9"),
    ]
    row = row_of(records, [tick(0), tick(200)])
    assert (row["start_ns"], row["stop_ns"], row["wall_s"]) == (UTC + 11 * S, UTC + 14 * S, 3.0)
    assert (row["node"], row["worker"], row["flags"], row["cpu_s"]) == ("n9", "w", ["unmonitored"], None)
    assert (row["samples"], row["memory_peak_bytes"]) == (None, None)


def test_the_scheduler_says_that_a_worker_was_lost() -> None:
    records = [record("start", 1), scheduler("stop", 4, state="lost", reason="left")]
    row = row_of(records, s=3.0)
    assert (row["state"], row["reason"], row["node"]) == ("lost", "left", "n1")
    assert row["wall_s"] == 3.0, "until an interval after its last sign of life, however late that was noticed"


def test_an_end_that_only_the_scheduler_knows_is_no_loss() -> None:
    row = row_of([record("start", 1), scheduler("note", 4, state="done")], s=3.0)
    assert (row["state"], row["reason"], row["flags"], row["wall_s"]) == ("done", None, ["truncated"], 2.0)


def test_the_end_is_the_workers_where_both_tell_it() -> None:
    own, word = record("stop", 3, state="done"), scheduler("stop", 50, state="lost")
    for ends in ([own, word], [word, own]):
        row = row_of([record("start", 1), *ends])
        assert (row["state"], row["wall_s"], row["flags"]) == ("done", 2.0, [])


# --- CPU and I/O of a thread ----------------------------------------------------------------------

BASE = {"cpu_ns": 5 * S, "read_bytes": 10, "write_bytes": 20, "read_chars": 30, "write_chars": 40}
END = {"cpu_ns": 7 * S, "read_bytes": 11, "write_bytes": 22, "read_chars": 33, "write_chars": 44}
IO = ("read_bytes", "write_bytes", "read_chars", "write_chars")


def test_a_task_cost_what_its_thread_did_between_its_boundaries() -> None:
    row = row_of([record("start", 1, base=BASE), record("stop", 4, end=END)])
    assert (row["cpu_s"], [row[name] for name in IO], row["flags"]) == (2.0, [1, 2, 3, 4], [])
    assert (row["cpu_user_s"], row["cpu_system_s"]) == (None, None), "a thread's clock has no parts"


def test_its_sub_processes_come_on_top() -> None:
    children = {"cpu_ns": S, "cpu_user_ns": S, "cpu_system_ns": 0, "write_chars": 100, "spawned": 2}
    row = row_of([record("start", 1, base=BASE), record("stop", 4, end=END, children=children)])
    assert (row["cpu_s"], row["write_chars"], row["read_chars"], row["flags"]) == (3.0, 104, 3, [])
    assert (row["cpu_user_s"], row["cpu_system_s"]) == (None, None)


def test_a_share_that_was_split_is_flagged() -> None:
    row = row_of([record("start", 1, base=BASE), record("stop", 4, end=END, children={"cpu_ns": 1, "estimated": True})])
    assert row["flags"] == ["estimated"]


def test_a_counter_that_went_back_is_nothing_and_not_negative() -> None:
    row = row_of([record("start", 1, base=END), record("stop", 4, end=BASE)])
    assert (row["cpu_s"], row["read_chars"]) == (0.0, 0)


def test_what_a_boundary_could_not_read_is_null() -> None:
    row = row_of([record("start", 1, base={**BASE, "read_bytes": None}), record("stop", 4, end=END)])
    assert (row["read_bytes"], row["write_bytes"]) == (None, 2)


def test_a_lost_task_has_what_the_samples_saw_of_its_thread() -> None:
    seen = [{"at": at, "cpu_ns": (5 + at) * S, "write_chars": 40 + at} for at in (0, 1, 2, 3, 9)]
    row = row_of([record("start", 1, base=BASE)], thread=seen, s=4.0)
    assert (row["cpu_s"], row["write_chars"], row["flags"]) == (3.0, 3, ["estimated", "truncated"])
    assert row["read_bytes"] is None
    other = row_of([record("start", 1, base=BASE, thread=9)], thread=seen, s=4.0)
    assert other["cpu_s"] is None


def grown(at: float, own_s: float, **more: Any) -> tuple[Row, Row]:
    """Samples of a process whose one thread, and whose children, have used so much."""
    children_s = more.pop("children_s", 0)
    tree = tick(at, cpu_ns=(own_s + children_s) * S, write_chars=10 * (own_s + children_s), **more)
    return tree, {"at": at, "cpu_ns": own_s * S, "write_chars": 10 * own_s}


def test_a_lost_task_has_its_share_of_what_was_no_thread_s() -> None:
    base = {**BASE, "cpu_ns": S, "write_chars": 10}
    process, thread = zip(
        grown(0, 0, children_s=7, processes_seen=3),  # of tasks before it
        grown(1, 1, children_s=7, processes_seen=3),
        grown(3, 2, children_s=9, processes_seen=4, processes=2),
        grown(5, 3, children_s=11, processes_seen=4, processes=2),
        strict=True,
    )
    row = row_of([record("start", 1, base=base)], [*process], [*thread], s=5.0)
    assert (row["cpu_s"], row["write_chars"], row["flags"]) == (2 + 4, 20 + 40, ["estimated", "truncated"])
    both = [record("start", 1, base=base), record("start", 1, base=base, key="l", thread=9)]
    first, second = rows_of(both, [*process], [*thread], s=5.0)
    assert (first["cpu_s"], second["cpu_s"]) == (2 + 2, None), "nothing is known of the other one's own thread"
    ended = record("stop", 2, key="e", thread=9, begin_ns=S, base=base, end=base, children={"cpu_ns": 3 * S})
    (first,) = [r for r in rows_of([both[0], ended], [*process], [*thread], s=5.0) if r["key"] == "k"]
    assert first["cpu_s"] == 2 + 1, "that one's children are told"


def test_without_a_process_that_began_meanwhile_a_lost_task_has_its_thread_s_cost_only() -> None:
    process, thread = zip(*(grown(at, at, children_s=at, processes_seen=3) for at in (1, 3, 5)), strict=True)
    row = row_of([record("start", 1, base={**BASE, "cpu_ns": S, "write_chars": 10})], [*process], [*thread], s=5.0)
    assert row["cpu_s"] == 4


# --- CPU and I/O of a command ---------------------------------------------------------------------


def command(usage: Row | None, **more: Any) -> list[Row]:
    said = {} if usage is None else {"rusage": {"maxrss_bytes": 0, "maxrss_floor_bytes": 0, **usage}}
    stop = record("stop", 4, kind="command", state="done", **said, **more)
    return [record("start", 1, kind="command"), stop]


@pytest.mark.parametrize(
    ("waited_ns", "ledger_ns", "cpu_s", "flags"),
    [
        (3 * S, None, 3.0, []),
        (3 * S, 2 * S, 3.0, []),
        (3 * S, 3 * S + 19_000_000, 3.0, []),  # rounding
        (3 * S, 5 * S, 5.0, ["estimated"]),  # a child that nobody waited for
        (None, 5 * S, 5.0, ["estimated"]),
        (None, None, None, []),
    ],
)
def test_a_command_cost_what_the_wait_said(
    waited_ns: int | None, ledger_ns: int | None, cpu_s: float | None, flags: list[str]
) -> None:
    usage = None if waited_ns is None else {"cpu_user_ns": waited_ns - S, "cpu_system_ns": S}
    ledger = [] if ledger_ns is None else [tick(0, cpu_ns=0), tick(4.1, cpu_ns=ledger_ns)]
    row = row_of(command(usage), ledger)
    assert (row["cpu_s"], row["flags"]) == (cpu_s, flags)
    waited = cpu_s is not None and not flags
    assert (row["cpu_user_s"], row["cpu_system_s"]) == ((cpu_s - 1.0, 1.0) if waited and cpu_s else (None, None))


def test_a_commands_io_is_the_last_that_was_read() -> None:
    seen = [{**tick(at), **dict.fromkeys(IO, at * 10)} for at in (1, 2, 4)]
    row = row_of(command(None), seen)
    assert [row[name] for name in IO] == [40] * 4
    more = row_of(command(None, io={"read_bytes": 7, "write_chars": 99}), seen)
    assert (more["read_bytes"], more["write_chars"]) == (40, 99)


# --- memory ---------------------------------------------------------------------------------------


def memory(row: Row) -> tuple[float | None, str | None, list[str]]:
    peak = row["memory_peak_bytes"]
    return None if peak is None else peak / MIB, row["memory_peak_source"], row["flags"]


def dask(**stop: Any) -> list[Row]:
    return [record("start", 1), record("stop", 4, **stop)]


def test_a_single_process_has_its_highest_rss() -> None:
    row = row_of(dask(), [tick(0, 900), tick(2, 100), tick(3, 300), tick(5, 900)])
    assert memory(row) == (300, "rss", [])


def test_what_was_seen_between_two_ticks_counts() -> None:
    row = row_of(dask(), [tick(1), tick(2, 100, memory_peak_bytes=400, rss_peak_bytes=400), tick(5)])
    assert memory(row) == (400, "rss", [])


def test_a_peak_of_the_time_before_the_start_does_not_count() -> None:
    """The first row inside covers time since the row before, which lies before the start."""
    row = row_of(dask(), [tick(0), tick(2, 100, memory_peak_bytes=400, hwm_bytes=400), tick(3, 120)])
    assert memory(row) == (120, "rss", [])
    assert row["rss_peak_upper_bytes"] == 120 * MIB


def test_a_tree_has_its_pss() -> None:
    seen = [tick(2, 300, processes=3, pss_bytes=290, rss_bytes=800), tick(3, 100, processes=1)]
    row = row_of(dask(), seen)
    assert memory(row) == (300, "pss", [])
    assert (row["pss_peak_bytes"], row["rss_peak_bytes"], row["processes"]) == (290 * MIB, 800 * MIB, 3)


def test_a_tree_whose_sharing_is_not_known_is_flagged() -> None:
    row = row_of(dask(), [tick(2, 300, processes=3, pss_missing=2)])
    assert memory(row) == (300, "rss", ["memory-estimated"])


def test_a_mark_of_one_process_is_not_the_peak_of_a_tree_whose_sharing_was_not_known() -> None:
    """Forty forked children of 25 MiB that end before their PSS is read: each one's mark is exact, their sum is not."""
    forked = tick(2, 25, processes=41, pss_missing=41, rss_bytes=1010, hwm_max_bytes=25)
    assert memory(row_of(command(None), [forked]))[2] == ["memory-estimated"]
    later = tick(3, 400, processes=21, pss_missing=0, rss_bytes=500, hwm_max_bytes=25)
    assert memory(row_of(command(None), [forked, later])) == (400, "pss", ["memory-estimated"])


def test_forks_that_were_gone_at_the_only_row_leave_the_peak_unsure() -> None:
    """A job of 50 ms with three forked children of 40 MiB each: they were looked at, and what they share never."""
    gone = {"processes": 1, "processes_seen": 5, "rss_peak_bytes": 146, "hwm_max_bytes": 45}
    assert memory(row_of(command(None), [tick(2, 0, **gone)])) == (45, "hwm", ["memory-estimated"])
    apart = gone | {"memory_peak_bytes": 130}
    assert memory(row_of(command(None), [tick(2, 0, **apart)])) == (130, "rss", [])
    known = tick(2, 0, **gone, pss_bytes=60)
    assert memory(row_of(command(None), [known])) == (45, "hwm", [])


def test_a_shell_around_a_command_does_not_make_its_mark_unsure() -> None:
    """What is not known of the two is at most what their programs map from the same files."""
    row = row_of(command(None), [tick(2, 100, processes=2, pss_missing=2, rss_bytes=104, hwm_max_bytes=100)])
    assert memory(row) == (100, "hwm", [])


def test_a_mark_that_rose_about_a_task_is_the_bound_of_its_peak() -> None:
    """It held 369 MiB for 0.2 s between two samples; the mark that tells is in the row after its end."""
    seen = [tick(0, 100, hwm_max_bytes=150), tick(2, 223, hwm_max_bytes=223), tick(5, 100, hwm_max_bytes=369)]
    row = row_of(dask(), seen)
    assert memory(row) == (223, "rss", ["memory-estimated"])
    assert row["rss_peak_upper_bytes"] == 369 * MIB
    still = [tick(0, 100, hwm_max_bytes=369), tick(2, 223, hwm_max_bytes=369)]
    assert memory(row_of(dask(), still)) == (223, "rss", [])
    grows = [*seen[:2], tick(5, 400, hwm_max_bytes=400)]
    assert memory(row_of(dask(), grows)) == (223, "rss", []), "it has that since, for all we know"


def test_the_high_water_mark_between_the_boundaries_is_exact() -> None:
    row = row_of(dask(hwm_bytes=700 * MIB, flags=["shared"]), [tick(2, 300), tick(3, 500)])
    assert memory(row) == (700, "hwm", ["shared"])
    assert (row["rss_peak_bytes"], row["rss_peak_upper_bytes"]) == (700 * MIB, 700 * MIB)
    assert memory(row_of(dask(hwm_bytes=700 * MIB))) == (700, "hwm", [])
    low = row_of(dask(hwm_bytes=200 * MIB), [tick(2, 300, processes=2)])
    assert memory(low) == (300, "pss", [])


def test_a_wait_s_mark_counts_where_it_lies_above_its_floor() -> None:
    seen = [tick(2, 100), tick(3, 100)]
    usage = {"cpu_user_ns": 0, "cpu_system_ns": 0, "maxrss_bytes": 500 * MIB}
    assert memory(row_of(command(usage), seen)) == (500, "hwm", [])
    below = row_of(command({**usage, "maxrss_floor_bytes": 500 * MIB}), seen)
    assert memory(below)[:2] == (100, "rss")


def test_the_largest_mark_of_a_commands_processes_counts() -> None:
    row = row_of(command(None), [tick(2, 100, hwm_max_bytes=100), tick(4.1, 50, hwm_max_bytes=600, hwm_bytes=800)])
    assert memory(row) == (600, "hwm", [])
    assert (row["rss_peak_bytes"], row["rss_peak_upper_bytes"]) == (600 * MIB, 800 * MIB)


def test_a_mark_put_on_top_of_what_the_others_held_is_flagged() -> None:
    seen = [tick(2, 100, processes=2), tick(3, 100, processes=2, memory_peak_bytes=620, rss_peak_bytes=100)]
    row = row_of(command(None), [*seen, tick(4, 100, hwm_max_bytes=520)])
    assert memory(row) == (620, "pss", ["memory-estimated"])


@pytest.mark.parametrize(("faults", "flags"), [(0, []), (700, []), (1000, ["memory-estimated"])])
def test_children_that_nobody_saw_flag_a_peak_that_they_could_have_raised(faults: int, flags: list[str]) -> None:
    """2 % and 1 MiB of 100 MiB are let pass: 768 pages of 4 KiB."""
    row = row_of(command(None), [tick(2, 100, unseen_faults=0), tick(4, 50, unseen_faults=faults)])
    assert memory(row) == (100, "rss", flags)
    assert row["rss_peak_upper_bytes"] == 100 * MIB + faults * SMALL_PAGES


def test_a_command_whose_children_nobody_counted_is_flagged() -> None:
    """As on a system without /proc: whether the largest process was alone is not known."""
    usage = {"cpu_user_ns": 0, "cpu_system_ns": 0, "maxrss_bytes": 500 * MIB}
    assert memory(row_of(command(usage))) == (500, "hwm", ["memory-estimated"])
    seen = [tick(2, 100, unseen_faults=None), tick(4, 50, unseen_faults=None)]
    assert memory(row_of(command(usage), seen)) == (500, "hwm", ["memory-estimated"])
    assert memory(row_of(dask(), seen)) == (100, "rss", [])


def test_children_that_nobody_saw_may_have_been_beside_what_was_seen_of_the_others() -> None:
    usage = {"cpu_user_ns": 0, "cpu_system_ns": 0, "maxrss_bytes": 512 * MIB}
    faults = 512 * MIB // SMALL_PAGES
    row = row_of(command(usage), [tick(2, 20), tick(4, 20, unseen_faults=faults)])
    assert memory(row) == (512, "hwm", ["memory-estimated"])
    assert memory(row_of(command(usage), [tick(2, 20), tick(4, 20, unseen_faults=faults - 20 * 256)]))[2] == []


def test_nothing_seen_is_null_and_not_zero() -> None:
    row = row_of(dask(), [tick(0), tick(9)])
    assert memory(row) == (None, None, [])
    assert (row["rss_peak_bytes"], row["rss_peak_upper_bytes"]) == (None, None)


def test_the_limit_is_the_roots_where_the_task_has_none() -> None:
    root = {"type": "root", "node": "n1", "pid": 7, "memory_limit_bytes": 5, "boot": "b", "segment": "s"}
    assert row_of([*dask(), root])["memory_limit_bytes"] == 5
    assert row_of([*dask(memory_limit_bytes=3), root])["memory_limit_bytes"] == 3
    assert row_of([*dask(), {**root, "pid": 8}])["memory_limit_bytes"] is None


# --- how well it was seen -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ticks", "samples", "gap_s"),
    [
        ([0, 1, 2, 3, 4, 5], 4, 0.0),
        ([0.5, 1.5, 2.5, 3.5, 4.5], 3, 0.0),
        ([1, 4], 2, 3.0),
        ([0, 3.4], 1, 0.0),  # 2.4 s are within 2.5 intervals
        ([0, 3.6], 1, 2.6),
        ([0, 9], 0, 3.0),
        ([0, 0.5], 0, 3.0),
    ],
)
def test_gaps_are_the_time_between_ticks_inside_the_attempt(ticks: list[float], samples: int, gap_s: float) -> None:
    row = row_of(dask(), [tick(at) for at in ticks])
    assert row["samples"] == samples
    assert row["gap_s"] == pytest.approx(gap_s)


def test_gaps_are_by_the_interval_that_was_asked_for() -> None:
    records = [{**r, "interval_s": 0.1} for r in dask()]
    assert row_of(records, [tick(1), tick(1.2), tick(4)])["gap_s"] == pytest.approx(2.8)


def test_without_any_sample_all_of_it_is_a_gap() -> None:
    row = row_of(dask())
    assert (row["samples"], row["gap_s"]) == (0, 3.0)


def test_another_hosts_process_with_the_same_pid_is_not_this_one() -> None:
    seen = [{**tick(2, 300), "segment": "u"}, {**tick(3, 500), "node": "n2"}, {**tick(3, 600), "pid": 77}]
    assert memory(row_of(dask(), seen))[0] is None


def test_the_process_of_a_job_is_the_one_that_ran_it_so_that_its_samples_are_found() -> None:
    job = dask()
    for record in job:
        record.update(kind="snakemake", pid=70, roots=[[7, 0, None]])
    row = row_of(job, [tick(1, 300), tick(2, 500)])
    assert (row["pid"], row["thread"]) == (7, None) and memory(row)[0] == 500
