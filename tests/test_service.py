"""The service: reports, plots, exports and sessions over any monitor, while it runs and after."""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jumper.adapters.cells import parse_cells
from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.analysis.level import averages, cell_costs, even, missed_samples, tags
from jumper.core.service import PerfmonitorService, build_perfmonitor_service
from jumper.monitor.backends import native_built
from jumper.monitor.backends.offline import OfflineMonitor
from jumper.schema.errors import JumperError

MIB = 1 << 20
BACKENDS = ["thread", "subprocess", *(["native"] if native_built() else [])]
CHILD = "import time\nuntil = time.thread_time() + 0.3\nwhile time.thread_time() < until: pass"


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


#: by backend, what the second block held
HELD: dict[str, int] = {}


def below_its_mark() -> int:
    """How far this process is below its high-water mark, which shows what happens between samples only above it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * (int(status["VmHWM"].split()[0]) - int(status["VmRSS"].split()[0]))


@cache
def four_blocks(backend: str) -> PerfmonitorService:
    """Four blocks whose cost is known, at an interval longer than three of them, and the monitor stopped."""
    service = build_perfmonitor_service()
    service.start_monitoring(1.0, backend)
    with service.monitored("burn"):
        burn(0.3)
    with service.monitored("hold"):
        size = 200 * MIB + below_its_mark()
        held = bytearray(b"x") * size
        del held
    HELD[backend] = size
    with service.monitored("write"), tempfile.TemporaryFile() as file:
        file.write(b"x" * MIB)
    with service.monitored("child"):
        subprocess.run([sys.executable, "-S", "-c", CHILD], check=True)
    service.stop_monitoring()
    return service


@pytest.fixture(params=BACKENDS)
def by_each(request: pytest.FixtureRequest) -> PerfmonitorService:
    """The blocks, measured by each backend."""
    return four_blocks(request.param)


@pytest.fixture
def held(request: pytest.FixtureRequest, by_each: PerfmonitorService) -> int:
    """What the second of these blocks held, in bytes."""
    return HELD[request.node.callspec.params["by_each"]]


@pytest.fixture
def measured() -> PerfmonitorService:
    """The blocks, measured by one."""
    return four_blocks(BACKENDS[-1])


def test_each_block_has_its_own_cost(by_each: PerfmonitorService, held: int) -> None:
    """Blocks far shorter than the interval: a sample stands at the ends of each."""
    cells = by_each.perfreport().cells.set_index("code")
    # what the dead used is shown in whole clock ticks, user and system apart
    assert cells.loc["burn", "cpu_s"] == pytest.approx(0.3, abs=0.03)
    assert 0.28 < cells.loc["child", "cpu_s"] < 0.5  # the interpreter's start comes on top
    assert cells.loc["write", "cpu_s"] < 0.1
    before = cells.loc["burn", "memory_peak_bytes"]
    assert cells.loc["hold", "memory_peak_bytes"] - before == pytest.approx(held, abs=20 * MIB)
    assert cells.loc["write", "memory_peak_bytes"] < before + 30 * MIB
    assert (cells["samples"] >= 2).all()
    history = by_each.cells.data
    assert cells["wall_s"].tolist() == history["duration"].tolist()


def test_all_of_it_works_after_the_stop(measured: PerfmonitorService, tmp_path: Path) -> None:
    """The documents' order: stop, then export; the package wrote nothing then, nor reported, nor drew."""
    frame = measured.export_perfdata(tmp_path / "perf.csv")
    assert len(pd.read_csv(tmp_path / "perf.csv")) == len(frame) >= 8
    assert set(frame["cell_index"].dropna()) == {0, 1, 2, 3}
    report = measured.perfreport(level="system")
    assert report.level == "system" and report.samples == len(measured.export_perfdata(level="system"))
    assert len(measured.plot_performance()) >= 2
    session = measured.export_session(tmp_path / "all.zip")
    other = build_perfmonitor_service()
    other.import_session(session)
    pd.testing.assert_frame_equal(other.perfreport().cells, measured.perfreport().cells)
    assert str(other.perfreport()) == str(measured.perfreport())


def test_the_report_says_how_long_and_how_much(measured: PerfmonitorService) -> None:
    report = measured.perfreport()
    monitor: Any = measured.monitor
    assert report.duration_s == pytest.approx(monitor.stop_time - monitor.start_time, abs=0.01)
    cpu = next(figure for figure in report.figures if figure.name.startswith("CPU"))
    frame = monitor.data.view("process")
    used = (frame["cpu_ns"].iloc[-1] - frame["cpu_ns"].iloc[0]) / 1e9
    span = frame["time"].iloc[-1] - frame["time"].iloc[0]
    assert cpu.mean == pytest.approx(used / span / monitor.num_cpus * 100, rel=0.1)
    memory = next(figure for figure in report.figures if figure.name == "memory")
    assert memory.limit == monitor.memory_limits["process"]
    one = measured.perfreport("3")
    assert one.cells["code"].tolist() == ["child"]
    assert one.duration_s == measured.cells.data["duration"].iloc[3]
    assert measured.perfreport(-1).cells.equals(one.cells)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_text_and_html_say_the_same_and_code_is_escaped() -> None:
    service = build_perfmonitor_service()
    with service.monitored("<script>alert(1)</script>", interval=0.05, monitor_type="thread"):
        burn(0.1)
    report = service.perfreport()
    html = report._repr_html_()
    assert "<script" not in html
    parser = _Tags()
    parser.feed(html)
    assert parser.open == []
    assert parser.text.split() == str(report).replace("tags: ", "").replace(", cpu-bound", " cpu-bound").split()


def test_a_block_is_measured_where_nothing_runs_and_then_stopped() -> None:
    service = build_perfmonitor_service()
    with pytest.raises(ZeroDivisionError), service.monitored("fails", 0.05, "thread"):
        burn(0.1)
        raise ZeroDivisionError
    assert service.monitor is not None and not service.monitor.running
    assert service.perfreport().cells["cpu_s"].iloc[0] == pytest.approx(0.1, abs=0.05)


def test_a_monitor_that_cannot_sample_leaves_the_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    service = build_perfmonitor_service()
    service.start_monitoring(0.05, "thread")

    def broken() -> None:
        raise OSError("no such device")

    monkeypatch.setattr(service.monitor, "sample", broken, raising=False)
    said = "no sample at the end of a cell: OSError: no such device"
    with pytest.warns(UserWarning, match=said), service.monitored("mine"):
        done = True
    service.stop_monitoring()
    assert done and service.perfreport().cells["code"].tolist() == ["mine"]


def test_fault_21_a_stop_and_a_start_lose_nothing(tmp_path: Path) -> None:
    """stop, then start discards what was measured before (fault 21): here tables go on."""
    service = build_perfmonitor_service()
    for _ in range(2):
        with service.monitored("block", 0.05, "thread"):
            burn(0.1)
        time.sleep(0.1)
        burn(0.1)  # not measured
    frame = service.export_perfdata()
    assert frame["time"].is_monotonic_increasing
    assert frame["cpu_util_avg"].isna().sum() == 2, "each begins anew"
    assert frame["cpu_ns"].is_monotonic_increasing, "what a tick itself takes is in none of them"
    assert service.perfreport().cells["cpu_s"].tolist() == pytest.approx([0.1, 0.1], abs=0.05)
    again = build_perfmonitor_service()
    again.import_session(service.export_session(tmp_path / "both"))
    assert str(again.perfreport()) == str(service.perfreport()), "a session has both"
    service.start_monitoring(0.05, monitor=service.monitor)  # the same object, which forgets
    service.stop_monitoring()
    assert len(service.export_perfdata()) > len(frame)
    assert set(frame["time"]) <= set(service.export_perfdata()["time"])


def test_sampling_and_starting_again_need_no_pandas() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from jumper.core.service import build_perfmonitor_service\n"
        "service = build_perfmonitor_service()\n"
        "for _ in range(2):\n"
        "    with service.monitored('x', 0.05, 'thread'): pass\n"
        "try: service.export_perfdata()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.startswith("MissingExtraError tables need pandas"), done.stderr


class Minimal:
    """A monitor with the protocol's attributes and nothing else: no nodes, no stop_time, no sample()."""

    def __init__(self) -> None:
        self.interval, self.running = 1.0, False
        self.start_time: float | None = None
        self.wallclock_start_time = self.wallclock_stop_time = None
        self.num_cpus = self.num_system_cpus = 4
        self.num_gpus, self.gpu_memory, self.gpu_name = 1, 8.0, "card"
        self.cpu_handles: list[int] = [0, 1, 2, 3]
        self.memory_limits: dict[str, float] = {}
        self.is_imported, self.session_source = False, None
        self.data: Any = None

    def start(self, interval: float = 1.0) -> None:
        self.interval, self.running = interval, True
        self.start_time = time.monotonic()
        self.data = PerformanceData(4, 4, 1)
        for tick in range(11):
            self.data.add_sample(
                "process", tick * 1.0, [75.0] * 4, 2.0, [2.0], [0.0], [4.0], [tick * 2 * MIB, 0, tick, 0]
            )

    def stop(self) -> None:
        self.running = False


def test_any_monitor_is_reported_drawn_and_kept(tmp_path: Path) -> None:
    """What the protocol does not promise is not needed; known values come out."""
    service = build_perfmonitor_service()
    service.start_monitoring(1.0, monitor=Minimal())
    service.stop_monitoring()
    report = service.perfreport()
    assert report.tags == ["cpu-bound", "gpu-idle"]
    assert report.duration_s == pytest.approx(10.0)
    said = {figure.name: (figure.mean, figure.highest, figure.limit) for figure in report.figures}
    assert said["CPU of 4"] == pytest.approx((75.0, 75.0, 100.0))
    assert said["memory"] == (pytest.approx(2.0), 2.0, None)
    assert said["read from storage"] == (pytest.approx(2.0), pytest.approx(2.0), None)
    assert said["GPU memory"] == (pytest.approx(4.0), 4.0, 8.0)
    assert len(service.plot_performance(["cpu_all", "gpu", "gpu_mem"])) == 3
    service.export_session(tmp_path / "s.zip")
    again = build_perfmonitor_service()
    again.import_session(tmp_path / "s.zip")
    assert str(again.perfreport()) == str(report)
    assert "1 GPUs (card, 8.0 GiB)" in again.resources()
    assert "4 of 4 CPUs" in service.resources()


def test_nodes_are_reported_together_and_one_by_one(tmp_path: Path) -> None:
    nodes = NodeDataStore()
    for name, gib in (("n1", 1.0), ("n2", 3.0)):
        nodes.register_node(NodeInfo(name, 2, 2, memory_limits={"process": 4.0}))
        for tick in range(5):
            nodes.add_sample(name, "process", {"time": 50.0 + tick, "memory": gib, "cpu_util_avg": 10 * gib})
    service = build_perfmonitor_service()
    service.monitor = OfflineMonitor(nodes, "made", {"interval": 1.0, "start_time": 50.0, "stop_time": 54.0})

    def mean(node: str | None, name: str) -> float:
        return next(f.mean for f in service.perfreport(node=node).figures if f.name.startswith(name))

    assert [mean(node, "memory") for node in (None, "n1", "n2")] == [4.0, 1.0, 3.0]
    assert [mean(node, "CPU") for node in (None, "n1", "n2")] == [20.0, 10.0, 30.0]
    assert service.perfreport(node="n2").tags == []
    assert service.perfreport().node == "n1, n2"
    assert len(service.export_perfdata(tmp_path / "n2.csv", node="n2")) == 5
    with pytest.raises(JumperError, match="no node 'n3' here"):
        service.perfreport(node="n3")
    (curve,) = next(iter(service.plot_performance(["memory"], node="n2")))
    assert curve.dimension_values(1).tolist() == [3.0] * 5


def test_pictures_hold_the_samples_and_are_written(measured: PerfmonitorService, tmp_path: Path) -> None:
    layout = measured.plot_performance(["cpu", "cpu_ns", "mem"], level="system")
    frame = even(measured.export_perfdata(level="system"), 1.0)
    monitor: Any = measured.monitor
    drawn = {curve.label: curve for overlay in layout for curve in overlay if curve.label}
    assert set(drawn) >= {"cpu_util_avg", "cpu_ns", "memory"}
    for name, curve in drawn.items():
        assert curve.dimension_values(0).tolist() == (frame["time"] - monitor.start_time).tolist()
        np.testing.assert_array_equal(curve.dimension_values(1), frame[name].to_numpy())
    for name, start in (
        ("a.html", b"\n<!DOCTYPE html>"),
        ("b.png", b"\x89PNG"),
    ):
        measured.plot_performance(["cpu"], file=tmp_path / "new" / name)
        assert (tmp_path / "new" / name).read_bytes().lstrip(b"\n").startswith(start.lstrip(b"\n"))
    assert b"https://" not in (tmp_path / "new" / "a.html").read_bytes().split(b"<script", 1)[0]


def test_a_column_of_any_name_is_drawn(tmp_path: Path) -> None:
    service = build_perfmonitor_service()
    monitor = Minimal()
    service.start_monitoring(monitor=monitor)
    for number, name in enumerate(("a{b}", "$$x$$ <b>", "%s")):
        monitor.data.add_sample("system", {"time": 1.0, name: 2.0})
        service.plot_performance([name], level="system", file=tmp_path / f"{number}.html")
        assert html.escape(name) in (tmp_path / f"{number}.html").read_text()
    service.stop_monitoring()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"metrics": ["temperature"]}, r"no values of 'temperature' at this level; groups: cpu, .*; columns: memory, "),
        ({"metrics": ["gpu"]}, "no values of 'gpu'"),
        ({"file": "picture.bmp"}, r"expected a name that ends in \.html, \.png"),
        ({"cell_range": "9"}, "cells '9': there are cells 0 to 3 so far"),
        ({"live": True}, "a live plot needs a monitor that runs"),
    ],
)
def test_a_picture_that_cannot_be_is_said(measured: PerfmonitorService, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(JumperError, match=said):
        measured.plot_performance(**asked)


def test_a_live_picture_grows_with_the_samples_and_ends_with_the_monitor() -> None:
    """Drawn by Bokeh as a notebook draws it: the source of its line has the newest samples."""
    import holoviews as hv
    from bokeh.models import ColumnDataSource

    service = build_perfmonitor_service()
    service.start_monitoring(0.05, "thread")
    live = service.plot_performance(["memory", "io"], live=(0.1, 60.0))
    plot = hv.renderer("bokeh").get_plot(live.view)
    live.start()

    def points() -> int:
        return min(len(source.data["seconds"]) for source in plot.state.select({"type": ColumnDataSource}))

    try:
        before, deadline = points(), time.monotonic() + 60
        while points() < before + 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert points() >= before + 10
        assert live.running
    finally:
        service.stop_monitoring()
    deadline = time.monotonic() + 60
    while live.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not live.running
    assert points() == len(even(service.monitor.data.view("process"), 0.05))  # samples that come late are one
    live.stop()
    with pytest.raises(JumperError, match="expected more than 0, found 0"):
        service.monitor.running = True
        service.plot_performance(live=(0, 1))


def test_fault_8_reports_beside_a_fast_sampler_are_whole() -> None:
    """view() races with the sampler (fault 8): reports, tables and sessions while rows come at 1 kHz."""
    service = build_perfmonitor_service()
    service.start_monitoring(0.001, "thread")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(6):
                service.perfreport()
                assert service.export_perfdata()["time"].is_monotonic_increasing
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    service.stop_monitoring()
    assert errors == []


def test_fault_9_a_monitor_that_dies_is_not_running_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception kills the package's thread and running stays True (fault 9): here it is False, with the reason."""
    service = build_perfmonitor_service()
    service.start_monitoring(0.02, "thread")
    monitor: Any = service.monitor

    def broken(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(monitor._source.sampler.pipeline, "tick", broken)
    deadline = time.monotonic() + 60
    while monitor.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not monitor.running
    assert monitor.reason == "RuntimeError: the disk is on fire"
    assert service.perfreport().samples >= 1
    service.start_monitoring(0.02, "thread")
    service.stop_monitoring()


def test_fault_15_missed_samples_are_ticks_not_rows() -> None:
    """180 of 750 ticks are said to be 0.54 missed because level rows are counted (fault 15): here 570 are missed."""
    times = np.sort(np.random.default_rng(1).choice(np.arange(1, 749), 178, replace=False))
    frame = pd.DataFrame({"time": np.concatenate([[0], times, [749]]) * 0.1})
    assert (len(frame), missed_samples(frame, 0.1)) == (180, 570)


def test_a_pause_is_neither_missed_nor_weighed() -> None:
    """Ten minutes between a stop and a start: the first row after it begins anew."""
    frame = pd.DataFrame({
        "time": [0.0, 1.0, 2.0, 602.0, 603.0], "cpu_util_avg": [np.nan, 10, 10, np.nan, 40],
        "memory": [1, 1, 1, 5, 5.0], "cpu_ns": [0, 1e9, 2e9, 500e9, 501e9],
    })  # fmt: skip
    assert missed_samples(frame, 1.0) == 0
    assert averages(frame, "memory", 1.0) == (pytest.approx(13 / 5), 1.0, 5.0)
    assert averages(frame, "cpu_util_avg", 1.0) == (pytest.approx(20.0), 10.0, 40.0)
    cells = pd.DataFrame({"cell_index": [0], "raw_cell": [""], "start_time": [0.0], "end_time": [603.0]})
    assert cell_costs(frame, cells, 1)["cpu_s"].tolist() == [3.0]


def test_close_samples_are_weighted_by_time() -> None:
    frame = pd.DataFrame({
        "time": [0.0, 1.0, 1.999, 2.0, 3.0], "cpu_util_avg": [np.nan, 10.0, 10.0, 1000.0, 10.0], "memory": [1.0] * 5,
    })  # fmt: skip
    assert even(frame, 1.0)["cpu_util_avg"].tolist()[:2] == [pytest.approx(np.nan, nan_ok=True), 10.0]
    mean, low, high = averages(frame, "cpu_util_avg", 1.0) or (0, 0, 0)
    assert mean == pytest.approx((10 * 2.999 + 1000 * 0.001) / 3)
    assert low == pytest.approx(10.0) and high < 12
    assert averages(frame, "gpu_util_avg", 1.0) is None
    assert averages(frame.iloc[:1], "memory", 1.0) == (1.0, 1.0, 1.0)


def test_cells_are_costed_from_rates_where_there_are_no_counters() -> None:
    frame = pd.DataFrame({"time": np.arange(11.0), "cpu_util_avg": [50.0] * 11, "memory": np.arange(11.0),
                          "io_write": [100.0] * 11})  # fmt: skip
    cells = pd.DataFrame({"cell_index": [0, 1, 2], "raw_cell": ["a", "b\nc", "d"], "start_time": [2.0, 4.5, 20.0],
                          "end_time": [4.0, 5.0, 21.0], "execution_count": [1, 2, 3]})  # fmt: skip
    costs = cell_costs(frame, cells, 4)
    assert costs["cpu_s"].tolist()[:2] == [4.0, 1.0]
    assert costs["write_bytes"].tolist()[:2] == [200.0, 50.0]
    assert costs["read_bytes"].tolist()[:2] == [0.0, 0.0]
    assert costs["memory_peak_bytes"].tolist()[:2] == [4 * 2**30, 5 * 2**30]
    assert costs["code"].tolist() == ["a", "b", "d"]
    assert costs.loc[2, ["cpu_s", "memory_peak_bytes", "write_bytes"]].isna().all(), "after the last sample: not known"


def test_a_peak_is_the_cells_that_lay_around_it() -> None:
    """A row's peak is of the time since the row before: that of a neighbour is none of mine."""
    frame = pd.DataFrame({"time": [0.0, 1.0, 2.0, 3.0], "memory": [0.0] * 4, "memory_peak_bytes": [9.0, 7.0, 5.0, 8.0]})
    cells = pd.DataFrame({"cell_index": [0, 1], "raw_cell": ["a", "b"], "start_time": [1.0, 0.5],
                          "end_time": [2.0, 2.5]})  # fmt: skip
    assert cell_costs(frame, cells, 1)["memory_peak_bytes"].tolist() == [5, 5]


def test_what_was_the_limit_is_said_once_it_is() -> None:
    def said(**columns: float) -> list[str]:
        frame = pd.DataFrame({"time": np.arange(5.0), **{name: [value] * 5 for name, value in columns.items()}})
        return tags(frame, 1.0, {"memory": 10.0, "gpu_memory": 10.0})

    assert said(cpu_util_avg=69.0, memory=7.9) == []
    assert said(cpu_util_avg=70.0, memory=9.0) == ["memory-bound", "cpu-bound"]
    assert said(gpu_util_avg=80.0, gpu_mem_avg=8.0) == ["gpu-bound", "gpu-memory-bound"]
    assert said(gpu_util_avg=5.0, gpu_mem_avg=0.2) == ["gpu-idle"]
    assert said(gpu_util_avg=5.0, gpu_mem_avg=0.0) == []


@pytest.mark.parametrize("text", ["", "x", "3:1", "-5", "4", "1:4", "1:2:3", ":"])
def test_cells_that_are_none(text: str) -> None:
    if text == ":":
        assert parse_cells(text, 4) == (0, 3)
        return
    with pytest.raises(JumperError, match=r"cells '.*': (expected a number|there are cells 0 to 3)"):
        parse_cells(text, 4)


def test_without_a_measurement_there_is_one_line(tmp_path: Path) -> None:
    service = build_perfmonitor_service()
    for ask in (service.perfreport, service.plot_performance, service.export_perfdata, service.export_session):
        with pytest.raises(JumperError, match=r"nothing was measured yet; call start_monitoring\(\) first"):
            ask()
    with pytest.raises(JumperError, match="there is no such session"):
        service.import_session(tmp_path / "none")
    assert "CPUs, memory up to" in service.resources()
    service.stop_monitoring()
    service.close()


def test_levels_that_are_none_are_said(measured: PerfmonitorService) -> None:
    for ask in (measured.perfreport, measured.plot_performance, measured.export_perfdata):
        with pytest.raises(ValueError, match="no level 'slurm' here; there are process, user, system"):
            ask(level="slurm")


def test_fault_23_an_import_is_reported_and_a_start_ends_it(measured: PerfmonitorService, tmp_path: Path) -> None:
    """Import, then report and export is refused by the package (fault 23): here it is what an import is for."""
    session = measured.export_session(tmp_path / "s.zip")
    service = build_perfmonitor_service()
    service.start_monitoring(0.05, "thread")
    with pytest.raises(JumperError, match="a monitor is running"):
        service.import_session(session)
    service.stop_monitoring()
    service.import_session(session)
    assert len(service.perfreport().cells) == 4
    service.start_monitoring(0.05, "thread")
    service.stop_monitoring()
    assert service.perfreport().cells.empty
    assert (service.export_perfdata()["time"] >= service.monitor.start_time).all()


def test_a_monitor_that_is_no_monitor_leaves_the_last_one() -> None:
    service = build_perfmonitor_service()
    with service.monitored("one", 0.05, "thread"):
        pass
    rows = len(service.export_perfdata())
    with pytest.raises(JumperError, match="SimpleNamespace is no monitor"):
        service.start_monitoring(monitor=SimpleNamespace())
    assert len(service.export_perfdata()) == rows
