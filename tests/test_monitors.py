"""The thread and the subprocess monitor: one contract, tested on the same load."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.common import MonitorProtocol
from jumper.monitor.sampling import sampling
from jumper.schema.errors import JumperError, MonitorUnavailableError
from jumper.store.segments import read_segment

BACKENDS = ["thread", "subprocess", *(["native"] if native_built() else [])]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def measured(backend: str, seconds: float, interval: float = 0.1, **kwargs: Any) -> Any:
    monitor: Any = create_monitor(backend, **kwargs)
    monitor.start(interval)
    time.sleep(seconds)
    monitor.stop()
    return monitor


def test_it_is_a_monitor_with_real_attributes(backend: str) -> None:
    monitor = create_monitor(backend)
    assert isinstance(monitor, MonitorProtocol)
    for name in ("levels", "stop_time", "nodes", "data", "num_cpus", "memory_limits", "cpu_handles"):
        assert name in vars(monitor), name
    assert set(monitor.memory_limits) >= {"process", "user", "system"}


def test_one_row_a_tick_and_level(backend: str) -> None:
    monitor: Any = create_monitor(backend)
    monitor.start(0.1)
    deadline = time.monotonic() + 60
    while len(monitor.data) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    monitor.stop()
    most = (monitor.stop_time - monitor.start_time) / 0.1 + 2  # one at the start and one at the end
    for level in monitor.levels:
        frame = monitor.data.view(level)
        assert 8 <= len(frame) <= most
        assert frame["time"].is_monotonic_increasing
        assert frame["time"].iloc[0] >= monitor.start_time
        assert {"cpu_util_avg", "memory", "io_read", "io_write", "io_read_count", "io_write_count"} <= set(frame)
    assert monitor.nodes.node_names() == [monitor.node]
    assert monitor.nodes.view("process").equals(monitor.data.view("process"))
    assert not monitor.running
    assert monitor.wallclock_stop_time > monitor.wallclock_start_time


def test_an_idle_process_has_no_cpu(backend: str, idle: subprocess.Popen[bytes]) -> None:
    """The profiler counts itself (memory_profiler 209): an idle process has no CPU, whoever watches it at 20 Hz."""
    monitor = measured(backend, 1.0, 0.05, levels=["process"], pid=idle.pid)
    frame = monitor.data.view("process")
    assert (frame["cpu_ns"].iloc[-1] - frame["cpu_ns"].iloc[0]) < 2_000_000


def test_the_cost_of_a_monitor_inside_is_not_the_targets() -> None:
    """The same where the sampler is a thread of the target: its own CPU is left out."""
    monitor = measured("thread", 1.0, 0.02, levels=["process", "user"])
    frame = monitor.data.view("process")
    used = (frame["cpu_ns"].iloc[-1] - frame["cpu_ns"].iloc[0]) / 1e9
    own = monitor._source.sampler._own_cpu_ns() / 1e9
    assert own > 0.05, "the load of this test is too small to show anything"
    assert used < 0.3 * own


def test_first_row_of_a_process_that_ran_long_before_is_its_own_interval_only(backend: str) -> None:
    """CPU of 5347 % (con/duct 399): what was used before the start is not in the first rates."""
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    monitor = measured(backend, 0.35, levels=["process"])
    rates = monitor.data.view("process")["cpu_util_avg"]
    assert math.isnan(rates.iloc[0])
    assert rates.iloc[1:].max() <= 100


def test_levels_that_were_not_asked_for_are_not_there(backend: str) -> None:
    monitor = measured(backend, 0.25, levels=["system"])
    assert monitor.data.view("process").empty
    assert len(monitor.data.view("system")) >= 2


def until_rows(monitor: Any, level: str, more: int = 3) -> None:
    wanted, deadline = len(monitor.data.view(level)) + more, time.monotonic() + 60
    while len(monitor.data.view(level)) < wanted:
        assert time.monotonic() < deadline, f"no rows of {level}"
        time.sleep(0.02)


def test_levels_come_and_go_while_it_runs(backend: str) -> None:
    monitor: Any = create_monitor(backend, levels=["process"])
    monitor.start(0.05)
    until_rows(monitor, "process")
    assert monitor.data.view("system").empty and monitor.data.view("user").empty
    monitor.set_levels(["user", "system"])
    until_rows(monitor, "user")
    until_rows(monitor, "system")
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    monitor.set_levels(["system", "process"])
    until_rows(monitor, "system")
    until_rows(monitor, "process")
    gone = len(monitor.data.view("user"))
    until_rows(monitor, "system")
    with pytest.raises(JumperError, match="unknown level 'node'"):
        monitor.set_levels(["system", "node"])
    assert monitor.levels == ["system", "process"]
    monitor.stop()
    assert len(monitor.data.view("user")) == gone
    process = monitor.data.view("process")
    away = process["time"].diff().idxmax()
    assert process["time"].diff()[away] >= 0.3
    assert process["cpu_ns"].diff()[away] >= 0.3e9
    assert len(monitor.data.view("system")) > len(process) - away


def test_levels_are_switched_before_the_start_and_after_the_stop(backend: str) -> None:
    monitor: Any = create_monitor(backend)
    monitor.set_levels(["system"])
    monitor.start(0.05)
    until_rows(monitor, "system")
    monitor.stop()
    monitor.set_levels(["process"])
    assert monitor.data.view("process").empty


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "soon", None])
def test_a_wrong_interval_is_refused(backend: str, interval: Any) -> None:
    monitor = create_monitor(backend)
    with pytest.raises(ValueError, match="the interval must be"):
        monitor.start(interval)
    assert not monitor.running
    assert monitor.start_time is None


def test_stop_in_any_order(backend: str) -> None:
    monitor = create_monitor(backend)
    monitor.stop()
    monitor.start(0.1)
    monitor.start(0.1)
    monitor.stop()
    monitor.stop()
    first = len(monitor.data)
    assert first >= 2
    monitor.start(0.1)
    monitor.stop()
    assert len(monitor.data) >= 2


def test_a_target_that_ends_ends_the_monitor_with_a_reason(backend: str, idle: subprocess.Popen[bytes]) -> None:
    monitor: Any = create_monitor(backend, levels=["process"], pid=idle.pid)
    monitor.start(0.05)
    idle.kill()
    idle.wait()
    deadline = time.monotonic() + 10
    while monitor.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not monitor.running
    assert monitor.reason == "the target is gone"
    assert len(monitor.data.view("process")) >= 1


def test_an_agent_that_is_killed_says_so() -> None:
    monitor: Any = create_monitor("subprocess")
    monitor.start(0.05)
    os.kill(monitor._source.pid, 9)
    deadline = time.monotonic() + 10
    while monitor.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not monitor.running
    assert "the agent ended" in monitor.reason
    assert len(monitor.data.view("process")) >= 1


def test_an_agent_whose_parent_is_killed_ends(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom jumper.monitor.agent_process import AgentProcess\n"
        "agent = AgentProcess(os.getpid(), 0.05, spool=sys.argv[1])\n"
        "print(agent.start()['pid'], flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=-1, check=False)
    pid = int(parent.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.02)
    assert not _alive(pid)
    from jumper.store.segments import read_segment

    (segment,) = tmp_path.glob("*.seg")
    assert read_segment(segment).complete


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_collector_that_raises_is_switched_off_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_collector.py").write_text(
        "class Broken:\n    name = 'broken'\n"
        "    def collect(self, level, context):\n        raise RuntimeError('no sensor')\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "collectors:\n  broken:\n    _target_: broken_collector.Broken\n    inject: []\n"
        "    handler:\n      _target_: jumper.monitor.metrics.handlers.ScalarHandler\n      column: celsius\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for backend in BACKENDS:
        monitor = measured(backend, 0.3, collectors=tmp_path / "mine.yaml")
        assert len(monitor.data.view("process")) >= 3
        (event,) = monitor.events
        assert event["kind"] == "collector-off"
        assert "RuntimeError: no sensor" in event["text"]


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(JumperError, match="known are default, thread, subprocess, native"):
        create_monitor("thred")
    with pytest.raises(JumperError, match="unknown level 'core'; here are process, user, system"):
        create_monitor("thread", levels=["core"])


def test_an_agent_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(MonitorUnavailableError, match="cannot start the agent with /no/such/python"):
        create_monitor("subprocess").start()


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """`flush` promises that what was measured until now is on disk."""
    agent = AgentProcess(os.getpid(), 10.0, ["process"], spool=tmp_path)
    agent.start()
    try:
        assert agent.pid is not None
        os.kill(agent.pid, signal.SIGSTOP)
        while psutil.Process(agent.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert agent.flush(timeout_s=0.2) == 0
        os.kill(agent.pid, signal.SIGCONT)
        time.sleep(0.5)  # the late answer arrives
        now = time.monotonic_ns()
        size = agent.flush(timeout_s=10)
        (segment,) = tmp_path.glob("*.seg")
        assert segment.stat().st_size == size
        assert read_segment(segment).table("process")["mono_ns"][0][-1] >= now
    finally:
        agent.stop()


def test_a_fork_of_the_parent_does_not_stop_the_agent() -> None:
    monitor = create_monitor("subprocess", levels=["process"])
    monitor.start(interval=0.05)
    child = os.fork()
    if child == 0:
        monitor.stop()
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.3)
    before = len(monitor.data.view("process"))
    time.sleep(0.5)
    assert monitor.running
    monitor.stop()
    assert len(monitor.data.view("process")) > before + 2


@pytest.mark.parametrize("engine", ["python", *(["native"] if native_built() else [])])
def test_a_fork_of_the_sampler_has_no_say(engine: str, tmp_path: Path) -> None:
    """It may ask and stop what it has a copy of, also where the fork came in the middle of a tick."""
    one: Any = sampling(engine, os.getpid(), 0.005, ["process"], spool=tmp_path)
    one.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            try:
                one.set_levels(["system"])
                one.tick()
                one.text({"type": "event", "kind": "of a fork"})
                one.flush()
                one.stop()
                os._exit(7)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                pytest.fail("the child waits for a thread that it does not have")
            time.sleep(0.001)
        assert os.waitstatus_to_exitcode(ended[1]) == 7
    assert one.running
    one.stop()
    segment = read_segment(one.ready["segment_path"])
    assert (segment.torn, segment.missing, segment.complete) == (0, 0, True)
    ticks = segment.table("monitor")["ticks"][0].tolist()
    assert ticks == list(range(1, len(ticks) + 1))
    assert not [record for record in segment.records if record.get("kind") == "of a fork"]


@pytest.mark.parametrize(("end", "status"), [("", 0), ("os._exit(4)", 4), ("raise KeyError", 1)])
def test_a_program_may_end_without_a_stop(backend: str, end: str, status: int) -> None:
    code = (
        "import os, sys, time\nfrom jumper.monitor.backends import create_monitor\n"
        "monitor = create_monitor(sys.argv[1])\nmonitor.start(0.01)\n"
        f"while len(monitor.data) < 3:\n    time.sleep(0.01)\n{end}\n"
    )
    done = subprocess.run([sys.executable, "-c", code, backend], capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert ("KeyError" in done.stderr) == (status == 1) and "Fatal" not in done.stderr


def test_an_agent_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    agent = AgentProcess(os.getpid(), 10.0, ["process"], spool=tmp_path)
    agent.start()
    assert agent.pid is not None
    os.kill(agent.pid, signal.SIGSTOP)
    before = time.monotonic()
    agent.stop(timeout_s=0.3)
    assert time.monotonic() - before < 5
    assert not os.path.exists(f"/proc/{agent.pid}")
    assert not agent.running
