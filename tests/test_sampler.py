"""The schedule of the sampler, the node's lock, threads, and when rows reach the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.metrics.process.procfs import ProcFS
from jumper.monitor.metrics.process.tree import last_pid_is_ours
from jumper.monitor.nodefacts import node_facts
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.pipeline import build_pipeline, load_config
from jumper.monitor.sampler import Sampler
from jumper.monitor.segment import SegmentWriter
from jumper.monitor.sinks import CallSink, SegmentSink
from jumper.monitor.threads import ThreadReader
from jumper.store.segments import read_segment
from tests.fakeproc import FakeProc

S = 1_000_000_000


def sampler(interval: float, rows: dict[str, list[Any]], slow_s: float = 0.0, **more: Any) -> Sampler:
    """A sampler of this process whose every tick takes ``slow_s`` longer."""
    host = SimpleNamespace(
        pid=os.getpid(), process=None, uid=os.getuid(), slurm_job=None, interval=interval,
        node_info=SimpleNamespace(**node_facts()),
    )  # fmt: skip

    def take(stream: str, row: Any) -> None:
        rows.setdefault(stream, []).append(row)
        if stream == "monitor":
            time.sleep(slow_s)

    levels = more.pop("levels", ["process"])
    return Sampler(build_pipeline(load_config(), host, levels), levels, interval, os.getpid(), [CallSink(take)], **more)


def dues(rows: list[Any]) -> list[int]:
    """When each tick was due, after the first."""
    return [row["mono_ns"] - row["late_ns"] for row in rows[1:-1]]


def test_the_schedule_does_not_drift_with_what_a_tick_costs() -> None:
    rows: dict[str, list[Any]] = {}
    watched = sampler(0.1, rows, slow_s=0.04)
    watched.start()
    time.sleep(1.2)
    watched.stop()
    found = dues(rows["monitor"])
    assert len(found) >= 3
    off = sorted(abs((due - found[0] + S // 20) % (S // 10) - S // 20) for due in found)
    assert off[len(off) // 2] < 0.015 * S


def test_ticks_that_could_not_be_taken_are_counted_and_not_made_up() -> None:
    rows: dict[str, list[Any]] = {}
    watched = sampler(0.05, rows, slow_s=0.12)
    watched.start()
    time.sleep(1.2)
    watched.stop()
    last = rows["monitor"][-1]
    passed = (last["mono_ns"] - rows["monitor"][0]["mono_ns"]) / (0.05 * S)
    assert last["missed"] >= 4
    assert 0.6 * passed <= last["ticks"] + last["missed"] <= passed + 3


#: holds the lock of a folder until its input ends
HOLDER = """
import sys
from jumper.monitor.nodelock import NodeLock
lock = NodeLock(sys.argv[1])
print(lock.held(), flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    return process


def test_one_process_a_node_holds_the_lock_and_another_follows(tmp_path: Path) -> None:
    lock = NodeLock(tmp_path)
    with holder(tmp_path) as other:
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            lock._next = 0.0
            assert not lock.held()
        assert len(os.listdir("/proc/self/fd")) == descriptors
        other.kill()
        other.wait()
    assert not lock.held(), "not tried for at every tick"
    lock._next = 0.0
    assert lock.held()
    lock.release()
    with holder(tmp_path) as other:
        other.kill()


def test_who_does_not_hold_the_lock_takes_no_series_of_the_machine(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        rows: dict[str, list[Any]] = {}
        lock = NodeLock(tmp_path)
        watched = sampler(0.05, rows, levels=["process", "system"], node_lock=lock)
        watched.start()
        assert set(rows) == {"process", "monitor"}
        other.kill()
        other.wait()
        lock._next = 0.0
        watched.tick_now()
        assert len(rows["system"]) == 1
        watched.stop()
    with holder(tmp_path) as other:  # it was let go of
        other.kill()


def test_two_agents_of_a_node_take_the_machine_once(tmp_path: Path) -> None:
    agents = [
        AgentProcess(os.getpid(), 0.1, ["process", "system"], spool=tmp_path, node_lock=True, engine="python")
        for _ in range(2)
    ]
    for agent in agents:
        agent.start(timeout_s=30)
    for agent in agents:
        agent.flush(timeout_s=30)
        agent.stop()
    streams = sorted("system" in read_segment(path).streams for path in tmp_path.glob("*.seg"))
    assert streams == [False, True]


def test_the_last_pid_is_trusted_only_where_it_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fs = ProcFS()
    said = iter([7, 7, 7, 8, None, 8])
    monkeypatch.setattr(fs, "last_pid", lambda: next(said))
    assert not last_pid_is_ours(fs), "a container that fakes it"
    assert last_pid_is_ours(fs)
    assert not last_pid_is_ours(fs)
    (tmp_path / "loadavg").write_text("0 0 0 1/2 7\n")
    assert not last_pid_is_ours(ProcFS(str(tmp_path)))


def test_threads_are_read_one_by_one(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    for tid, schedule in ((8, "123 5 6\n"), (9, "")):
        task = tmp_path / "7" / "task" / str(tid)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(schedule)
    (tmp_path / "7/task/8/io").write_text("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n")
    expected = {"mono_ns": 99, "pid": 7, "tid": 8, "cpu_ns": 123}
    io = {"read_chars": 1, "write_chars": 2, "read_bytes": 5, "write_bytes": 6}
    assert ThreadReader(7, proc.fs).read(99) == [{**expected, **io}]
    (tmp_path / "7/task/8/io").unlink()
    assert ThreadReader(7, proc.fs).read(99) == [expected]
    assert ThreadReader(77, proc.fs).read(99) == []


def test_a_shared_file_system_is_written_to_now_and_then(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path) as writer:
        sink = SegmentSink(writer, flush_s=10.0)
        sizes = []
        for second in (100, 101, 109, 110, 111):
            sink.tick(second * S, {"process": [{"mono_ns": second * S, "pid": 1}]})
            sizes.append(writer.path.stat().st_size)
        assert sizes[0] > 0
        assert sizes[0] == sizes[1] == sizes[2] < sizes[3] == sizes[4]
    assert read_segment(writer.path).table("process")["pid"][0].tolist() == [1] * 5


@pytest.mark.parametrize("derived", [False, True])
def test_derived_columns_are_not_stored(tmp_path: Path, derived: bool) -> None:
    with SegmentWriter(tmp_path) as writer:
        sink = SegmentSink(writer, derived=derived)
        sink.tick(1, {"process": [{"mono_ns": 1, "memory_bytes": 5, "memory": 1.0, "cpu_util_0": 3.0}]})
    stored = {"mono_ns", "memory_bytes"}
    expected = stored if derived else stored | {"memory", "cpu_util_0"}
    assert set(read_segment(writer.path).table("process")) == expected
