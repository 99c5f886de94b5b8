"""The run directory: merging, opening, and what is not one."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jumper
from jumper.core.run import merge
from jumper.monitor.segment import SegmentWriter
from jumper.schema.errors import RunError
from jumper.store.rundir import RunDirectory, mask_secrets

S = 1_000_000_000


def write_run(path: Path, *, end: bool = True, ticks: int = 5, often: bool = False) -> Path:
    """A run of one command on node n1: 1 CPU second a second, 100 MB more a second; `often`: a block for each tick."""
    directory = RunDirectory(path)
    directory.create("command", command=["work", "--token", "s3cret"], run="r1", interval_s=1.0)
    with SegmentWriter(directory.spool, {"interval_s": 1.0}, node="n1") as segment:
        segment.text({"type": "node", "node": "n1", "num_cpus": 2})
        start = {"type": "task", "event": "start", "key": "work", "attempt_id": "0", "kind": "command", "pid": 7}
        segment.text({**start, "group": "work", "mono_ns": 0})
        for tick in range(ticks):
            row = {"mono_ns": tick * S, "pid": 7, "cpu_ns": tick * S, "memory_bytes": (tick + 1) * 100_000_000}
            segment.row(
                "process", {**row, "processes": 1, "pss_missing": 0, "unseen_faults": 0, "celsius": 20.5 + tick}
            )
            if often:
                segment.flush()
        if end:
            stop = {**start, "event": "stop", "mono_ns": (ticks - 1) * S, "state": "done", "exit_code": 0}
            segment.text({**stop, "rusage": {"cpu_user_ns": 3 * S, "cpu_system_ns": S, "maxrss_bytes": 0}})
            segment.text({"type": "end", "ticks": ticks})
    return path


def snapshot(path: Path) -> dict[str, Any]:
    run = jumper.open_run(path)
    return {
        "tasks": run.tasks.to_json(),
        "parts": run.parts.to_json(),
        "events": run.events.to_json(),
        "process": run.samples("process").to_json(),
        "info": dict(run.info),
    }


def test_merging_gives_the_tables(tmp_path: Path) -> None:
    run = jumper.open_run(write_run(tmp_path / "run"))
    (task,) = run.tasks.to_dict("records")
    assert (task["cpu_s"], task["cpu_user_s"], task["cpu_system_s"]) == (4.0, 3.0, 1.0)
    assert (task["memory_peak_bytes"], task["memory_peak_source"]) == (500_000_000, "rss")
    assert (task["wall_s"], task["state"], task["attempt"], task["samples"], task["gap_s"]) == (4.0, "done", 1, 5, 0.0)
    assert run.samples("process", columns=["celsius"])["celsius"].tolist() == [20.5, 21.5, 22.5, 23.5, 24.5]
    assert run.samples("process", node="other").empty
    assert run.samples("nothing").empty
    assert run.nodes == {"n1": {"num_cpus": 2}}
    assert run.info["command"] == "work --token '***'"


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    first = snapshot(path)
    (path / "tasks.parquet").unlink()  # as if the merge had been killed before its end
    assert snapshot(path) == first


def test_merging_may_be_repeated_while_the_run_goes_on(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", often=True)
    (source,) = (whole / "spool").glob("*.seg")
    data = source.read_bytes()
    states, samples = [], []
    growing = tmp_path / "growing"
    shutil.copytree(whole, growing)
    target = growing / "spool" / source.name
    for size in (*range(0, len(data), 250), len(data)):
        target.write_bytes(data[:size])
        run = jumper.open_run(growing)
        states.append(run.tasks["state"].fillna("runs").tolist())
        samples.append(len(run.samples("process")))
    assert [state for state, _ in groupby(states)] == [[], ["runs"], ["done"]]
    assert samples == sorted(samples) and set(samples) == set(range(6))
    again = snapshot(growing)
    assert again["tasks"] == snapshot(whole)["tasks"]
    assert again["process"] == snapshot(whole)["process"]


def test_an_attempt_without_an_end_is_lost_and_keeps_its_samples(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", end=False)
    (segment,) = path.glob("spool/*.seg")
    assert jumper.open_run(path).tasks["state"].isna().all(), "on another machine it wrote a moment ago"
    os.utime(segment, (0, 0))
    run = jumper.open_run(path)
    (task,) = run.tasks.to_dict("records")
    assert task["state"] == "lost"
    assert "truncated" in task["flags"]
    assert task["cpu_s"] == 4.0
    assert task["memory_peak_bytes"] == 500_000_000
    assert run.info["coverage"]["incomplete"]


def test_a_table_opens_in_pandas_as_it_is(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    jumper.open_run(path)
    frame = pd.read_parquet(path / "samples" / "process")
    assert frame["node"].unique().tolist() == ["n1"]
    assert len(frame) == 5


def test_runs_of_several_nodes_are_merged(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b")
    run = merge([first, second / "spool"], tmp_path / "both")
    assert len(run.samples("process")) == 10
    # the same attempt told twice is one attempt
    assert len(run.tasks) == 1
    assert run.info["command"] == "work --token '***'"


def test_a_run_that_may_not_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run")
    before = sorted(p.name for p in path.iterdir())
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere, so the question is answered for it
    run = jumper.open_run(path)
    assert len(run.tasks) == 1
    assert len(run.samples("process")) == 5
    assert sorted(p.name for p in path.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such directory"),
        ({}, "it has no run.json and no spool"),
        ({"run.json": "{"}, "cannot be read"),
        ({"run.json": "[]"}, "is not a run"),
        ({"run.json": json.dumps({"schema": 99})}, "of a newer jumper (schema 99, this one reads up to 1); upgrade"),
        ({"run.json": json.dumps({"schema": "x"})}, "newer jumper"),
    ],
)
def test_what_is_not_a_run_is_said_in_one_line(tmp_path: Path, content: dict[str, str] | None, message: str) -> None:
    path = tmp_path / "thing"
    if content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    with pytest.raises(RunError) as caught:
        jumper.open_run(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_said_to_be_one_and_what_a_run_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(RunError) as caught:
        jumper.open_run(tmp_path / "t.csv")
    assert str(caught.value) == (
        f"{tmp_path}/t.csv is not a run: it is a file, and a run is a directory that holds a run.json; "
        "name the directory that `jumper run`, Snakemake or Dask said it wrote"
    )


def test_a_run_whose_json_was_lost_is_recovered_from_its_segments(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    (path / "run.json").unlink()
    assert len(jumper.open_run(path).tasks) == 1


def test_nothing_to_merge_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no segments to merge"):
        merge([tmp_path], tmp_path / "out")


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["a", "--password", "x", "b"], ["a", "--password", "***", "b"]),
        (["a", "--api-key=x"], ["a", "--api-key=***"]),
        (["AWS_SECRET_ACCESS_KEY=x", "a"], ["AWS_SECRET_ACCESS_KEY=***", "a"]),
        (["a", "--token", "--verbose"], ["a", "--token", "--verbose"]),
        (["a", "--keep-going", "x"], ["a", "--keep-going", "x"]),
    ],
)
def test_secrets_are_masked(command: list[str], masked: list[str]) -> None:
    assert mask_secrets(command) == masked


@pytest.mark.parametrize("name", ["tasks", "parts", "events", "samples/process/n-n1/*"])
@pytest.mark.parametrize("size", [None, 0, 3, 100])
def test_tables_that_were_cut_or_removed_are_made_again(tmp_path: Path, name: str, size: int | None) -> None:
    path = write_run(tmp_path / "run")
    first = snapshot(path)
    (file,) = path.glob(f"{name}.parquet")
    if size is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:size])
    assert snapshot(path) == first


def test_a_table_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    jumper.open_run(path)
    file = path / "tasks.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:20] + b"x" * (len(data) - 28) + data[-8:])
    with pytest.raises(RunError, match=r"tasks.parquet is damaged or gone: .* remove it"):
        _ = jumper.open_run(path).tasks


def test_tables_outlive_their_segments(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    first = snapshot(path)
    shutil.rmtree(path / "spool")
    assert snapshot(path) == first


@pytest.mark.parametrize("part", ["segments", "files", "nodes"])
@pytest.mark.parametrize("value", [3, [1], {"a": [1]}])
def test_a_run_json_of_another_shape_is_made_again(tmp_path: Path, part: str, value: object) -> None:
    path = write_run(tmp_path / "run")
    jumper.open_run(path)
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, part: value}))
    assert len(jumper.open_run(path).tasks) == 1
    shutil.rmtree(path / "spool")
    (path / "run.json").write_text(json.dumps({**info, part: value}))
    with pytest.raises(RunError, match=f"`{part}` has another shape"):
        jumper.open_run(path)


def test_what_lies_in_the_spool_and_is_no_segment_is_left_alone(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    spool = path / "spool"
    (spool / "folder.seg").mkdir()
    (spool / "dangling.seg").symlink_to("/nonexistent")
    (spool / "empty.seg").touch()
    (spool / "a b'\"<x> é$(y).seg").write_bytes(b"\x00" * 1000)
    (spool / os.fsdecode(b"bad\xff.seg")).write_bytes(b"x")
    run = jumper.open_run(path)
    assert len(run.tasks) == 1
    assert len(run.samples("process")) == 5


@pytest.mark.parametrize(("key", "shown"), [("a\udcff", "a\\xff"), ("\ud800", "\\ud800"), ("é\x00\n", "é\x00\n")])
def test_text_that_is_not_utf8_is_shown_and_not_refused(tmp_path: Path, key: str, shown: str) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.create("command", command=[key])
    with SegmentWriter(directory.spool, node="n1") as segment:
        segment.text({"type": "task", "event": "start", "key": key, "annotations": {key: [key]}, "mono_ns": 0})
        segment.text({"type": "event", "kind": key, "text": key})
    run = jumper.open_run(directory.path)
    (task,) = run.tasks.to_dict("records")
    assert task["key"] == shown
    assert json.loads(task["annotations"]) == {shown: [shown]}
    assert shown in run.events["text"].tolist()
    json.dumps(run.info, ensure_ascii=False).encode()


def test_readers_and_mergers_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    sources = [write_run(tmp_path / f"n{i}") for i in range(4)]

    def one(_: int) -> int:
        merge(sources, tmp_path / "all")
        return len(jumper.open_run(tmp_path / "all").samples("process"))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == [20] * 8
    assert not [p for p in (tmp_path / "all").rglob("*") if p.name.startswith(".")]


def test_a_run_of_a_newer_schema_is_not_added_to(tmp_path: Path) -> None:
    out = RunDirectory(tmp_path / "newer")
    out.create("command")
    out.write_info({**out.read_info(), "schema": 99})
    with pytest.raises(RunError, match="of a newer jumper"):
        merge([write_run(tmp_path / "run")], out.path)
    assert out.segments() == []


def test_a_wall_clock_that_is_stepped_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are monotonic ones, placed once for a host: by its first block."""
    walls = iter(range(10**18, 10**19, 3600 * S))  # an hour on at every look
    monkeypatch.setattr(time, "time_ns", lambda: next(walls))
    first, second = write_run(tmp_path / "run"), RunDirectory(tmp_path / "run")
    with SegmentWriter(second.spool, node="n1") as segment:
        segment.row("process", {"mono_ns": 9 * S, "pid": 8, "cpu_ns": 1})
    run = jumper.open_run(first)
    (task,) = run.tasks.to_dict("records")
    assert (task["wall_s"], task["stop_ns"] - task["start_ns"], task["samples"]) == (4.0, 4 * S, 5)
    samples = run.samples("process")
    assert (samples["time_ns"] - samples["mono_ns"]).nunique() == 1
    assert samples["pid"].tolist() == [7] * 5 + [8]


def test_the_exchange_with_the_smallest_error_places_a_host(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with SegmentWriter(path / "spool", node="n1") as segment:
        for offset, error in ((1000 * S, 9), (2000 * S, 3), (3000 * S, 5), (4000 * S, None)):
            segment.text({"type": "clock", "offset_ns": offset, "error_ns": error})
    with SegmentWriter(path / "spool", node="n2") as segment:
        segment.row("process", {"mono_ns": 7 * S, "pid": 8})
    run = jumper.open_run(path)
    (task,) = run.tasks.to_dict("records")
    assert (task["start_ns"], task["stop_ns"]) == (2000 * S, 2004 * S)
    assert run.samples("process", node="n1")["time_ns"].tolist() == [(2000 + i) * S for i in range(5)]
    (other,) = run.samples("process", node="n2")["time_ns"]
    assert abs(other - time.time_ns()) < abs(time.time_ns() - time.monotonic_ns()), "by its own wall clock"
    errors = {name: clock["error_ns"] for name, clock in run.info["clocks"].items()}
    assert sorted(error is None for error in errors.values()) == [False, False, True]
    assert all(3 <= error < 1_000_000 for error in errors.values() if error is not None), "and what may have drifted"


def test_what_was_damaged_or_dropped_is_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with SegmentWriter(path / "spool", node="n2") as segment:
        for second in range(3):
            segment.row("process", {"mono_ns": second * S, "pid": 8})
            segment.flush()
        segment.text({"type": "end", "dropped": 4})
    data = bytearray(segment.path.read_bytes())
    places = [at for at in range(0, len(data), 256) if data[at : at + 4] == b"JMPB"]
    data[places[2] + 70] ^= 1
    segment.path.write_bytes(data)
    run = jumper.open_run(path)
    assert (run.info["coverage"]["torn"], run.info["coverage"]["missing_blocks"]) == (1, 1)
    assert run.info["coverage"]["dropped"] == 4
    assert sorted(run.events["kind"]) == ["missing-block", "torn-block"]
    assert run.samples("process", node="n2")["mono_ns"].tolist() == [0, 2 * S]


def test_merging_again_reads_only_what_grew(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    jumper.open_run(path)
    (kept,) = (path / "samples" / "process" / "n-n1").iterdir()
    before = kept.stat()
    with SegmentWriter(path / "spool", node="n1") as segment:
        segment.row("process", {"mono_ns": 9 * S, "pid": 8})
    assert len(jumper.open_run(path).samples("process")) == 6
    assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_merge_takes_the_longer_of_two_copies(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    (segment,) = (path / "spool").iterdir()
    out = tmp_path / "out"
    merge([path], out)
    copy = out / "spool" / segment.name
    whole = segment.read_bytes()
    copy.write_bytes(whole[:700])
    assert len(merge([path], out).samples("process")) == 5
    segment.write_bytes(whole[:700])
    before = copy.stat().st_ino
    assert len(merge([path], out).samples("process")) == 5
    assert copy.stat().st_ino == before
