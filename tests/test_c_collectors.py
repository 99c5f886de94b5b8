"""Collectors in C: built by the machine's compiler, asked by the native engine, switched off alone when they fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import jumper
from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.pipeline import CollectorConfig, build_pipeline, load_config
from jumper.monitor.sampling import sampling
from jumper.store.segments import read_segment
from tests.clibrary import NEEDS, SOURCE, build, maker

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "c_collector"
pytestmark = NEEDS
needs_engine = pytest.mark.skipif(not native_built(), reason="the native engine is not built")


@pytest.fixture
def entry(tmp_path: Path) -> Any:
    """See :func:`tests.clibrary.maker`."""
    return maker(tmp_path)


def wait_for(what: Any, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


# ---- what works ------------------------------------------------------------------------------------------------------


@needs_engine
def test_its_columns_are_in_the_tables_of_the_native_monitor(entry: Any) -> None:
    monitor = create_monitor("native", levels=["process", "user", "system"], collectors=entry())
    monitor.start(0.05)
    wait_for(lambda: len(monitor.data.data["system"]) > 4)
    monitor.stop()
    for level in ("process", "system"):
        frame = monitor.data.data[level]
        assert set(frame["answer"]) == {42.0}
        assert list(frame["asked"]) == [float(n) for n in range(1, len(frame) + 1)], "once a tick and level"
        assert frame["memory"].notna().all()
    assert "answer" not in monitor.data.data["user"]
    assert monitor.events == []


@needs_engine
def test_the_processes_of_its_level_are_told(entry: Any) -> None:
    file = entry(COLLECT="values[0] = count; values[1] = count ? pids[0] : -1")
    child = subprocess.Popen(["sleep", "60"])
    try:
        monitor = create_monitor("native", levels=["process", "system"], collectors=file)
        monitor.start(0.05)
        wait_for(lambda: len(monitor.data.data["system"]) > 2)
        monitor.stop()
    finally:
        child.kill()
        child.wait()
    process, system = monitor.data.data["process"], monitor.data.data["system"]
    assert process["answer"].iloc[-1] >= 2, "this process and its child"
    assert set(process["asked"]) == {os.getpid()}
    assert set(system["answer"]) == {0}


@needs_engine
def test_the_example_counts_sleeps_and_keeps_those_of_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in EXAMPLE.iterdir():
        shutil.copy(file, tmp_path)
    (lines,) = re.findall(r"```sh\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {"jumper": "-m jumper", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {line} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    subprocess.run(["sh", "-ec", lines], cwd=tmp_path, check=True, capture_output=True)
    run = jumper.open_run(tmp_path / "switches.run")
    counts = run.samples("process")["switches_voluntary"].dropna()
    assert counts.is_monotonic_increasing
    assert 900 <= counts.max() <= 1500, "a thousand sleeps, but for those after the last look"
    assert run.events.empty


@needs_engine
def test_the_collector_of_the_page_counts_the_machine_s_files(tmp_path: Path) -> None:
    (text,) = re.findall(r"```c\n(.*?)```", (REPOSITORY / "docs" / "collectors.md").read_text(), re.DOTALL)
    (tmp_path / "files.c").write_text(text)
    build(tmp_path / "files.c", tmp_path / "files.so")
    (tmp_path / "c.yaml").write_text("collectors: {files: {library: files.so}}\n")
    before = float(Path("/proc/sys/fs/file-nr").read_text().split()[0])
    monitor = create_monitor("native", levels=["system"], collectors=tmp_path / "c.yaml")
    monitor.start(0.05)
    monitor.stop()
    seen = monitor.data.data["system"]["files_open"]
    assert len(seen) >= 2 and (abs(seen - before) < before / 2 + 500).all()


@needs_engine
def test_nan_infinities_and_minus_zero(entry: Any, tmp_path: Path) -> None:
    # the bits of -0.0 are those of the engine's null
    file = entry(COLLECT="values[0] = state->asked > 1 ? INFINITY : -0.0; values[1] = NAN")
    engine = sampling("native", os.getpid(), 60.0, ["system"], load_config(file), tmp_path)
    engine.start()
    engine.tick()
    engine.stop()
    segment = read_segment(engine.ready["segment_path"])
    values, valid = segment.table("system")["answer"]
    assert values.dtype == "<f8"
    assert valid.tolist() == [True, False, False] and values[0] == 0
    assert not segment.table("system")["asked"][1].any()
    assert segment.table("system")["cpu_ns"][1].all()
    assert "answer" not in segment.table("monitor")
    said = segment.header["collectors"]["mine"]
    assert said["columns"] == {"answer": ["1", "gauge"], "asked": ["1", "counter"]}


@needs_engine
def test_beside_a_collector_in_python_both_are_in_the_run(entry: Any, tmp_path: Path) -> None:
    file = entry()
    with file.open("a") as more:
        more.write(
            "  loads:\n    _target_: loads.Loads\n    handler:\n"
            "      _target_: jumper.monitor.metrics.handlers.ScalarHandler\n      column: load_1min\n"
        )
    (tmp_path / "loads.py").write_text(
        "import os\nclass Loads:\n    def collect(self, level, context):\n"
        "        return context['counters'][level]['answer'] + os.getloadavg()[0] * 0\n"
    )
    out = tmp_path / "run"
    command = [sys.executable, "-m", "jumper", "run", "--interval", "0.1", "--collectors", file, "-o", out, "--"]
    done = subprocess.run([*command, "sleep", "0.5"], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.returncode, done.stderr) == (0, "")
    samples = jumper.open_run(out).samples("process")
    assert set(samples["answer"].dropna()) == {42.0} == set(samples["load_1min"].dropna())


@needs_engine
def test_an_agent_asks_it_too(entry: Any, tmp_path: Path) -> None:
    rows: list[Any] = []
    agent = AgentProcess(
        os.getpid(),
        0.05,
        ["process"],
        load_config(entry()),
        tmp_path,
        stream=lambda name, row: rows.append((name, row)),
    )
    agent.start()
    wait_for(lambda: any(row.get("answer") == 42.0 for _, row in rows))
    agent.stop()


@needs_engine
def test_each_series_has_a_state_that_is_torn_down(entry: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = entry(str(log), SETUP='{FILE *f = fopen(config, "a"); fprintf(f, "+%u ", level); fclose(f);}')
    text = SOURCE.replace(
        "{ free(state); }",
        '{ FILE *f = fopen(((struct state *)state)->file, "a"); fprintf(f, "- "); fclose(f); free(state); }',
    )
    (tmp_path / "mine.c").write_text(text)
    build(tmp_path / "mine.c", tmp_path / "mine.so",
          SETUP='{FILE *f = fopen(config, "a"); fprintf(f, "+%u ", level); fclose(f);}')  # fmt: skip
    config = load_config(file)
    assert log.read_text() == "+1 - +8 - ", "the trial, one level after the other"
    log.unlink()
    engine = sampling("native", os.getpid(), 60.0, ["process", "system"], config, tmp_path)
    engine.start()
    engine.tick()
    assert log.read_text() == "+1 +8 "
    engine.stop()
    assert log.read_text() == "+1 +8 - - "


# ---- what fails later ------------------------------------------------------------------------------------------------


@needs_engine
@pytest.mark.parametrize(
    ("collect", "reason"),
    [("if (state->asked > 3) return ENODATA", "collect: No data available (61)"),
     ("if (state->asked > 1) usleep(120000)", "longer than the interval, 3 times in a row")],
)  # fmt: skip
def test_one_that_fails_is_off_and_the_others_go_on(entry: Any, tmp_path: Path, collect: str, reason: str) -> None:
    config = load_config(entry(COLLECT=collect, LEVELS="JUMPER_PROCESS"))
    notes: list[Any] = []
    rows: list[Any] = []
    engine = sampling(
        "native", os.getpid(), 0.05, ["process"], config, tmp_path, note=notes.append,
        stream=lambda name, row: rows.append(row) if name == "process" else None,
    )  # fmt: skip
    engine.start()
    wait_for(lambda: notes)
    more = len(rows) + 3
    wait_for(lambda: len(rows) > more)
    engine.stop()
    segment = read_segment(engine.ready["segment_path"])
    (event,) = [record for record in segment.records if record["type"] == "event"]
    assert event["kind"] == "collector-off" and event["collector"] == "mine"
    assert event["text"].startswith("collector mine (") and event["text"].endswith(reason), event
    assert [note["text"] for note in notes] == [event["text"]]
    valid = segment.table("process")["answer"][1]
    assert valid[0] and valid.sum() <= 4 and not valid[-3:].any()
    assert segment.table("process")["cpu_ns"][1].all()


@needs_engine
def test_where_the_library_is_not_the_others_go_on(entry: Any, tmp_path: Path) -> None:
    file = entry()
    config = CollectorConfig.from_json(load_config(file).to_json())
    (tmp_path / "mine.so").unlink()
    notes: list[Any] = []
    engine = sampling("native", os.getpid(), 0.05, ["process"], config, tmp_path, note=notes.append)
    engine.start()
    engine.stop()
    segment = read_segment(engine.ready["segment_path"])
    (event,) = [record for record in segment.records if record["type"] == "event"]
    assert event["text"] == notes[0]["text"]
    assert event["text"].endswith("mine.so: No such file or directory")
    assert "answer" not in segment.table("process") and segment.table("process")["cpu_ns"][1].all()


@needs_engine
def test_one_that_changed_since_it_was_tried_is_off(entry: Any, tmp_path: Path) -> None:
    config = load_config(entry())
    engine = sampling("native", os.getpid(), 60.0, ["system"], config, tmp_path)
    entry(COLUMNS='{"a","1",0},{"b","1",0},{"c","1",0}')
    engine.start()
    engine.stop()
    (event,) = [r for r in read_segment(engine.ready["segment_path"]).records if r["type"] == "event"]
    assert event["text"].endswith("is not the library any more that was checked")


def test_the_python_engine_says_that_it_cannot(entry: Any, tmp_path: Path) -> None:
    file = entry()
    monitor = create_monitor("thread", levels=["process"], collectors=file)
    monitor.start(0.05)
    monitor.stop()
    (event,) = monitor.events
    assert event["kind"] == "collector-off" and "only the native engine can ask" in event["text"]
    assert len(monitor.data.data["process"]) >= 2
    command = [sys.executable, "-m", "jumper", "run", "--backend", "thread", "--collectors", file,
               "-o", tmp_path / "run", "--", "true"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0
    assert done.stderr == f"jumper: {event['text']}\n"
    (said,) = jumper.open_run(tmp_path / "run").events.to_dict("records")
    assert said["text"] == event["text"]


def test_a_library_is_no_stage_of_the_pipeline(entry: Any) -> None:
    from types import SimpleNamespace

    host = SimpleNamespace(pid=os.getpid(), process=None, uid=0, slurm_job=None, interval=1.0,
                           node_info=SimpleNamespace(num_cpus=1, num_system_cpus=1))  # fmt: skip
    pipeline = build_pipeline(load_config(entry()), host, ["process"])
    assert "mine" not in pipeline.names and len(pipeline.events) == 1


@needs_engine
def test_the_seventeenth_is_refused(entry: Any, tmp_path: Path) -> None:
    lines = ["collectors:"]
    source = tmp_path / "mine.c"
    source.write_text(SOURCE)
    for index in range(17):
        build(source, tmp_path / f"m{index}.so", COLUMNS=f'{{"a{index}","1",0}},{{"b{index}","1",0}}')
        lines.append(f"  m{index}: {{library: m{index}.so, config: '{index}'}}")
    (tmp_path / "many.yaml").write_text("\n".join(lines))
    monitor = create_monitor("native", levels=["process"], collectors=tmp_path / "many.yaml")
    monitor.start(0.1)
    monitor.stop()
    (event,) = monitor.events
    assert event["text"].endswith("collectors.m16.library: more than 16 collectors in C")
    frame = monitor.data.data["process"]
    assert [frame[f"a{index}"].iloc[0] for index in range(16)] == list(range(16))


@needs_engine
def test_dask_workers_ask_it(entry: Any, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    import jumper_dask

    file = entry()
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.1, collectors=file))
        client.submit(time.sleep, 0.5).result()
        run = jumper_dask.collect(client, tmp_path / "run")
    assert set(run.samples("process")["answer"].dropna()) == {42.0}
    assert set(run.samples("system")["answer"].dropna()) == {42.0}


@needs_engine
def test_a_dask_worker_without_the_library_measures_the_rest(entry: Any, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    import jumper_dask

    plugin = jumper_dask.JumperPlugin(interval=0.1, collectors=entry())
    (tmp_path / "mine.so").unlink()
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(plugin)
        client.submit(time.sleep, 0.5, key="nap").result()
        run = jumper_dask.collect(client, tmp_path / "run")
    assert run.tasks.set_index("key").loc["nap", "state"] == "done"
    assert run.samples("process")["cpu_ns"].notna().all()
    texts = run.events.loc[run.events["kind"] == "collector-off", "text"].tolist()
    assert len(texts) == 1 and texts[0].endswith("mine.so: No such file or directory")
