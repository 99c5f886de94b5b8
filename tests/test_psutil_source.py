"""The psutil path, for systems without /proc: what it sees is right, what it cannot see is null."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import jumper
from jumper.monitor.metrics.process.collector import ProcessCollector
from jumper.monitor.metrics.process.psutil import PsutilSource
from tests.truth.conftest import Runner, me

__all__ = ["me"]

#: starts a child that waits; both use 0.2 s and wait for a line
PAIR = """
import subprocess, sys, time
def burn():
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
burn()
if len(sys.argv) > 1:
    child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.readline()
if len(sys.argv) > 1:
    child.communicate(b"\\n")
    print("alone", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def target() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child, both of which have used 0.2 s."""
    command = [sys.executable, "-S", "-c", PAIR, PAIR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_the_tree_is_summed_and_the_dead_stay(target: subprocess.Popen[bytes]) -> None:
    source = PsutilSource(target.pid)
    first = source.update()
    assert source.alive
    assert len(source.pids) == 2
    assert (first["processes"], first["pss_missing"]) == (2, 1)
    assert 0.4e9 <= (first["cpu_ns"] or 0) < 0.9e9
    assert (first["memory_bytes"] or 0) == sum(psutil.Process(pid).memory_info().rss for pid in source.pids)
    assert target.stdout is not None
    line(target)
    target.stdout.readline()
    second = source.update()
    assert (second["processes"], second["pss_missing"]) == (1, 0)
    assert (second["cpu_ns"] or 0) >= (first["cpu_ns"] or 0)
    line(target)
    target.wait()
    last = source.update()
    assert not source.alive
    assert (last["processes"], last["memory_bytes"]) == (0, 0)
    assert (last["cpu_ns"] or 0) >= (second["cpu_ns"] or 0)


def test_who_is_left_out_does_not_count(target: subprocess.Popen[bytes]) -> None:
    (child,) = psutil.Process(target.pid).children()
    assert PsutilSource(target.pid, exclude=[child.pid]).update()["processes"] == 1


def test_a_target_that_cannot_be_read_is_null_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "num_threads", refuse)
    source = PsutilSource(os.getpid())
    assert source.update() == {"pid": os.getpid()}
    assert source.alive


def test_a_command_without_proc_is_measured_and_its_estimates_flagged(me: Runner) -> None:
    out = me.folder / "run"
    code = (
        "import os, sys; real = os.path.exists\n"
        "os.path.exists = lambda path: path != '/proc/self/stat' and real(path)\n"
        "from jumper.core.command import run\n"
        "sys.exit(run(sys.argv[2:], output=sys.argv[1], interval=0.1, backend='thread'))"
    )
    workload = me.workload("touch", "200", "0.3")
    assert me.popen([me.python, "-c", code, str(out), *workload]).wait(timeout=60) == 0
    run = jumper.open_run(out)
    (task,) = run.tasks.to_dict("records")
    assert task["memory_peak_bytes"] == pytest.approx(210 << 20, rel=0.04)
    assert "memory-estimated" in task["flags"]
    assert "unseen_faults" not in run.samples("process")


def test_where_there_is_no_proc_the_collector_takes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    collector = ProcessCollector(os.getpid(), None, os.getuid(), None)
    collector.setup()
    assert isinstance(collector.target, PsutilSource)
