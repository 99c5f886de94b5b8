"""Exports read by others: Prometheus' parser, pandas, Snakemake's header, and the rules of Perfetto."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
import pytest

from jumper import open_run
from jumper.core.run import Run
from jumper.report import exports
from jumper.report.exports import export
from jumper.schema.errors import JumperError
from tests import made

HOSTILE = '</script>"\\\n{x="y"} ü'
DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def run() -> made.Made:
    return made.make(60)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run directory of real segments."""
    return open_run(made.write(made.make(40), tmp_path_factory.mktemp("made") / "run"))


class Named(msgspec.Struct, forbid_unknown_fields=True, tag_field="ph", tag="M"):
    name: Literal["process_name", "process_sort_index", "thread_name", "thread_sort_index"]
    pid: Annotated[int, msgspec.Meta(ge=1)]
    args: dict[Literal["name", "sort_index"], str | int]
    tid: int | None = None


class Slice(msgspec.Struct, forbid_unknown_fields=True, tag_field="ph", tag="X"):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    cat: Literal["done", "failed", "cancelled", "lost", "unfinished"]
    pid: int
    tid: int
    ts: Annotated[float, msgspec.Meta(ge=0)]
    dur: Annotated[float, msgspec.Meta(ge=0)]
    args: dict[str, str | float]


class Counter(msgspec.Struct, forbid_unknown_fields=True, tag_field="ph", tag="C"):
    name: str
    pid: int
    ts: Annotated[float, msgspec.Meta(ge=0)]
    args: dict[Literal["value"], float]


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    """A trace as the format describes it: a field that it has not, or one of another type, is an error."""

    displayTimeUnit: Literal["ms", "ns"]
    otherData: dict[str, str]
    traceEvents: list[Named | Slice | Counter]


def trace(run: Any, folder: Path) -> list[dict[str, Any]]:
    text = export(run, "perfetto", folder / "t.json").read_bytes()
    msgspec.json.decode(text, type=Trace)
    document = json.loads(text)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_a_trace_keeps_the_rules_of_perfetto(run: made.Made, tmp_path: Path) -> None:
    events = trace(run, tmp_path)
    named = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e["name"].endswith("_name")}
    tracks = defaultdict(list)
    for event in events:
        assert event["ph"] in "MXC" and isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
            tracks[event["pid"], event.get("tid"), event["ph"], event["name"] if event["ph"] == "C" else ""].append(
                event
            )
    assert {kind for _, _, kind, _ in tracks} == {"X", "C"}
    for (pid, tid, kind, _), found in tracks.items():
        assert (pid, None) in named
        times = [e["ts"] for e in found]
        if kind == "C":
            assert times == sorted(times) and all(np.isfinite(e["args"]["value"]) for e in found)
            continue
        assert (pid, tid) in named and tid > max(p for p, t in named if t is None)
        spans = sorted((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in found)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))  # nothing overlaps


def test_slices_are_the_attempts(run: made.Made, tmp_path: Path) -> None:
    slices = {e["args"]["key"]: e for e in trace(run, tmp_path) if e["ph"] == "X"}
    assert len(slices) == len(run.tasks)
    for _, task in run.tasks.iterrows():
        event = slices[task["key"]]
        assert round(event["ts"] * 1000) == task["start_ns"] - made.START_NS
        assert event["dur"] == pytest.approx((task["stop_ns"] - task["start_ns"]) / 1000, abs=1e-3)
        assert event["name"] == task["group"] and event["cat"] == task["state"]
        assert event["args"]["cpu_s"] == pytest.approx(task["cpu_s"])
        assert ("memory_asked_bytes" in event["args"]) == pd.notna(task["memory_asked_bytes"])


def test_the_area_of_the_busy_cores_is_the_cpu_time(run: made.Made, tmp_path: Path) -> None:
    counters = [e for e in trace(run, tmp_path) if e["ph"] == "C" and e["name"] == "busy cores"]
    times = sorted({e["ts"] for e in counters})
    width_s = (times[1] - times[0]) / 1e6
    truth = run.streams["process"].groupby(["node", "pid"])["cpu_ns"].max().sum() / 1e9
    assert sum(e["args"]["value"] for e in counters) * width_s == pytest.approx(truth, rel=0.01)
    assert len(times) <= 2000


def test_processes_that_come_and_go_are_one_counter_of_their_node(tmp_path: Path) -> None:
    """Two lanes of jobs of ten seconds, each a process of its own that holds 1 GiB and keeps half a core busy."""
    run, at, frames = made.make(0, samples=False), np.arange(0.0, 10.5), []
    for number in range(40):
        frame = made._keys(at + 10 * (number // 2), "n1", 100 + number)
        frame["memory_bytes"] = np.where(at < 10, made.GIB, 0)  # its last sample sees it gone
        frame["cpu_ns"] = (at * 5e8).astype("int64")
        frames.append(frame)
    run.streams["process"] = pd.concat(frames, ignore_index=True)
    values = defaultdict(list)
    for event in trace(run, tmp_path):
        if event["ph"] == "C":
            values[event["name"]].append(event["args"]["value"])
    assert values["memory (GiB)"] == 200 * [2.0]
    assert values["busy cores"] == pytest.approx(200 * [1.0])


def test_a_trace_of_what_has_no_end_no_start_or_no_samples(tmp_path: Path) -> None:
    run = made.make(6, samples=False)
    run.tasks.loc[0, "stop_ns"] = run.tasks.loc[1, "start_ns"] = pd.NA
    run.tasks.loc[2, ["group", "key"]] = HOSTILE
    run.tasks.loc[3, ["node", "worker"]] = pd.NA
    slices = [e for e in trace(run, tmp_path) if e["ph"] == "X"]
    end = (run.tasks["stop_ns"].max() - run.tasks["start_ns"].min()) / 1000
    assert len(slices) == 5 and slices[0]["ts"] + slices[0]["dur"] == pytest.approx(end)
    assert HOSTILE in {e["name"] for e in slices}
    assert [e["ph"] for e in trace(made.make(0, samples=False), tmp_path)] == ["M"] * 4


def parsed(run: Any, folder: Path) -> dict[str, Any]:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = export(run, "openmetrics", folder / "m.txt").read_text()
    assert text.endswith("# EOF\n")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_prometheus_reads_every_sample_as_it_was_stored(run: made.Made, tmp_path: Path) -> None:
    found = parsed(run, tmp_path)
    cases = [
        ("jumper_process_cpu_seconds", "process", "cpu_ns", 1e-9, "counter"),
        ("jumper_process_memory_bytes", "process", "memory_bytes", 1, "gauge"),
        ("jumper_thread_cpu_seconds", "thread", "cpu_ns", 1e-9, "counter"),
        ("jumper_system_net_sent_bytes", "system", "net_sent_bytes", 1, "counter"),
        ("jumper_system_room_temperature", "system", "room_temperature", 1, "gauge"),
    ]
    for name, stream, column, factor, kind in cases:
        samples, frame = found[name].samples, run.streams[stream]
        assert found[name].type == kind and len(samples) == len(frame) > 0
        keys = [key for key in ("node", "pid", "tid") if key in frame]
        truth = {(*map(str, row[:-2]), row[-2] // 10**6): row[-1] * factor
                 for row in frame[[*keys, "time_ns", column]].itertuples(index=False)}  # fmt: skip
        for sample in samples:
            key = (*(sample.labels[key] for key in keys), round(float(sample.timestamp) * 1000))
            assert sample.value == pytest.approx(truth[key], rel=1e-12)


def test_groups_are_in_the_text_and_single_tasks_are_not(run: made.Made, tmp_path: Path) -> None:
    found = parsed(run, tmp_path)
    peaks = {s.labels["group"]: s.value for s in found["jumper_group_memory_peak_bytes"].samples}
    assert peaks == run.tasks.groupby("group")["memory_peak_bytes"].max().astype(float).to_dict()
    attempts = sum(s.value for s in found["jumper_group_attempts"].samples)
    assert attempts == len(run.tasks)
    assert "read-0000" not in (tmp_path / "m.txt").read_text()


def test_prometheus_reads_what_names_and_values_are_hostile(tmp_path: Path) -> None:
    run = made.make(6, names=(HOSTILE, "b"))
    system = run.streams["system"]
    system["my total"], system["cpu_0_ns"], system["cpu_1_ns"] = 1.5, 5, 7
    system["gpu_energy_uj"], system["gpu_1_memory_bytes"] = 3_500_000, 1 << 30
    system.loc[0, "net_sent_bytes"] = None
    again = system.iloc[[3]].assign(my_count=2)  # two values of one time: one is kept
    run.streams["system"] = pd.concat([system, again], ignore_index=True)
    found = parsed(run, tmp_path)
    assert HOSTILE in {s.labels["group"] for s in found["jumper_group_cpu_seconds"].samples}
    assert {s.labels["core"] for s in found["jumper_system_core_cpu_seconds"].samples} == {"0", "1"}
    assert found["jumper_system_gpu_energy_joules"].samples[0].value == 3.5
    (one,) = {s.labels["device"]: s.value for s in found["jumper_system_device_gpu_memory_bytes"].samples}.items()
    assert one == ("1", 2.0**30)
    assert "jumper_system_my_total_value" in found and "jumper_system_my_count_value" in found
    assert len(found["jumper_system_net_sent_bytes"].samples) == len(system) - 1
    text = (tmp_path / "m.txt").read_text()  # the parser drops a second value of one time itself
    assert text.count("\njumper_system_net_recv_bytes_total{") == len(system)
    assert parsed(made.make(0, samples=False), tmp_path) == {}


def test_csv_is_the_tasks_table(real: Run, tmp_path: Path) -> None:
    real.tasks.loc[0, "reason"] = HOSTILE
    found = pd.read_csv(real.export("csv", tmp_path / "t.csv"), keep_default_na=False, na_values=[""])
    assert list(found) == list(real.tasks) and len(found) == 40
    for column in ("start_ns", "wall_s", "cpu_s", "memory_peak_bytes", "memory_asked_bytes"):
        ours = real.tasks[column].astype("Float64")
        assert found[column].astype("Float64").equals(ours), column
    assert found["reason"][0] == HOSTILE
    flags = [";".join(value) for value in real.tasks["flags"]]
    assert found["flags"].fillna("").tolist() == flags and any(flags)


def test_a_table_in_several_pieces_is_the_same(run: made.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {form: export(run, form, tmp_path / form).read_bytes() for form in ("csv", "benchmark-tsv")}
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(exports, "CHUNK", 7)
    for form, text in whole.items():
        assert export(run, form, tmp_path / form, lambda *at: calls.append(at)).read_bytes() == text
    assert calls[8] == (60, 60) and len(calls) == 18
    assert pd.read_csv(tmp_path / "csv").shape[0] == 60
    assert export(made.make(0, samples=False), "csv", tmp_path / "none").read_text().count("\n") == 1


def test_the_benchmark_table_has_snakemakes_columns_and_units(run: made.Made, tmp_path: Path) -> None:
    benchmark = pytest.importorskip("snakemake.benchmark")
    found = pd.read_csv(export(run, "benchmark-tsv", tmp_path / "b.tsv"), sep="\t")
    assert list(found) == benchmark.BenchmarkRecord.get_header(extended_fmt=True)
    assert found["s"].to_numpy() == pytest.approx(run.tasks["wall_s"].to_numpy(float), abs=1e-4)
    assert found["max_pss"].to_numpy() == pytest.approx(
        run.tasks["memory_peak_bytes"].to_numpy(float) / 2**20, abs=1e-3
    )
    assert found["mean_load"].to_numpy() == pytest.approx(
        100 * (run.tasks["cpu_s"] / run.tasks["wall_s"]).to_numpy(float), abs=1e-3
    )
    assert found["max_vms"].isna().all() and found["rule_name"].tolist() == run.tasks["group"].tolist()
    assert re.fullmatch(r"\d+:\d\d:\d\d", found["h:m:s"][0])


def test_a_name_that_ends_in_gz_is_compressed(run: made.Made, tmp_path: Path) -> None:
    export(run, "perfetto", tmp_path / "t.json")
    with gzip.open(export(run, "perfetto", tmp_path / "t.json.gz")) as file:
        assert file.read() == (tmp_path / "t.json").read_bytes()


def test_what_fails_leaves_nothing_and_the_old_file(run: made.Made, tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    target.write_text("old")

    def full(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(JumperError, match=rf"^cannot write {target}: No space left on device; choose another place$"):
        export(run, "csv", target, full)
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["t.csv"]
    with pytest.raises(JumperError, match="there are perfetto, openmetrics"):
        export(run, "xml", target)


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb", "dask.dataframe"])
def test_the_run_opens_as_the_document_says(
    library: str, real: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    (tmp_path / "RUN").symlink_to(real.path.resolve())
    monkeypatch.chdir(tmp_path)
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", (DOCS / "export.md").read_text(), re.DOTALL)
                if f"import {library}" in b)  # fmt: skip
    names: dict[str, Any] = {}
    exec(compile(block, "docs/export.md", "exec"), names)
    truth = real.tasks.groupby("group")["memory_peak_bytes"].max()
    highest = names["highest"]
    rows = dict(highest.rows()) if library == "polars" else dict(highest)
    assert {group: int(peak) for group, peak in rows.items()} == truth.astype(int).to_dict()
    busy = float(names["busy_s"])
    process = real.samples("process")
    assert busy == pytest.approx(
        process.groupby(["node", "pid"])["cpu_ns"].agg(lambda s: s.max() - s.min()).sum() / 1e9
    )
