"""Sessions: everything comes back, and what is damaged, newer or hostile is said in one line."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jumper.adapters.cells import CellHistory
from jumper.adapters.data import NodeDataStore, NodeInfo
from jumper.adapters.session import FORMAT, export_session, import_session
from jumper.monitor.backends.offline import OfflineMonitor
from jumper.monitor.backends.thread import PerformanceMonitor
from jumper.monitor.common import MonitorProtocol
from jumper.schema.errors import JumperError, MonitorUnavailableError

GOLDEN = Path(__file__).parent / "golden" / "jumper-extension-0.4.1.zip"


def two_nodes() -> OfflineMonitor:
    """Two nodes that differ in everything: CPUs, limits, times, own columns, and one has a level more."""
    nodes = NodeDataStore()
    for index, name in enumerate(("node 1/eth", "ü-2")):
        cpus = 2 + index
        nodes.register_node(
            NodeInfo(name, cpus, 2 * cpus, index, 16.0 * index, "GPU" * index, {"process": 8.0 + index}, [0, 1 + index])
        )
        for tick in range(5 + index):
            row = {"time": 100.0 + tick + 0.1 * index, "memory": 0.1 + 0.2 + index, "net_mine": 1e9 * index + tick}
            row |= {f"cpu_util_{core}": 100 / 3 for core in range(cpus)} | {"cpu_util_avg": 100 / 3}
            row |= {"gpu_util_0": 50.0} if index else {}
            for level in ("process", "system", *(["slurm"] if index else [])):
                nodes.add_sample(name, level, row)
    return OfflineMonitor(nodes, "made", {"interval": 1.0, "start_time": 99.5, "stop_time": 106.25, "slurm_job": "77"})


def some_cells() -> CellHistory:
    cells = CellHistory()
    for count, code in enumerate(('print("a, b")\nx = 1', "", "NA", "%%perfmonitor\n'ü'"), 3):
        cells.end(cells.start(code, count if count != 4 else None))
    return cells


@pytest.mark.parametrize("name", ["session", "session.zip"])
def test_fault_14_everything_comes_back(tmp_path: Path, name: str) -> None:
    """Session export/import loses nodes and per-core columns (fault 14): here every column of every node is there."""
    monitor, cells = two_nodes(), some_cells()
    target = export_session(tmp_path / "runs" / name, monitor, cells=cells)
    again, history = import_session(target)
    assert isinstance(again, MonitorProtocol)
    assert again.nodes.node_names() == ["node 1/eth", "ü-2"]
    assert again.nodes.hardware == monitor.nodes.hardware
    for node in again.nodes.node_names():
        for level in monitor.nodes.levels:
            if level == "slurm" and node == "node 1/eth":
                continue
            pd.testing.assert_frame_equal(again.nodes.view(level, node=node), monitor.nodes.view(level, node=node))
    assert again.data.view("system").equals(monitor.data.view("system"))
    for fact in ("interval", "start_time", "stop_time", "slurm_job", "num_cpus", "memory_limits", "num_gpus"):
        assert getattr(again, fact) == getattr(monitor, fact)
    assert again.is_imported and again.session_source == str(target)
    pd.testing.assert_frame_equal(history.data, cells.data)
    export_session(tmp_path / "twice.zip", again, cells=history)
    twice, _ = import_session(tmp_path / "twice.zip")
    assert twice.data.view("process").equals(monitor.data.view("process"))


def test_a_running_monitor_can_be_exported_and_goes_on(tmp_path: Path) -> None:
    monitor = PerformanceMonitor()
    monitor.start(0.02)
    try:
        export_session(tmp_path / "now.zip", monitor)
        rows = len(monitor.data)
        deadline = time.monotonic() + 60
        while len(monitor.data) < rows + 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(monitor.data) >= rows + 3
    finally:
        monitor.stop()
    again, _ = import_session(tmp_path / "now.zip")
    view = again.data.view("system")
    assert view.equals(monitor.data.view("system").iloc[: len(view)][view.columns])


def test_a_session_of_the_real_package_is_read() -> None:
    """tests/golden/jumper-extension-0.4.1.zip was exported by it: `python -m tests.peer.environment` makes it anew."""
    monitor, cells = import_session(GOLDEN)
    assert monitor.nodes.node_names() == ["local"]
    assert sorted(monitor.levels) == ["process", "system", "user"]
    assert (monitor.num_cpus, monitor.interval, monitor.memory_limits["process"]) == (2, 0.2, 23.54)
    with zipfile.ZipFile(GOLDEN) as archive:
        for level in monitor.levels:
            with archive.open(f"perf_{level}.csv") as file:
                said = pd.read_csv(file)
            frame = monitor.data.view(level)
            assert len(frame) == len(said) == 14
            for column in frame:
                assert frame[column].tolist() == pytest.approx(said[column].tolist(), rel=1e-15)
            assert "cpu_util_1" in frame
    assert [cell.cell_index for cell in cells.finished] == [0, 1]
    inside = monitor.nodes.view("process", cell_history=cells)["cell_index"].dropna().tolist()
    assert inside == [0] * 7 + [1] * 6


def test_an_imported_session_cannot_be_started() -> None:
    monitor, _ = import_session(GOLDEN)
    with pytest.raises(MonitorUnavailableError, match="is an imported session; start another monitor"):
        monitor.start()
    monitor.stop()
    assert not monitor.running


def test_a_level_slurm_is_shown_outside_of_slurm(tmp_path: Path) -> None:
    """A session of a Slurm job is read where there is none."""
    export_session(tmp_path / "job.zip", two_nodes())
    monitor, _ = import_session(tmp_path / "job.zip")
    assert len(monitor.data.view("slurm")) == 6


def damaged(folder: Path, name: str, change: Any) -> Path:
    """A session with one file changed; None: taken away."""
    export_session(folder / "damaged", two_nodes(), cells=some_cells())
    file = folder / "damaged" / name
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    return folder / "damaged"


def manifest(**changes: Any) -> Any:
    return lambda data: json.dumps({**json.loads(data), **changes}).encode()


def outside(data: bytes) -> bytes:
    content = json.loads(data)
    content["nodes"][0]["files"]["process"]["file"] = "../../secret.csv"
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("manifest.json", None, "is no session: there is no manifest.json in it"),
        ("manifest.json", lambda data: data[:200], "its manifest.json is damaged"),
        ("manifest.json", manifest(monitor={"interval": "often"}), r"damaged: Expected `float`, got `str`.*interval"),
        ("manifest.json", manifest(version="3.0"), rf"has version 3.0, this jumper reads up to {FORMAT}"),
        ("manifest.json", manifest(version="newest"), "its manifest.json is damaged"),
        ("manifest.json", outside, r"'\.\./\.\./secret\.csv' is no file of a session"),
        ("node-1/perf_process.csv", None, r"node-1/perf_process\.csv is missing"),
        ("node-1/perf_process.csv", lambda data: data[: len(data) // 2], r"node-1/perf_process\.csv is damaged"),
        ("node-1/perf_process.csv", lambda data: b"", r"node-1/perf_process\.csv is damaged"),
        ("node-0/perf_system.csv", lambda data: data + b"a,b\n", r"node-0/perf_system\.csv is damaged"),
        ("cell_history.csv", lambda data: b"x,y\n1,2\n", r"cell_history\.csv is damaged: .* without cell_index"),
    ],
)
def test_what_is_damaged_is_said_with_its_name(tmp_path: Path, name: str, change: Any, said: str) -> None:
    source = damaged(tmp_path, name, change)
    with pytest.raises(JumperError, match=said) as caught:
        import_session(source)
    assert str(source) in str(caught.value) and "\n" not in str(caught.value)


def test_an_archive_that_is_none_or_torn(tmp_path: Path) -> None:
    with pytest.raises(JumperError, match="there is no such session"):
        import_session(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(JumperError, match="cannot be read as a zip archive"):
        import_session(tmp_path / "text.zip")
    whole = export_session(tmp_path / "whole.zip", two_nodes()).read_bytes()
    (tmp_path / "torn.zip").write_bytes(whole[:-100])
    with pytest.raises(JumperError, match="cannot be read as a zip archive"):
        import_session(tmp_path / "torn.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as archive:
        at = archive.getinfo("node-1/perf_process.csv").header_offset + 80
    (tmp_path / "flipped.zip").write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
    with pytest.raises(JumperError, match="cannot be read as a zip archive"):
        import_session(tmp_path / "flipped.zip")


def test_nothing_is_unpacked_and_no_bomb_goes_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that lead out of the folder are never written; an archive larger than a session can be is refused."""
    source = damaged(tmp_path, "manifest.json", lambda data: data)
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../outside.txt", "x")
        for file in source.rglob("*.*"):
            archive.write(file, file.relative_to(source))
    before = sorted(tmp_path.parent.rglob("*"))
    monitor, _ = import_session(tmp_path / "evil.zip")
    assert len(monitor.data) == 6
    assert sorted(tmp_path.parent.rglob("*")) == before
    monkeypatch.setattr("jumper.adapters.session.MOST_BYTES", 2000)
    with pytest.raises(JumperError, match="larger than"):
        import_session(tmp_path / "evil.zip")


def test_a_folder_that_somebody_packed_himself_is_read(tmp_path: Path) -> None:
    source = damaged(tmp_path, "manifest.json", lambda data: data)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for file in source.rglob("*.*"):
            archive.write(file, Path("my session") / file.relative_to(source))
    assert import_session(tmp_path / "packed.zip")[0].nodes.node_names() == ["node 1/eth", "ü-2"]


def test_a_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(JumperError, match="is there already; name a new directory"):
        export_session(tmp_path / "mine", two_nodes())
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file/session", "file/session.zip"):
        with pytest.raises(JumperError, match="the session cannot be written"):
            export_session(tmp_path / name, two_nodes())
    assert os.listdir(tmp_path) == ["file"]


def test_no_pickle_is_in_a_session(tmp_path: Path) -> None:
    export_session(tmp_path / "s", two_nodes(), cells=some_cells())
    assert {file.suffix for file in (tmp_path / "s").rglob("*.*")} == {".csv", ".json"}


@settings(max_examples=8, deadline=None)
@given(
    values=st.lists(st.floats(allow_infinity=False) | st.none(), min_size=1, max_size=6),
    column=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(
        lambda name: name.strip() == name and name not in ("time", "cell_index")
    ),
    code=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)
@example(values=[None], column="0\r0", code="a\rb\r\nc\n")
def test_any_numbers_names_and_code_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[float | None], column: str, code: str
) -> None:
    nodes, cells = NodeDataStore(), CellHistory()
    nodes.register_node(NodeInfo("n", 1, 1))
    for tick, value in enumerate(values):
        nodes.add_sample("n", "process", {"time": tick / 3, column: value})
    cells.end(cells.start(code))
    monitor = OfflineMonitor(nodes, "made", {})
    target = export_session(tmp_path_factory.mktemp("s") / "s.zip", monitor, cells=cells)
    again, history = import_session(target)
    assert again.data.view("process")[column].equals(monitor.data.view("process")[column])
    assert history.data["raw_cell"].tolist() == [code]
