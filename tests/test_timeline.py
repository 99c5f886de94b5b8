"""Timelines of runs in which every job is a series of its own: many, short, one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jumper.analysis import busy, held, timeline
from jumper.analysis.timeline import make_grid

SECOND = 10**9


def jobs(count: int, at_once: int) -> pd.DataFrame:
    """Jobs of 1 s, one after the other in each place, that read 100 bytes and hold 10 bytes until their end."""
    rows = []
    for number in range(count):
        start = number // at_once * SECOND
        for part in range(3):
            rows.append(
                {"node": "n1", "segment": "s", "pid": 100 + number, "time_ns": start + part * SECOND // 2,
                 "read_chars": 50 * part, "memory_bytes": 10.0 * (part < 2), "cpu_ns": part * SECOND // 2}
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_the_rate_of_jobs_that_follow_one_another_in_a_bin_is_not_the_sum_of_their_rates() -> None:
    grid = make_grid(0, 20 * SECOND, bins=5)  # four jobs a bin in each of the two places
    (line,) = timeline.total_rates(jobs(40, at_once=2), ["read_chars"], grid, 1.0)
    assert line is not None
    assert line == pytest.approx([200.0] * 5)


def test_a_bin_that_is_known_in_part_has_the_rate_of_that_part() -> None:
    frame = pd.DataFrame({"node": "n", "segment": "s", "pid": 1, "time_ns": [0, SECOND], "read_chars": [0, 7]})
    grid = make_grid(0, 4 * SECOND, bins=1)
    known, absent = timeline.total_rates(frame, ["read_chars", "write_chars"], grid, 1.0)
    assert known == pytest.approx([7.0]) and absent is None


def test_what_one_counter_does_not_know_is_not_covered_by_another_one() -> None:
    frame = pd.DataFrame({"node": "n", "segment": "s", "pid": 1, "time_ns": [0, SECOND, 2 * SECOND],
                          "read_chars": [0, 4, 8], "write_chars": [0.0, 6.0, None]})  # fmt: skip
    grid = make_grid(0, 2 * SECOND, bins=1)
    lines = timeline.total_rates(frame, ["read_chars", "write_chars"], grid, 1.0)
    assert [float(line[0]) for line in lines if line is not None] == [4.0, 6.0]


def test_memory_of_jobs_that_follow_one_another_in_a_bin_is_not_added() -> None:
    grid = make_grid(0, 20 * SECOND, bins=5)
    assert timeline.total_gauge(jobs(40, at_once=2), "memory_bytes", grid, 1.0) == pytest.approx([20.0] * 5)


def test_memory_that_is_not_told_any_more_is_forgotten() -> None:
    frame = pd.DataFrame({"node": "n", "segment": "s", "pid": 1, "time_ns": [0], "memory_bytes": [5.0]})
    line = timeline.total_gauge(frame, "memory_bytes", make_grid(0, 4 * SECOND, bins=4), 1.0)
    assert line.tolist() == [5, 5, 5, 0]


def test_cpu_of_a_workflows_jobs_is_theirs_alone() -> None:
    samples = jobs(4, at_once=2)
    tasks = pd.DataFrame(
        {"group": "one", "node": "n1", "pid": 7, "thread": [8, 9, 8, 9], "cpu_s": 1.0,
         "start_ns": [1, 1, SECOND, SECOND], "stop_ns": [SECOND, SECOND, 2 * SECOND, 2 * SECOND]}
    )  # fmt: skip
    run: Any = SimpleNamespace(
        tasks=tasks, info={"kind": "snakemake"}, samples=lambda stream: samples if stream == "process" else samples[:0]
    )
    grid = make_grid(0, 2 * SECOND, bins=4)
    lines = busy.cpu_by_group(run, grid, 0.5)
    assert set(lines) == {"one"}
    assert np.sum(lines["one"]) * grid.width_s == pytest.approx(4.0)


def test_memory_of_many_short_jobs_is_that_of_their_groups_and_takes_little_room() -> None:
    samples = jobs(2000, at_once=2)
    tasks = pd.DataFrame(
        {"group": ["even", "odd"] * 1000, "node": "n1", "pid": 100 + np.arange(2000), "thread": None, "cpu_s": 1.0,
         "start_ns": np.arange(2000) // 2 * SECOND + 1, "stop_ns": (np.arange(2000) // 2 + 1) * SECOND}
    )  # fmt: skip
    run: Any = SimpleNamespace(
        tasks=tasks, info={"kind": "snakemake"}, samples=lambda stream: samples if stream == "process" else samples[:0]
    )
    grid = make_grid(0, 1000 * SECOND)
    lines = held.memory_by_group(run, grid, 1.0)
    assert lines["even"] + lines["odd"] == pytest.approx([20.0] * 600)
    assert lines["even"].mean() == pytest.approx(10.0, rel=0.01)
    cpu = busy.cpu_by_group(run, grid, 0.5)
    assert cpu["even"].sum() * grid.width_s == pytest.approx(1000.0) == cpu["odd"].sum() * grid.width_s


def test_cpu_beyond_the_attempts_is_outside_of_them_and_a_shape_is_the_counters_own() -> None:
    cpu_s = [0, 2, 4, 4, 4, 4, 5, 6, 7]  # two cores for 2 s in the attempt, none for 3 s, one core after it
    samples = pd.DataFrame(
        {"node": "n1", "segment": "s", "pid": 7, "time_ns": np.arange(9) * SECOND, "cpu_ns": np.array(cpu_s) * SECOND}
    )
    tasks = pd.DataFrame(
        {"group": "one", "node": "n1", "pid": [7, 8], "thread": None, "cpu_s": [4.0, 3.0],
         "start_ns": [1, 1], "stop_ns": [5 * SECOND, 6 * SECOND]}
    )  # fmt: skip
    run: Any = SimpleNamespace(
        tasks=tasks, info={}, samples=lambda stream: samples if stream == "process" else samples[:0]
    )
    lines = busy.cpu_by_group(run, make_grid(0, 8 * SECOND, bins=8), 1.0)
    assert lines["one"] == pytest.approx([2.5, 2.5, 0.5, 0.5, 0.5, 0.5, 0, 0], abs=1e-6)
    assert lines[timeline.OUTSIDE] == pytest.approx([0, 0, 0, 0, 0, 1, 1, 1], abs=1e-6)


def test_only_processes_that_began_with_their_job_have_a_row_at_its_start() -> None:
    """Of these tasks the first alone: others have a thread, were seen late, or never; have no pid, or no start."""
    tasks = pd.DataFrame({
        "node": "n1", "pid": pd.array([100, 7, 101, 102, None, 103], dtype="Int64"),
        "start_ns": pd.array([SECOND, SECOND, 3 * SECOND, SECOND, SECOND, None], dtype="Int64"),
        "thread": pd.array([None, 8, None, None, None, None], dtype="Int64"),
    })  # fmt: skip
    seen = [  # not by time; a process of another node has the number of the first one, and was seen before it
        ("n1", 100, 2 * SECOND, 5), ("n1", 100, 3 * SECOND, 8), ("n1", 101, 6 * SECOND, 4), ("n1", 7, 2 * SECOND, 9),
        ("n1", 101, 2 * SECOND, 3), ("n1", None, 2 * SECOND, 6), ("n1", 103, SECOND, 2),
        ("n2", 100, 3 * SECOND // 2, 1),
    ]  # fmt: skip
    samples = pd.DataFrame(seen, columns=["node", "pid", "time_ns", "write_chars"])
    samples = samples.assign(pid=samples["pid"].astype("Int64"), segment=samples["node"] + ".seg", memory_bytes=1)
    samples = samples.assign(mono_ns=samples["time_ns"], rss_bytes=1)
    run: Any = SimpleNamespace(info={"kind": "snakemake", "interval_s": 1.0}, tasks=tasks, samples=lambda _: samples)
    rows = timeline.processes(run)
    assert set(rows.columns) == {"node", "segment", "pid", "time_ns", "write_chars", "memory_bytes"}
    assert rows["time_ns"].is_monotonic_increasing
    (added,) = rows[rows["memory_bytes"].isna()].to_dict("records")
    assert np.isnan(added.pop("memory_bytes"))
    assert added == {"node": "n1", "segment": "n1.seg", "pid": 100, "time_ns": SECOND, "write_chars": 0}
    others = rows[rows["memory_bytes"].notna()][["node", "pid", "time_ns", "write_chars"]]
    assert sorted(others.fillna(-1).itertuples(index=False, name=None)) == sorted(
        (node, -1 if pid is None else pid, at, wrote) for node, pid, at, wrote in seen
    )
    run.info["kind"] = "command"
    assert timeline.processes(run) is samples
