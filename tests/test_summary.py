"""Rates, lanes, timelines and summaries, against numbers that a made run has by construction."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jumper.analysis import busy, lanes, rates, summary, tables, timeline
from jumper.report import terminal
from jumper.schema.errors import JumperError
from tests import made


@pytest.fixture(scope="module")
def run() -> made.Made:
    return made.make(60)


def test_rates_are_null_where_a_counter_goes_back_and_across_gaps() -> None:
    at = np.array([0, 1, 2, 3, 7, 8]) * made.SECOND
    counter = np.array([0.0, 10, 4, 6, 20, np.nan])
    found = rates.rate(at, counter, 1.0)
    assert np.array_equal(found, [np.nan, 10, np.nan, 2, np.nan, np.nan], equal_nan=True)


def test_the_documents_columns_come_from_stored_counters() -> None:
    rows = pd.DataFrame({
        "time_ns": [0, made.SECOND], "node": "n1", "segment": "a", "cpu_0_ns": [0, 10**9], "cpu_1_ns": [0, 10**8],
        "memory_bytes": [2**30, 3 * 2**30], "read_bytes": [5, 1005], "net_sent_bytes": [0, 7],
    })  # fmt: skip
    last = rates.derived(rows, 1.0, 2).iloc[-1]
    assert (last.cpu_util_0, last.cpu_util_1, last.cpu_util_min, last.cpu_util_max) == (100, 10, 10, 100)
    assert (last.cpu_util_avg, last.memory, last.io_read, last.net_bytes_sent) == (55, 3, 1000, 7)
    assert "io_write" not in last


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_attempts_on_one_lane_never_overlap(spans: list[tuple[int, int]]) -> None:
    start = np.array([a for a, _ in spans], dtype="int64")
    stop = start + np.array([b for _, b in spans], dtype="int64")
    found = lanes.pack(start, stop)
    for lane in set(found.tolist()):
        order = np.argsort(start[found == lane])
        assert (start[found == lane][order][1:] >= stop[found == lane][order][:-1]).all()
    depth = max((((start <= t) & (stop > t)).sum() for t in start), default=0)
    assert len(set(found.tolist())) == depth


def test_the_area_of_each_group_is_the_cpu_of_its_attempts(run: made.Made) -> None:
    grid = timeline.make_grid(*(timeline.span_of(run) or (0, 1)))
    area = {name: line.sum() * grid.width_s for name, line in busy.cpu_by_group(run, grid, 1.0).items()}
    truth = run.tasks.groupby("group")["cpu_s"].sum().to_dict()
    seconds = (grid.stop_ns - grid.start_ns) / 1e9
    assert area.pop(timeline.OUTSIDE) == pytest.approx(4 * 0.02 * seconds, rel=1e-6)
    assert area == pytest.approx(truth, rel=1e-6)


def test_a_group_is_busy_only_while_its_attempts_run(run: made.Made) -> None:
    grid = timeline.make_grid(*(timeline.span_of(run) or (0, 1)))
    line = busy.cpu_by_group(run, grid, 1.0)["write"]
    first = run.tasks.loc[run.tasks["group"] == "write", "start_ns"].min()
    assert line[grid.edges[1:] < (first - grid.start_ns) / 1e9].max() < 1e-9


def test_the_shape_inside_an_attempt_is_the_threads_own() -> None:
    one = made.make(1, nodes=1, workers=1, threads=1, names=("tokenise",))
    thread = one.streams["thread"]
    start, stop = one.tasks["start_ns"].iloc[0], one.tasks["stop_ns"].iloc[0]
    half = (start + stop) // 2
    shape = np.clip((thread["time_ns"] - start) / (half - start), 0, 1)
    thread["cpu_ns"] = np.round(shape * float(one.tasks["cpu_s"].iloc[0]) * 1e9).astype("int64")
    grid = timeline.make_grid(*(timeline.span_of(one) or (0, 1)))
    line = busy.cpu_by_group(one, grid, 1.0)["tokenise"] * grid.width_s
    late = grid.edges[:-1] > (half - grid.start_ns) / 1e9 + 1.0
    assert line.sum() == pytest.approx(float(one.tasks["cpu_s"].iloc[0]))
    assert line[late].sum() < 0.02 * line.sum()


def test_a_gap_is_not_drawn_as_a_value() -> None:
    at = np.array([0.0, 1, 2, 30, 31])
    edges = np.arange(32.0)
    counted = timeline.counter_bins(at, np.array([0.0, 1, 2, 3, 5]), 1.0, edges)
    held = timeline.gauge_bins(at, np.array([7.0, 7, 9, 1, 1]), 1.0, edges)
    assert np.isnan(counted[3:29]).all() and counted[30] == 2
    assert np.isnan(held[5:29]).all() and held[2] == 9


def test_summary_sums_what_is_known_and_leaves_null_what_is_not(run: made.Made) -> None:
    found = summary.summarize(run.tasks)
    truth = run.tasks[run.tasks["group"] == "compress"]
    row = found.loc["compress"]
    assert row["attempts"] == 12 and row["cpu_s"] == pytest.approx(truth["cpu_s"].sum())
    assert row["cores"] == pytest.approx(0.95) and row["write_chars"] == truth["write_chars"].sum()
    assert row["memory_peak_bytes"] == truth["memory_peak_bytes"].max()
    assert found["memory_asked_bytes"].isna().sum() == 4
    assert found.index[0] == "aggregate"


@pytest.mark.parametrize("by", ["group", "node", "key"])
def test_summary_of_no_attempts_is_empty(by: str) -> None:
    assert summary.summarize(made.tasks_table([]), by).empty


def test_summary_by_something_else_names_what_there_is(run: made.Made) -> None:
    with pytest.raises(JumperError, match="group, node, key"):
        summary.summarize(run.tasks, by="rule")


def test_headline(run: made.Made) -> None:
    key = summary.headline(run)
    truth = run.streams["process"].groupby(["node", "pid"])["cpu_ns"].max().sum() / 1e9
    assert key["cpu_s"] == pytest.approx(truth) and key["cores"] == 8 and key["attempts"] == 60
    assert key["monitor_share"] == pytest.approx(4 * 0.002)
    assert key["failed"] == (run.tasks["state"] == "failed").sum()


def test_custom_columns_are_those_that_nobody_declared(run: made.Made) -> None:
    assert tables.custom_columns(run.samples("system")) == ["room_temperature"]
    assert tables.custom_columns(run.samples("process")) == []


def _printed(run: made.Made, by: str, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(terminal.summary_table(run, by))
    return out.getvalue()


def test_the_terminal_table_keeps_whole_figures_at_any_width(run: made.Made) -> None:
    wide, narrow = _printed(run, "group", 160), _printed(run, "group", 80)
    assert "flagged" in wide.splitlines()[0] and "no room" not in wide
    assert "no room here for: flagged" in narrow and "…" not in narrow and "1.48 GiB" in narrow


def test_a_short_name_is_there_at_any_width() -> None:
    run = made.make(4, names=("sh", "cp"))
    for width in range(60, 160):
        printed = _printed(run, "group", width)
        assert "sh" in printed.split() and "cp" in printed.split(), printed


def test_names_are_not_markup() -> None:
    run = made.make(4, names=("[red]x[/red]", "[/]"))
    assert "[red]x[/red]" in _printed(run, "group", 120)


def test_json_is_one_versioned_document(run: made.Made) -> None:
    document = json.loads(json.dumps(terminal.summary_json(run, "key"), allow_nan=False))
    assert document["schema"] == 1 and document["by"] == "key" and len(document["tasks"]) == 60
    task = document["tasks"][0]
    assert task["key"] == "read-0000" and task["start_ns"] == int(run.tasks["start_ns"].iloc[0])
    assert task["exit_code"] is None and task["flags"] == []
    groups = json.loads(json.dumps(terminal.summary_json(run), allow_nan=False))["groups"]
    assert groups[0]["group"] == "aggregate" and groups[0]["memory_asked_bytes"] is None


def test_what_still_runs_is_counted_and_said() -> None:
    going = made.make(12)
    going.tasks.loc[going.tasks.index[:3], ["state", "stop_ns"]] = None
    going.tasks.loc[going.tasks.index[3], ["state", "start_ns", "stop_ns"]] = None  # has not begun
    assert summary.headline(going)["running"] == 3
    assert "12 tasks, 3 running" in _printed(going, "group", 160)
    assert "12 task" in _printed(made.make(12), "group", 160) and "running" not in _printed(made.make(12), "group", 160)
