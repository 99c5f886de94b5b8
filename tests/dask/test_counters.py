"""The counters at a boundary, compiled and in Python, against each other and against known answers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jumper_dask import counters as in_python
from jumper_dask.readings import Memory

if not sys.platform.startswith("linux"):
    pytest.skip("threads have their own files in Linux's /proc only", allow_module_level=True)


def compiled() -> Any:
    return pytest.importorskip("jumper_dask._boundary", reason="the boundary reader is not built")


@pytest.fixture(params=["compiled", "in Python"])
def counters(request: pytest.FixtureRequest) -> Any:
    return compiled() if request.param == "compiled" else in_python


@pytest.fixture
def own_io() -> Iterator[int]:
    descriptor = os.open("/proc/thread-self/io", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def clear() -> Iterator[int]:
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def test_between_a_start_and_a_stop_lies_what_the_thread_wrote_and_its_clock(counters: Any, own_io: int) -> None:
    with open("/dev/null", "wb", buffering=0) as sink:
        mono, cpu, io = counters.start(own_io)
        used = time.thread_time_ns()
        for _ in range(50):
            sink.write(b"x" * 1000)
        while time.thread_time_ns() - used < 5_000_000:
            pass
        used = time.thread_time_ns() - used
        stopped, spent, after, _, _ = counters.stop(own_io, -1, -1)
    assert used <= spent - cpu <= stopped - mono
    assert spent - cpu < used + 2_000_000
    assert after[3] - io[3] == 50_000
    assert after[2] - io[2] == io[4]  # the text of the first reading, nothing else


def test_both_read_the_same_numbers(own_io: int) -> None:
    both = [which.start(own_io) for which in (in_python, compiled(), in_python)]
    for before, after in itertools.pairwise(both):
        assert before[0] <= after[0] and before[1] <= after[1]
        assert after[2] == (*before[2][:2], before[2][2] + before[2][4], *before[2][3:4], after[2][4])


def test_without_a_file_there_is_no_io(counters: Any) -> None:
    assert counters.start(-1)[2] is None
    assert counters.stop(-1, -1, -1)[2:4] == (None, None)


def test_a_peak_is_seen_once_and_what_stays_is_resident(counters: Any, clear: int) -> None:
    counters.peak(clear)
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    high, resident, *_ = counters.peak(clear)
    again, still, *_ = counters.peak(clear)
    assert high - resident > 60 << 20
    assert abs(again - resident) < 8 << 20 and abs(still - Memory(False).rss()) < 8 << 20  # type: ignore[operator]


def test_children_are_what_the_wait_says(counters: Any) -> None:
    before = sum(counters.children())
    child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time\nwhile time.process_time() < 0.1: pass"])
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    truth = (usage.ru_utime + usage.ru_stime) * 1e9
    assert sum(counters.children()) - before == pytest.approx(truth, abs=5_000)  # the kernel gives microseconds


def test_a_thread_reads_its_own_file(counters: Any) -> None:
    found: list[int] = []

    def writes() -> None:
        descriptor = os.open("/proc/thread-self/io", os.O_RDONLY)
        begun = counters.start(descriptor)[2][3]
        with open("/dev/null", "wb", buffering=0) as sink:
            sink.write(b"x" * 777)
        found.append(counters.stop(descriptor, -1, -1)[2][3] - begun)
        os.close(descriptor)

    thread = threading.Thread(target=writes)
    thread.start()
    thread.join()
    assert found == [777]
