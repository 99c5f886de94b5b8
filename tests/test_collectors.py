"""The pipeline: a tick through real collectors, and what one that fails does to the others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import psutil
import pytest

from jumper.adapters.data import NodeInfo
from jumper.config import CollectorConfig, CollectorEntry
from jumper.config.shape import INJECTABLE
from jumper.monitor.common import CollectorConfigError, MonitorUnavailableError, UnavailablePerformanceMonitor
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.cpu import CpuCollector
from jumper.monitor.pipeline import build_pipeline, load_config

EXAMPLE = Path(__file__).parents[1] / "examples" / "custom_collector"
HANDLERS = "jumper.monitor.metrics.handlers"
CPUS = SimpleNamespace(num_cpus=2, num_system_cpus=4)


def host(pid=None):
    pid = pid or os.getpid()
    cpus = len(os.sched_getaffinity(0))
    return SimpleNamespace(
        pid=pid,
        process=psutil.Process(pid),
        uid=os.getuid(),
        slurm_job=None,
        node_info=NodeInfo("here", cpus, os.cpu_count() or 1),
        interval=1.0,
    )


class Fake:
    """A collector without a base class, as the protocol allows: calls what the test gave."""

    plans: ClassVar = {}

    def __init__(self, plan):
        self.plan = self.plans[plan]

    def collect(self, level, context):
        return self.plan(level, context) if callable(self.plan) else self.plan


class Steps(Fake):
    """Has all four steps; each one may raise."""

    def __init__(self, plan):
        super().__init__(plan)
        self.calls = []

    def _step(self, name):
        self.calls.append(name)
        if self.plan == name:
            raise RuntimeError(f"{name} failed")

    def setup(self):
        self._step("setup")
        return {"num_gpus": 3}

    def snapshot(self, context):
        self._step("snapshot")
        context["counters"]["shared"] = {"x": 1}

    def collect(self, level, context):
        self._step("collect")
        return context["counters"]["shared"]["x"]

    def close(self):
        self._step("close")


def entry(name, cls="Fake", handler=f"{HANDLERS}.NoOpHandler", **kwargs):
    target = cls if "." in cls else f"{__name__}.{cls}"
    return CollectorEntry(name, target, handler, origin="mine.yaml", **kwargs)


def fake(name, plan, handler="ScalarHandler", cls="Fake", **handler_kwargs):
    if handler == "ScalarHandler":
        handler_kwargs.setdefault("column", name)
    Fake.plans[name] = plan
    return entry(name, cls, f"{HANDLERS}.{handler}", kwargs={"plan": name}, handler_kwargs=handler_kwargs)


def pipeline_of(*entries, levels=("process", "system")):
    first = fake("process", None, "NoOpHandler")
    made = build_pipeline(CollectorConfig((first, *entries)), host(), levels)
    made.setup()
    return made


def test_a_tick_has_the_documents_columns_at_every_level():
    pipeline = build_pipeline(load_config(), host(), ["process", "user", "system"])
    for backend in pipeline.backends:
        if hasattr(backend, "watch"):
            backend.watch(["process", "user", "system"])
    pipeline.setup()
    pipeline.tick(time.monotonic_ns(), time.time_ns())
    time.sleep(0.05)
    rows = pipeline.tick(time.monotonic_ns(), time.time_ns())
    pipeline.close()
    assert pipeline.events == []
    for level, row in rows.items():
        for column in ("cpu_util_avg", "cpu_util_min", "cpu_util_max", "cpu_util_0"):
            assert 0 <= row[column] <= 100, (level, column)
        assert row["memory"] == pytest.approx(row["memory_bytes"] / 2**30)
        assert {"io_read", "io_write", "io_read_count", "io_write_count"} <= row.keys()
    assert "net_bytes_sent" in rows["system"]
    assert "net_bytes_sent" not in rows["process"]


def test_cpu_of_a_busy_child_is_what_wait4_says():
    code = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\nprint()\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    info = host(child.pid)
    pipeline = build_pipeline(load_config(), info, ["process"])
    pipeline.setup()
    used, last = 0.0, None
    done = threading.Event()
    reader = threading.Thread(target=lambda: (child.stdout.readline(), done.set()))
    reader.start()
    try:
        while True:
            over = done.wait(0.05)
            now = time.monotonic_ns()
            row = pipeline.tick(now, time.time_ns())["process"]
            if last is None:
                used = row["cpu_ns"] / 1e9
            else:
                used += row["cpu_util_avg"] / 100 * info.node_info.num_cpus * (now - last) / 1e9
            last = now
            if over:
                break
    finally:
        child.stdin.write(b"\n")
        child.stdin.close()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        reader.join()
        child.stdout.close()
        pipeline.close()
    assert used == pytest.approx(usage.ru_utime + usage.ru_stime, abs=0.02)


@pytest.mark.parametrize("step", ["setup", "snapshot", "collect"])
def test_a_collector_that_raises_is_switched_off_alone_and_says_why(step):
    pipeline = pipeline_of(fake("good", 1), fake("bad", step, cls="Steps"), fake("after", 2))
    rows = [pipeline.tick(second * 10**9, 0) for second in range(3)]
    assert rows == [{"process": {"good": 1, "after": 2}, "system": {"good": 1, "after": 2}}] * 3
    (event,) = pipeline.events
    assert event["type"] == "event"
    assert event["kind"] == "collector-off"
    assert event["collector"] == "bad"
    assert event["text"] == f"collector bad (mine.yaml) is off: {step}: RuntimeError: {step} failed"
    assert event["mono_ns"] > 0
    assert pipeline.names == ["process", "good", "after"]
    calls = pipeline.backends[2].calls
    assert calls.count(step) == 1
    pipeline.close()
    assert pipeline.backends[2].calls[-1] == "close"


def test_a_collector_that_cannot_be_closed_holds_nobody_up():
    pipeline = pipeline_of(fake("bad", "close", cls="Steps"), fake("after", "none", cls="Steps"))
    pipeline.close()
    assert [backend.calls for backend in pipeline.backends[1:]] == [["setup", "close"]] * 2


def test_what_setup_reports_is_handed_on_and_snapshots_come_before_collects():
    pipeline = pipeline_of(fake("steps", "none", cls="Steps"))
    assert pipeline.setup() == {"num_gpus": 3}
    assert pipeline.tick(0, 0)["process"] == {"steps": 1}
    assert pipeline.backends[1].calls[-3:] == ["snapshot", "collect", "collect"]


@pytest.mark.parametrize(
    ("handler", "raw", "reason"),
    [
        ({"handler": "ScalarHandler"}, "42", r"TypeError: expected a number, found '42' \(str\)"),
        ({"handler": "PerDeviceAggregateHandler", "prefix": "p_"}, 3, "TypeError: expected a list with one number"),
        (
            {"handler": "PerDeviceMultiAggregateHandler", "prefix": "p_", "metrics": ["a", "b"]},
            ([1], [1, 2]),
            "ValueError: expected the same number of devices in each list, found a: 1, b: 2",
        ),
        (
            {"handler": "CumulativeRateHandler", "columns": ["a", "b"]},
            [1],
            r"ValueError: expected 2 values \(a, b\), found 1",
        ),
        ({"handler": "CountersHandler"}, {"good": 5}, "ValueError: the column 'good' is written by another collector"),
        ({"handler": "CountersHandler"}, {"x": "y"}, "TypeError: expected a number, found 'y'"),
    ],
)
def test_a_value_that_the_handler_cannot_take_names_the_collector(handler, raw, reason):
    pipeline = pipeline_of(fake("good", 1), fake("bad", raw, **handler))
    assert pipeline.tick(0, 0) == {"process": {"good": 1}, "system": {"good": 1}}
    (event,) = pipeline.events
    assert event["text"].startswith("collector bad (mine.yaml) is off: collect: ")
    assert re.search(reason, event["text"])


def test_one_that_fails_at_the_second_level_writes_none():
    def plan(level, context):
        if level == "system":
            raise OSError("no /proc here")
        return 1

    pipeline = pipeline_of(fake("bad", plan))
    assert pipeline.tick(0, 0) == {"process": {}, "system": {}}


class OldHandler:
    """As the documents' handlers are: no `at`, no `columns`."""

    def transform(self, raw, level):
        return {"old": raw * 2}


class OddHandler:
    def transform(self, raw, level):
        return [raw]


def test_a_handler_of_ones_own_needs_transform_only():
    Fake.plans["own"] = float("nan")
    old = entry("own", handler=f"{__name__}.OldHandler", kwargs={"plan": "own"})
    assert pipeline_of(old).tick(0, 0)["process"] == {"old": None}
    pipeline = pipeline_of(entry("own", handler=f"{__name__}.OddHandler", kwargs={"plan": "own"}))
    pipeline.tick(0, 0)
    assert "expected a mapping of column to value" in pipeline.events[0]["text"]


def test_rates_go_by_the_ticks_time_however_long_a_snapshot_takes():
    counts = iter([0, 0, 100, 100])

    def plan(level, context):
        time.sleep(0.03)
        return [next(counts)]

    pipeline = pipeline_of(fake("slow", plan, "CumulativeRateHandler", columns=["slow"]))
    pipeline.tick(5 * 10**9, 0)
    assert pipeline.tick(7 * 10**9, 0) == {"process": {"slow": 50.0}, "system": {"slow": 50.0}}


def test_a_sink_that_only_stores_is_spared_the_derived_columns():
    found = build_pipeline(load_config(), host(), ["process"], derived=False).names
    assert found[:2] == ["process", "node"] and not {"cpu", "memory", "io", "network", "gpu"} & set(found)
    entries = (fake("process", None, column="io_read"), fake("mine", 1), fake("memory", 1))
    # what a user writes under such a name is the user's, and stored
    kept = build_pipeline(CollectorConfig(entries), host(), ["process"], derived=False).names
    assert kept == ["process", "mine", "memory"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (entry("x", kwargs={"plan": "absent"}), r": .*Fake cannot be made from plan: KeyError: 'absent'"),
        (entry("x", inject=("gpu",)), r"\.inject: this monitor has no 'gpu'"),
        (entry("x", "os.getpid"), r"\._target_: os\.getpid has no collect\(level, context\)"),
    ],
)
def test_a_collector_that_cannot_be_made_names_its_key(made, message):
    with pytest.raises(CollectorConfigError, match=r"mine\.yaml: collectors\.x" + message):
        pipeline_of(made)


class Injected:
    def __init__(self, pid, process, uid, slurm_job, node_info, interval, word):
        self.got = {**vars(), "pids": (pid, process.pid)}

    def collect(self, level, context):
        return None


def test_what_is_injected_comes_by_name_and_the_process_as_a_handle():
    monitor = host()
    monitor.process = None
    made = entry("x", "Injected", inject=INJECTABLE, kwargs={"word": "w"})
    pipeline = build_pipeline(CollectorConfig((fake("process", None, "NoOpHandler"), made)), monitor, ["process"])
    got = pipeline.backends[1].got
    assert got["pids"] == (os.getpid(), os.getpid())
    assert (got["uid"], got["node_info"], got["interval"], got["word"]) == (os.getuid(), monitor.node_info, 1.0, "w")


def test_cores_are_told_apart_by_number_and_clipped_to_all_of_the_time():
    cpu = CpuCollector(CPUS)
    got = []
    for second, cores in [
        (0, {0: 0, 2: 0, 10: 0}),
        (1, {0: 5 * 10**8, 2: 11 * 10**8, 10: None}),
        (2, {0: 0, 2: 12 * 10**8, 10: 7}),
    ]:
        context = new_context(second * 10**9, 0)
        context["counters"]["system"] = {"cpu_ns": 1, **{f"cpu_{core}_ns": ns for core, ns in cores.items()}}
        got.append(cpu.collect("system", context))
    assert got == [[None] * 3, [50.0, 100.0, None], [None, 10.0, None]]


def test_a_system_without_cores_and_a_level_without_counters():
    cpu = CpuCollector(CPUS)
    for second, used in [(0, 0), (1, 10**9)]:
        context = new_context(second * 10**9, 0)
        context["counters"]["system"] = {"cpu_ns": used}
        got = cpu.collect("system", context)
    assert got == [25.0] * 4
    assert cpu.collect("process", new_context(0, 0)) is None


def test_a_monitor_that_cannot_be_says_why():
    monitor = UnavailablePerformanceMonitor("no compiler")
    assert monitor.running is False
    for use in (lambda: monitor.data, lambda: monitor.start(), lambda: monitor.stop()):
        with pytest.raises(MonitorUnavailableError, match="no monitor: no compiler"):
            use()
    assert not hasattr(monitor, "__array__")


def test_the_example_counts_files_that_are_held_open():
    code = "held = [open('/dev/null') for _ in range(100)]\nprint(len(held), flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"100\n"
        pipeline = build_pipeline(load_config(EXAMPLE / "collectors.yaml"), host(child.pid), ["process", "system"])
        pipeline.setup()
        rows = pipeline.tick(time.monotonic_ns(), time.time_ns())
        pipeline.close()
        expected = len(os.listdir(f"/proc/{child.pid}/fd"))
    finally:
        child.communicate(b"\n")
    assert rows["process"]["open_files"] == expected >= 103
    assert "open_files" not in rows["system"]
    assert pipeline.events == []
