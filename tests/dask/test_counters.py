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
    assert after[2] == io[4]  # the text of the first reading, nothing else


def test_both_read_the_same_numbers(own_io: int) -> None:
    both = [which.start(own_io) for which in (in_python, compiled(), in_python)]
    for before, after in itertools.pairwise(both):
        assert before[0] <= after[0] and before[1] <= after[1]
        assert after[2][:4] == (*before[2][:2], *before[2][4:])


def test_without_a_file_there_is_no_io(counters: Any) -> None:
    assert counters.start(-1)[2] is None
    assert counters.stop(-1, -1, -1)[2:4] == (None, None)


def test_a_peak_is_seen_once_and_what_stays_is_resident(counters: Any, clear: int) -> None:
    counters.peak(clear)
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    high, resident = counters.peak(clear)
    again, still = counters.peak(clear)
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


@pytest.mark.parametrize("by", ["/proc/self/clear_refs", "/proc/self/statm"])
def test_a_stop_says_what_the_next_start_would_read(counters: Any, own_io: int, by: str) -> None:
    descriptor = os.open(by, os.O_WRONLY if by.endswith("refs") else os.O_RDONLY)
    clear, statm = (descriptor, -1) if by.endswith("refs") else (-1, descriptor)
    stopped = counters.stop(own_io, clear, statm)
    started = counters.start(own_io)
    os.close(descriptor)
    assert started[2][:4] == (*stopped[2][:2], *stopped[2][4:])
    assert (stopped[3][0] is None) == (clear < 0)
    assert stopped[3][1] == pytest.approx(Memory(False).rss(), abs=8 << 20)


@pytest.mark.parametrize("by", ["/proc/self/clear_refs", "/proc/self/statm"])
def test_a_look_says_what_it_read_and_wrote_itself(counters: Any, own_io: int, by: str) -> None:
    descriptor = os.open(by, os.O_WRONLY if by.endswith("refs") else os.O_RDONLY)
    clear, statm = (descriptor, -1) if by.endswith("refs") else (-1, descriptor)
    before = counters.start(own_io)[2]
    memory, children, read, written = counters.look(clear, statm)
    after = counters.start(own_io)[2]
    os.close(descriptor)
    assert after[2:4] == (before[4] + read, before[5] + written)
    assert memory[1] == pytest.approx(Memory(False).rss(), abs=8 << 20) and children == counters.children()
    assert counters.look(-1, -1)[0] is None


def test_the_clock_of_each_thread_and_of_all(counters: Any) -> None:
    ended = threading.Thread(target=time.thread_time)
    ended.start()
    ended.join()
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/self/task/{ended.native_id}"):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    (mine, gone), process = counters.clocks([threading.get_native_id(), ended.native_id])
    assert mine <= time.thread_time_ns() < mine + 50_000_000
    assert mine <= process <= time.process_time_ns() < process + 500_000_000
    assert gone < 0


def test_a_note_fits_whole_or_not_at_all(counters: Any) -> None:
    place = bytearray(b"." * 200)
    before, wall = time.monotonic_ns(), time.time_ns()
    assert counters.note(place, 100, 90, "1", "g", "k-é")
    mono_ns, wall_ns, *words = bytes(place[100:]).split(b"\0")
    assert before <= int(mono_ns) <= time.monotonic_ns() and wall <= int(wall_ns) <= time.time_ns()
    assert words[:3] == [b"1", b"g", "k-é".encode()] and not words[3].strip(b".")
    assert bytes(place[:100]) == b"." * 100
    before_it = bytes(place)
    assert not counters.note(place, 0, 90, "x" * 90) and bytes(place) == before_it
    with pytest.raises(UnicodeError):
        counters.note(place, 0, 90, "\ud800")
