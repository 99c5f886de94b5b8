"""The sanity check: silent on a healthy machine, and right about monitors that measure something else."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jumper.core.service import build_perfmonitor_service
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.sanity import check_sanity

BACKENDS = ["thread", "subprocess", *(["native"] if native_built() else [])]


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is busy with something else than ours."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("backend", BACKENDS)
def test_fault_20_a_healthy_machine_passes(backend: str, tmp_path: Path) -> None:
    """Its check fails on a healthy box because reads come from the cache (fault 20); here 0 bytes are no fault."""
    file = tmp_path / "cached"
    file.write_bytes(bytes(1 << 20))
    file.read_bytes()
    monitor = create_monitor(backend)
    report = check_sanity(monitor)
    assert report.ok, str(report)
    assert report.samples >= 4
    assert not monitor.running


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_monitor_of_another_process_is_found_out(backend: str, other: subprocess.Popen[bytes]) -> None:
    """What the subprocess monitor of the package did (fault 1): its numbers look well and are another process's."""
    report = check_sanity(create_monitor(backend, pid=other.pid))
    assert not report.ok
    assert any(text.startswith("process: ") for text in report.problems), str(report)
    assert "MiB measured" in str(report) or "bytes were written" in str(report)


def spoiled(change: Any) -> Any:
    """A thread monitor whose rows are changed on their way."""
    monitor: Any = create_monitor("thread")
    take = monitor._take

    def changed(level: str, row: dict[str, Any]) -> None:
        take(level, change(level, dict(row)))

    monitor._take = changed
    return monitor


def without(name: str) -> Any:
    return lambda level, row: {key: value for key, value in row.items() if key != name}


def with_value(name: str, value: float | None, where: str) -> Any:
    return lambda level, row: {**row, name: value} if level == where else row


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("io_read_count"), "no column io_read_count"),
        (without("cpu_util_0"), "user: no column cpu_util_0"),
        (with_value("memory", None, "system"), "system: memory has no value in"),
        (with_value("cpu_util_avg", 0.0, "user"), "user: cpu_util_avg is 0 in all samples"),
        (with_value("io_write", None, "process"), "process: io_write has no value in"),
        (with_value("cpu_ns", 0, "process"), "s of CPU were used, 0.00 s measured"),
        (with_value("write_chars", 0, "process"), "bytes were written, 0 measured"),
        (with_value("memory", 0.001, "process"), "MiB, 1 MiB measured"),
    ],
)
def test_what_is_wrong_is_named(change: Any, said: str) -> None:
    report = check_sanity(spoiled(change))
    assert said in str(report)


def test_a_monitor_without_samples_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor: Any = create_monitor("thread")
    monitor._take = lambda level, row: None
    report = check_sanity(monitor, timeout_s=0.2)
    assert report.problems[0].startswith("expected 4 samples of each level, found 0")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert (
        check_sanity(create_monitor("subprocess")).problems[0].startswith("it does not start: cannot start the agent")
    )


def test_a_collector_that_was_switched_off_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text(
        "class Broken:\n    def collect(self, level, context):\n        raise OSError('no such sensor')\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "collectors:\n  broken:\n    _target_: broken.Broken\n    handler:\n"
        "      _target_: jumper.monitor.metrics.handlers.ScalarHandler\n      column: heat\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = check_sanity(create_monitor("thread", collectors=tmp_path / "mine.yaml"))
    (problem,) = report.problems
    assert "broken" in problem and "no such sensor" in problem


def test_it_writes_nothing_and_needs_no_place_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    assert check_sanity(create_monitor("thread")).ok


def test_fault_20_the_service_returns_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    service = build_perfmonitor_service()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = service.start_monitoring(0.1, "thread", check_sanity=True)
    service.stop_monitoring()
    assert report is not None and report.ok
    assert len(service.monitor.data) < report.samples + 4, "the check's own samples are not among the user's"
    made = iter([spoiled(without("memory")), create_monitor("thread")])
    monkeypatch.setattr("jumper.core.service.create_monitor", lambda name: next(made))
    with pytest.warns(UserWarning, match="process: no column memory"):
        report = service.start_monitoring(0.1, "thread", check_sanity=True)
    assert report is not None and not report.ok
    assert service.monitor is not None and service.monitor.running, "it is the user's to stop"
    service.stop_monitoring()


def test_it_is_skipped_with_a_warning_for_a_monitor_of_ones_own() -> None:
    service = build_perfmonitor_service()
    with pytest.warns(UserWarning, match="it is skipped for PerformanceMonitor, which is no fault of it"):
        assert service.start_monitoring(0.1, monitor=create_monitor("thread"), check_sanity=True) is None
    service.stop_monitoring()
