"""Faults of the package that the documents come from: none of them is here. faults.md lists them, with their tests."""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jumper.monitor.backends import create_monitor, native_built

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BACKENDS = ["thread", "subprocess", *(["native"] if native_built() else [])]
BUSY = "import time\nuntil = time.thread_time() + {seconds}\nwhile time.thread_time() < until: pass"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def busy(seconds: float) -> list[str]:
    return [sys.executable, "-S", "-c", BUSY.format(seconds=seconds)]


def used_s(monitor: Any) -> float:
    frame = monitor.data.view("process")
    return float(frame["cpu_ns"].iloc[-1] - frame["cpu_ns"].iloc[0]) / 1e9


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def large() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 150 MiB."""
    code = "held = bytearray(b'x') * (150 << 20); print(1, flush=True); import time; time.sleep(120)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_fault_1_the_process_level_is_the_target_and_not_the_collector(
    backend: str, large: subprocess.Popen[bytes]
) -> None:
    monitor: Any = create_monitor(backend, levels=["process"], pid=large.pid)
    monitor.start(0.05)
    monitor.stop()
    frame = monitor.data.view("process")
    resident = int(Path(f"/proc/{large.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert frame["memory"].iloc[-1] * 2**30 == pytest.approx(resident, rel=0.02)
    assert frame["processes"].iloc[-1] == 1


def test_fault_3_no_priority_and_no_policy_is_changed(backend: str) -> None:
    """Its native collector puts every process of its user to nice 19 and BATCH, for good."""
    others = [subprocess.Popen(["sleep", "60"]), subprocess.Popen(["nice", "-n", "3", "sleep", "60"])]

    def all_of_it() -> list[tuple[int, int, set[int]]]:
        pids = [os.getpid(), *(other.pid for other in others)]
        return [(os.getpriority(os.PRIO_PROCESS, p), os.sched_getscheduler(p), os.sched_getaffinity(p)) for p in pids]

    try:
        deadline = time.monotonic() + 30
        while os.getpriority(os.PRIO_PROCESS, others[1].pid) == os.getpriority(os.PRIO_PROCESS, 0):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        before = all_of_it()
        monitor: Any = create_monitor(backend)
        monitor.start(0.02)
        during = all_of_it()
        monitor.stop()
        assert before == during == all_of_it()
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_fault_4_children_of_other_threads_are_counted(backend: str) -> None:
    """It reads the children of the main thread only: 98 % of such a child's CPU is lost."""
    monitor: Any = create_monitor(backend, levels=["process"])
    monitor.start(0.1)
    before = children_s()
    thread = threading.Thread(target=subprocess.run, args=(busy(0.4),))
    thread.start()
    thread.join()
    truth = children_s() - before
    monitor.stop()
    assert truth > 0.4
    assert used_s(monitor) >= truth - 0.02  # what the dead used is shown in whole clock ticks


def test_fault_5_short_children_are_counted(backend: str) -> None:
    """It sees what lives at a tick: of 40 children of 50 ms, 93 to 98 % are lost."""
    monitor: Any = create_monitor(backend, levels=["process"])
    monitor.start(10.0)  # not one of them lives at a tick
    before = children_s()
    for _ in range(8):
        subprocess.run(busy(0.05), check=True)
    truth = children_s() - before
    own = time.process_time()
    monitor.stop()
    assert truth > 0.4
    assert truth - 0.02 <= used_s(monitor) <= truth + own


def test_fault_21_the_agent_starts_where_paths_have_spaces_and_names_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter's path with a space, and a psutil.py in the notebook's folder, break its collector."""
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "psutil.py").write_text("raise SystemExit('not the one')")
    (folder / "json.py").write_text("raise SystemExit('not the one')")
    (folder / "python 3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python 3"))
    monkeypatch.chdir(folder)
    monitor: Any = create_monitor("subprocess", levels=["process"])
    monitor.start(0.05)
    assert monitor.running
    monitor.stop()
    assert len(monitor.data) >= 2


def test_every_fault_has_a_test_that_is_there() -> None:
    page = (HERE / "faults.md").read_text()
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 25))
    for number, tests in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert named, f"fault {number} names no test"
        for file, name in named:
            tree = ast.parse((REPOSITORY / "tests" / file).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (number, file, name)
