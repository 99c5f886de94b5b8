"""Collectors in C: built by the machine's compiler, asked by the native engine, mistakes refused with their reason."""

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
from jumper.config import get_include
from jumper.config.libraries import LEVELS, describe
from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.common import CollectorConfigError
from jumper.monitor.pipeline import CollectorConfig, build_pipeline, load_config, load_config_text
from jumper.monitor.sampling import sampling
from jumper.store.segments import read_segment

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "c_collector"
COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the native engine is for Linux"),
]
needs_engine = pytest.mark.skipif(not native_built(), reason="the native engine is not built")

#: A collector whose parts a test replaces by macros.
SOURCE = """
#include <errno.h>
#include <signal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "jumper_collector.h"
#ifndef COLUMNS
#define COLUMNS {"answer", "1", JUMPER_GAUGE}, {"asked", "1", JUMPER_COUNTER}
#endif
#ifndef SETUP
#define SETUP
#endif
#ifndef COLLECT
#define COLLECT
#endif
#ifndef LOAD
#define LOAD
#endif
#ifndef LEVELS
#define LEVELS JUMPER_PROCESS | JUMPER_SYSTEM
#endif
#ifndef ABI
#define ABI JUMPER_COLLECTOR_ABI
#endif
struct state { double start, asked; char file[256]; };
static int setup(const char *config, unsigned level, void **out, char *reason, size_t size)
{
    (void)level, (void)reason, (void)size;
    struct state *state = calloc(1, sizeof *state);
    state->start = atof(config);
    snprintf(state->file, sizeof state->file, "%s", config);
    *out = state;
    SETUP;
    return 0;
}
static int collect(void *mine, unsigned level, const int *pids, size_t count, double *values)
{
    (void)level, (void)pids, (void)count;
    struct state *state = mine;
    values[0] = state->start;
    values[1] = ++state->asked;
    COLLECT;
    return 0;
}
static void teardown(void *state) { free(state); }
static const struct jumper_column columns[] = {COLUMNS};
static const struct jumper_collector collector = {
    .abi = ABI, .levels = LEVELS, .name = "test", .columns = columns,
    .column_count = sizeof columns / sizeof *columns, .setup = setup, .collect = collect, .teardown = teardown};
#ifndef NO_SYMBOL
const struct jumper_collector *jumper_collector(void) { LOAD; return &collector; }
#endif
"""


def build(source: Path, library: Path, **macros: str) -> Path:
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run(
        [str(COMPILER), "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-variable", "-Werror",
         "-shared", "-fPIC", f"-I{get_include()}", *defined, "-o", library, source], check=True,
    )  # fmt: skip
    return library


@pytest.fixture
def entry(tmp_path: Path) -> Any:
    """Build the test's collector and write the file that names it; returns that file."""

    def make(config: str = "42", **macros: str) -> Path:
        source = tmp_path / "mine.c"
        source.write_text(SOURCE)
        build(source, tmp_path / "mine.so", **macros)
        file = tmp_path / "mine.yaml"
        file.write_text(f"collectors:\n  mine:\n    library: mine.so\n    config: '{config}'\n")
        return file

    return make


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
    for name, line in {"jumper": "-m jumper.cli", "python": ""}.items():
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
    command = [sys.executable, "-m", "jumper.cli", "run", "--interval", "0.1", "--collectors", file, "-o", out, "--"]
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


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "crashes on load": ({"LOAD": "raise(SIGSEGV)"}, r"mine\.library: .*mine\.so: load: it crashes \(SIGSEGV\)"),
    "ends the process": ({"LOAD": "_exit(7)"}, r"load: it ends the process \(status 7\)"),
    "has no symbol": ({"NO_SYMBOL": "1"}, r"does not export the function jumper_collector"),
    "is of another version": ({"ABI": "9"}, r"built for version 9 of jumper_collector\.h; this jumper has 1"),
    "returns nothing": ({"LOAD": "return NULL"}, r"jumper_collector\(\) returned NULL"),
    "serves no level": ({"LEVELS": "16"}, r"expected a sum of jumper_level as levels, found 16"),
    "crashes at setup": ({"SETUP": "abort()"}, r"setup: it crashes \(SIGABRT\)"),
    "fails at setup": ({"SETUP": "return ENODEV"}, r"setup: No such device"),
    "says why": ({"SETUP": 'snprintf(reason,size,"no meter"); return 1'}, r"setup: no meter"),
    "crashes at collect": ({"COLLECT": "raise(SIGBUS)"}, r"collect: it crashes \(SIGBUS\)"),
    "fails at collect": ({"COLLECT": "return EACCES"}, r"collect: Permission denied"),
    "writes too much": ({"COLLECT": "values[2]=0"}, r"collect: it writes more than its 2 values"),
    "has a column of ours": (
        {"COLUMNS": '{"rss_bytes","1",0},{"b","1",0}'},
        r"mine\.library: the column 'rss_bytes' is one of jumper's own",
    ),
    "has a column of a device": (
        {"COLUMNS": '{"cpu_util_3","1",0},{"b","1",0}'},
        r"the column 'cpu_util_3' is written by collectors\.cpu of built-in",
    ),
    "has a column twice": ({"COLUMNS": '{"a","1",0},{"a","1",0}'}, r"mine\.library: the column 'a' is named twice"),
    "has a column without a name": ({"COLUMNS": '{"a b","1",0},{"b","1",0}'}, r"as name of column 0, found 'a b'"),
    "has an unknown kind": ({"COLUMNS": '{"a","1",7},{"b","1",0}'}, r"a jumper_kind for the column a, found 7"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_library_is_refused_that(what: str, entry: Any) -> None:
    macros, said = REFUSED[what]
    with pytest.raises(CollectorConfigError, match=rf"mine\.yaml.*: collectors\.{said}" if "mine" in said else said):
        load_config(entry(**macros))


def test_a_library_that_hangs_is_refused(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumper.config.libraries.PATIENCE_S", 1.0)
    with pytest.raises(CollectorConfigError, match=r"setup: it gives no answer within 1 s"):
        load_config(entry(SETUP="pause()"))


def test_what_it_prints_is_no_answer(entry: Any) -> None:
    config = load_config(entry(SETUP='printf("half a line"); fflush(stdout)'))
    said = describe(config.entries[-1])
    assert (said.name, said.names, said.levels) == ("test", ("answer", "asked"), LEVELS["process"] | LEVELS["system"])


KEYS = {
    "a path that is not there": ("library: gone.so", r"mine\.library: .*gone\.so: No such file"),
    "a file that is no library": ("library: mine.yaml", r"mine\.library: .*mine\.yaml: .*(invalid ELF|too short)"),
    "a number": ("library: 3", r"mine\.library: expected text"),
    "nothing": ("library: ''", r"mine\.library: expected text|mine\.library: .*length"),
    "a target too": ("library: a.so, _target_: os.getpid", r"mine\._target_: a collector in C has none"),
    "a handler too": ("library: a.so, handler: {}", r"mine\.handler: a collector in C has none"),
    "an unknown key": ("library: a.so, confg: x", r"mine\.confg: unknown key; beside `library` there is `config`"),
    "a config that is no text": ("library: a.so, config: [1]", r"mine\.config: expected text"),
}


@pytest.mark.parametrize("what", KEYS)
def test_an_entry_is_refused_with(what: str, tmp_path: Path) -> None:
    keys, said = KEYS[what]
    file = tmp_path / "mine.yaml"
    file.write_text(f"collectors: {{mine: {{{keys}}}}}")
    with pytest.raises(CollectorConfigError, match=rf"mine\.yaml: collectors\.(?:{said})"):
        load_config(file)


def test_a_text_from_elsewhere_needs_a_whole_path() -> None:
    with pytest.raises(CollectorConfigError, match=r"mine\.library: expected an absolute path"):
        load_config_text("collectors: {mine: {library: mine.so}}", "elsewhere")
    with pytest.raises(CollectorConfigError, match=r"process.*cannot"):
        load_config_text("collectors: {process: {library: /mine.so}}", "elsewhere")
    config = load_config_text("collectors: {mine: {library: /no/such/mine.so}}", "elsewhere")
    assert CollectorConfig.from_json(config.to_json()).entries == config.entries


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
    command = [sys.executable, "-m", "jumper.cli", "run", "--backend", "thread", "--collectors", file,
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
