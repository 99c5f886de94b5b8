"""The documents' own code, run as it stands there: a monitor, its hook-up, a collector and its entry."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest

from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.config.shape import INJECTABLE
from jumper.core.service import build_perfmonitor_service
from jumper.monitor.backends import backend_name, create_monitor, native_built
from jumper.monitor.common import JumperError, MonitorProtocol, MonitorUnavailableError
from jumper.monitor.metrics import handlers
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.pipeline import build_pipeline, load_config

DOCUMENTS = Path(__file__).parent / "documents"
BLOCK = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(document: str, folder: Path) -> Path:
    """Write the code blocks of a document as the files that their headings name."""
    for name, text in BLOCK.findall((DOCUMENTS / document).read_text()):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def my_monitor(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(written("custom_monitor.md", tmp_path)))
    yield importlib.import_module("my_monitor")
    sys.modules.pop("my_monitor")


def test_the_skeleton_is_a_monitor_before_it_is_started(my_monitor):
    monitor = my_monitor.MyCustomMonitor()
    assert isinstance(monitor, MonitorProtocol)
    assert not isinstance(object(), MonitorProtocol)


def test_the_skeleton_is_started_read_stopped_and_exported(my_monitor, tmp_path):
    service = build_perfmonitor_service()
    monitor = my_monitor.MyCustomMonitor()
    service.start_monitoring(interval=0.05, monitor=monitor)
    assert service.monitor is monitor
    deadline = time.monotonic() + 20
    while len(monitor.data) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    while_running = monitor.data.data["process"]
    assert len(while_running) >= 3
    service.stop_monitoring()
    for level in monitor.levels:
        frame = monitor.data.data[level]
        assert frame["time"].between(monitor.start_time, monitor.stop_time).all()
        assert frame["time"].is_monotonic_increasing
        assert list(frame) == [
            "time", "memory", "io_read_count", "io_write_count", "io_read", "io_write",
            "cpu_util_avg", "cpu_util_min", "cpu_util_max", "cpu_util_0",
        ]  # fmt: skip
        assert frame["io_read"].isna().tolist() == [True] + [False] * (len(frame) - 1)
    for level in (None, "system"):
        file = tmp_path / f"{level}.csv"
        service.export_perfdata(file=str(file), **({"level": level} if level else {}))
        assert len(pd.read_csv(file)) == len(frame)


def test_the_hook_up_runs_as_a_script(tmp_path):
    written("custom_monitor.md", tmp_path)
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "hook_up.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    frame = pd.read_csv(tmp_path / "runs/today/perf.csv")
    assert len(frame) >= 2
    assert frame["memory"].eq(0).all()


def test_the_documents_surface_is_ours(my_monitor, tmp_path):
    """The protocol as it is printed there takes our monitors, ours takes theirs, and both list the same."""
    printed = {}
    exec((tmp_path / "surface.py").read_text(), printed)
    surface = printed["MonitorProtocol"]
    assert set(surface.__annotations__) == set(MonitorProtocol.__annotations__)
    for monitor in (my_monitor.MyCustomMonitor(), *(create_monitor(name) for name in ("thread", "subprocess"))):
        for protocol in (surface, MonitorProtocol):
            names = {"my_monitor": monitor, "MonitorProtocol": protocol}
            assert eval((tmp_path / "has_it.py").read_text(), names) is True


def test_any_monitor_is_plugged_in_as_it_is_printed(my_monitor, tmp_path):
    """Ours and theirs; everything that works with the default works with it, the check is skipped with a warning."""
    block = (tmp_path / "plug_in.py").read_text()
    for monitor in (my_monitor.MyCustomMonitor(), create_monitor("thread")):
        names = {"my_custom_monitor": monitor}
        exec(block.replace("1.0", "0.05").replace("# ... workload ...", "__import__('time').sleep(0.3)"), names)
        service = names["service"]
        assert service.monitor is monitor and not monitor.running
        assert service.perfreport().samples == len(monitor.data) >= 2
        assert len(service.plot_performance(["memory"])) == 1
        service.export_session(tmp_path / f"{type(monitor).__name__}.zip")
        with pytest.warns(UserWarning, match=f"skipped for {type(monitor).__name__}"):
            service.start_monitoring(interval=0.05, monitor=monitor, check_sanity=True)
        service.stop_monitoring()


def test_the_service_refuses_what_is_no_monitor_and_a_second_one(my_monitor):
    service = build_perfmonitor_service()
    with pytest.raises(JumperError, match=r"SimpleNamespace is no monitor: it lacks interval, .*start"):
        service.start_monitoring(monitor=SimpleNamespace(running=False))
    with pytest.raises(JumperError, match="nothing was measured yet"):
        service.export_perfdata(file="x.csv")
    assert service.monitor is None
    first = my_monitor.MyCustomMonitor()
    service.start_monitoring(interval=0.05, monitor=first)
    try:
        with pytest.raises(JumperError, match=r"running already; call stop_monitoring\(\)"):
            service.start_monitoring(monitor=my_monitor.MyCustomMonitor())
        assert service.monitor is first
    finally:
        service.stop_monitoring()
    service.stop_monitoring()
    service.start_monitoring(interval=0.05, monitor=my_monitor.MyCustomMonitor())
    service.stop_monitoring()


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "soon"])
def test_the_service_refuses_an_interval_that_is_none(my_monitor, interval):
    service = build_perfmonitor_service()
    with pytest.raises(ValueError, match="the interval must be"):
        service.start_monitoring(interval=interval, monitor=my_monitor.MyCustomMonitor())
    assert service.monitor is None


def send_over_loopback(size: int) -> None:
    """Send exactly ``size`` bytes to a socket of our own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = []

        def receive():
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    received.append(len(data))

        reader = threading.Thread(target=receive)
        reader.start()
        with socket.create_connection(server.getsockname()) as sender:
            sender.sendall(bytes(size))
        reader.join()
        assert sum(received) == size


@pytest.fixture
def host():
    return SimpleNamespace(
        pid=os.getpid(),
        process=psutil.Process(),
        uid=os.getuid(),
        slurm_job=None,
        node_info=NodeInfo("here", len(os.sched_getaffinity(0)), os.cpu_count() or 1),
        interval=1.0,
    )


def test_the_network_collector_counts_what_is_sent(tmp_path, monkeypatch, host):
    monkeypatch.syspath_prepend(str(written("custom_collector.md", tmp_path)))
    config = load_config(tmp_path / "collectors.yaml")
    assert [entry.target for entry in config.entries if entry.name == "network"] == [
        "mymetrics.network.psutil.PsutilNetworkCollector"
    ]
    data, nodes = PerformanceData(2, 2, 0), NodeDataStore()
    nodes.register_node(host.node_info, data)
    pipeline = build_pipeline(config, host, ["process", "system"])
    pipeline.setup()

    def tick():
        mono_ns = time.monotonic_ns()
        for level, row in pipeline.tick(mono_ns, time.time_ns()).items():
            data.add_sample(level, {"time": mono_ns / 1e9, **row})

    before = psutil.net_io_counters()
    tick()
    send_over_loopback(20_000_000)
    tick()
    after = psutil.net_io_counters()
    pipeline.close()
    assert pipeline.events == []

    columns = ["net_bytes_sent", "net_bytes_recv", "net_packets_sent", "net_packets_recv"]
    system = data.data["system"]
    assert system[columns].iloc[0].isna().all()
    sent = (system[["net_bytes_sent", "net_bytes_recv"]].iloc[1] * system["time"].diff().iloc[1]).tolist()
    # other traffic of this machine comes on top of ours
    assert 20_000_000 <= sent[0] <= after.bytes_sent - before.bytes_sent + 1
    assert 20_000_000 <= sent[1] <= after.bytes_recv - before.bytes_recv + 1
    assert data.data["process"][columns].iloc[1].eq(0).all()
    file = tmp_path / "system.csv"
    nodes.export(str(file), level="system")
    assert pd.read_csv(file)[columns].iloc[1].tolist() == pytest.approx(system[columns].iloc[1].tolist())


def test_the_documents_target_inside_the_package_works_too(tmp_path, host):
    text = (written("custom_collector.md", tmp_path) / "collectors.yaml").read_text()
    file = tmp_path / "ours.yaml"
    file.write_text(text.replace("mymetrics.", "jumper.monitor.metrics."))
    pipeline = build_pipeline(load_config(file), host, ["system"])
    pipeline.tick(0, 0)
    assert pipeline.tick(10**9, 0)["system"]["net_bytes_sent"] >= 0


@pytest.mark.parametrize("name", ["common", "psutil", "__init__"])
def test_the_documents_modules_run_where_they_are_put_inside_the_package(name, tmp_path):
    """The documents write the collector into the package's own folder: with its name changed, each file runs."""
    text = (written("custom_collector.md", tmp_path) / "mymetrics" / "network" / f"{name}.py").read_text()
    names = {"__name__": "printed"}
    exec(text.replace("mymetrics.", "jumper.monitor.metrics."), names)
    if name == "psutil":
        collector = names["PsutilNetworkCollector"]()
        assert collector.collect("process", {}) == [0, 0, 0, 0]
        assert collector.collect("system", {})[1] >= 0
    assert "NetworkCollectorBackend" in names


def test_the_page_on_collectors_runs(tmp_path, monkeypatch, host):
    page = (DOCUMENTS.parents[1] / "docs" / "collectors.md").read_text()
    module, check = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (entry,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "load.py").write_text(module)
    (tmp_path / "collectors.yaml").write_text(entry)
    monkeypatch.chdir(tmp_path)
    exec(compile(check, "docs/collectors.md", "exec"), {})
    pipeline = build_pipeline(load_config("collectors.yaml"), host, ["process", "system"])
    rows = pipeline.tick(0, 0)
    assert rows["system"]["load_1min"] >= 0
    assert "load_1min" not in rows["process"]
    sys.modules.pop("load", None)


def test_the_page_on_collectors_lists_what_there_is():
    page = (DOCUMENTS.parents[1] / "docs" / "collectors.md").read_text()
    classes = {name for name in handlers.__all__ if name.endswith("Handler") and name != "StorageHandler"}
    assert set(re.findall(r"^\| `(\w+Handler)\(", page, re.MULTILINE)) == classes
    for name in (*CollectionContext.__annotations__, *INJECTABLE):
        assert f"`{name}`" in page


@pytest.mark.parametrize("monitor_type", ["thread", "subprocess_python"])
def test_the_network_collector_is_in_data_and_export_of_our_monitors(monitor_type, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(written("custom_collector.md", tmp_path)))
    service = build_perfmonitor_service()
    monitor = create_monitor(monitor_type, collectors=tmp_path / "collectors.yaml")
    assert isinstance(monitor, MonitorProtocol)
    service.start_monitoring(interval=0.1, monitor=monitor)
    deadline = time.monotonic() + 60
    while not len(monitor.data) and time.monotonic() < deadline:  # what is sent before the first row is in no rate
        time.sleep(0.02)
    send_over_loopback(20_000_000)
    wanted = len(monitor.data) + 3
    while len(monitor.data) < wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    service.stop_monitoring()
    assert monitor.events == []
    frame = monitor.data.data["system"]
    sent = (frame["net_bytes_sent"] * frame["time"].diff()).sum()
    assert sent >= 20_000_000
    service.export_perfdata(file=tmp_path / "net.json", level="system")
    assert NodeDataStore.load(tmp_path / "net.json")["net_bytes_sent"].equals(frame["net_bytes_sent"])
    assert monitor.data.data["process"]["net_bytes_sent"].iloc[1:].eq(0).all()


def test_monitors_are_known_by_the_documents_names():
    assert [backend_name(name) for name in ("thread", "subprocess_python", "native_c")] == [
        "thread", "subprocess", "native",
    ]  # fmt: skip
    assert backend_name() == ("native" if native_built() else "subprocess")
    with pytest.raises(JumperError, match=r"unknown monitor 'natve'; known are default, thread, subprocess, native"):
        create_monitor("natve")
    if not native_built():
        with pytest.raises(MonitorUnavailableError, match=r"native monitor was not built .*; use 'subprocess'"):
            create_monitor("native_c")
