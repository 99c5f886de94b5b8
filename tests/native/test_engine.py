"""The C sources under sanitizers, and the engine from Python: what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import concurrent.futures
import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import HERE, SOURCES, Build

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from jumper.monitor.backends.native._engine import Engine, columns
from jumper.monitor.backends.native.streams import rows_of, schema_payload, stream_names
from jumper.store.segments import read_segment

FUZZ = HERE / "fuzz"
NAMES = {number: stream_names(number) for number in range(1, 7)}
MOST_SETS = 64


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(0.02, in_target=True, queue=True)
    yield made
    made.stop()


def threads_of_kernel(expected: int = 0) -> int:
    """Threads of this process; one that was joined may be listed for a moment more."""
    deadline = time.monotonic() + 5
    while expected and len(os.listdir("/proc/self/task")) > expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(os.listdir("/proc/self/task"))


def rows(engine: Engine, timeout_s: float = 0.0) -> list[tuple[str, dict[str, Any]]]:
    return list(rows_of(engine.drain(timeout_s), NAMES))


# ---- under sanitizers


def test_no_text_breaks_a_parser_and_what_is_written_is_what_was_given(build: Build) -> None:
    parsers = [path for path in SOURCES if path.stem in ("parse", "node", "procfile", "segment")]
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = build("mutate", [FUZZ / "target.c", FUZZ / "mutate.c", *parsers], *flags)
    done = subprocess.run([program, "2", FUZZ / "seeds"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 1000


@pytest.mark.parametrize("checked", [True, False], ids=["sanitizers", "as it is"])
def test_storms_on_all_sides_leave_the_engine_whole(
    checked: bool, sanitized: Build, build: Build, tmp_path: Path
) -> None:
    source = FUZZ / "drive.c"
    program = sanitized("drive", source) if checked else build("plain", [*SOURCES, source], "-O2")
    done = subprocess.run([program, "1", "10", tmp_path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 5
    first = read_segment(tmp_path / "0.seg", rows=False)  # its schema names no streams
    assert (first.torn, first.missing) == (0, 0)
    assert len(list(tmp_path.glob("*.seg"))) == 11


@pytest.mark.slow
def test_storms_on_all_sides_show_no_race(sanitized: Build, tmp_path: Path) -> None:
    program = sanitized("raced", FUZZ / "drive.c", sanitizers=["-fsanitize=thread"])
    done = subprocess.run([program, "3", "10", tmp_path], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel places memory where the sanitizer has its own")
    assert done.returncode == 0, done.stderr


# ---- what is refused


@pytest.mark.parametrize("interval", [0.0, -1.0, 1e-9, float("nan"), float("inf"), 1e12])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(ValueError, match="expected an interval"):
        Engine(interval)


@pytest.mark.parametrize("flush_s", [-1.0, float("nan"), float("inf")])
def test_a_flush_period_that_is_none_is_refused(flush_s: float) -> None:
    with pytest.raises(ValueError, match="flush period"):
        Engine(1.0, flush_s=flush_s)


def test_it_starts_once(engine: Engine) -> None:
    engine.start()
    with pytest.raises(OSError, match="already"):
        engine.start()
    engine.stop()
    with pytest.raises(OSError, match="already"):
        engine.start()


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_not_pickled_and_not_copied(engine: Engine, how: Any) -> None:
    with pytest.raises(TypeError, match="belongs to its process"):
        how(engine)


def test_a_segment_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    before = threads_of_kernel()
    for path in (tmp_path / "no" / "a.seg", tmp_path):
        with pytest.raises(OSError):
            Engine(1.0, segment=os.fsencode(path)).start()
    there = tmp_path / "there.seg"
    there.write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        Engine(1.0, segment=os.fsencode(there)).start()
    gc.collect()
    assert there.read_bytes() == b"somebody's"
    assert threads_of_kernel(before) == before


def test_a_path_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        Engine(1.0, segment=b"/" + b"a" * 5000)


def test_an_unknown_stream_has_no_columns() -> None:
    for stream in (0, 7, -1):
        with pytest.raises(ValueError, match=f"no stream {stream}"):
            columns(stream)


def test_another_interpreter_is_refused_clearly() -> None:
    inside = (
        "try:\n    import jumper.monitor.backends.native._engine\n"
        "except ImportError as error:\n    print('refused:', error, flush=True)"
    )
    code = (
        "try:\n    import _interpreters as si\nexcept ImportError:\n    import _xxsubinterpreters as si\n"
        f"import jumper.monitor.backends.native._engine\nsi.run_string(si.create(), {inside!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout and "interpreter" in done.stdout


# ---- before the start, after the stop, from all sides


@pytest.mark.parametrize("stopped", [False, True])
def test_before_the_start_and_after_the_stop_nothing_happens(engine: Engine, stopped: bool) -> None:
    if stopped:
        engine.start()
        engine.stop()
    assert engine.add_tree(os.getpid()) == -1
    assert engine.add_owner(2, os.getuid()) == -1
    engine.remove(0)
    engine.exclude(1)
    engine.go()
    engine.tick()
    assert engine.members(0) == []
    assert not engine.alive(0)
    assert not engine.text(b"{}\n")
    assert engine.drain(0.01) == b""
    assert engine.statistics()["ticks"] == 0
    assert not engine.statistics()["running"]
    engine.stop()


def test_sixty_four_sets_and_no_more(engine: Engine) -> None:
    engine.start()
    numbers = [engine.add_tree(os.getpid()) for _ in range(MOST_SETS)]
    assert numbers == list(range(MOST_SETS))
    assert engine.add_tree(os.getpid()) == -1
    engine.go()
    assert len([row for row in rows(engine) if row[0] == "process"]) == MOST_SETS
    engine.remove(-1)
    engine.remove(MOST_SETS)
    engine.remove(17)
    assert engine.add_tree(os.getpid()) == 17
    assert engine.add_tree(os.getpid()) == -1


def test_a_tick_of_everything_reads_what_a_sleeper_got_from_others(engine: Engine) -> None:
    """Pages that somebody else touches in a process grow its RSS while its CPU clock stands still."""
    size = 32 << 20
    code = f"import ctypes, mmap, sys; m = mmap.mmap(-1, {size}); print(ctypes.addressof(ctypes.c_char.from_buffer(m)))"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with sleeper:
        assert sleeper.stdout is not None
        address = int(sleeper.stdout.readline())
        time.sleep(0.2)  # until it sleeps
        engine.start()
        number = engine.add_tree(sleeper.pid)
        engine.tick(True)
        before = engine.members(number)[0]
        data = ctypes.create_string_buffer(size)
        here, there = (ctypes.c_ulong * 2)(ctypes.addressof(data), size), (ctypes.c_ulong * 2)(address, size)
        written = ctypes.CDLL(None, use_errno=True).process_vm_writev(sleeper.pid, here, 1, there, 1, 0)
        if written < 0:
            pytest.skip("no ptrace access to a child")
        engine.tick(True)
        after = engine.members(number)[0]
    assert after[1] == before[1]
    assert after[2] - before[2] > size * 0.9


def test_a_tree_has_nothing_of_the_one_whose_number_it_got() -> None:
    """PSS is read in sweeps that may be over only when the tree that they were for is no more."""
    engine = Engine(3600.0, in_target=True)  # no tick but those asked for
    engine.start()
    engine.go()
    mib, found = 1 << 20, []
    for size in (60 * mib, 0):
        code = f"import os, sys; held = b'x' * {size}; os.fork(); print(flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
            assert started.stdin is not None and started.stdout is not None
            assert [started.stdout.readline() for _ in range(2)] == [b"\n", b"\n"]
            number = engine.add_tree(started.pid)
            engine.tick()  # asks for a sweep, and is told of the last one
            assert len(engine.members(number)) == 2
            time.sleep(0.5)
            found.append((number, engine.finish(number)))
            started.stdin.close()
    engine.stop()
    (first, large), (second, small) = found
    assert first == second and large is not None and small is not None
    assert large[2] > 60 * mib and small[2] < 40 * mib, found


def test_roots_come_and_go_while_it_runs(engine: Engine) -> None:
    engine.start()
    engine.go()
    assert [name for name, _ in rows(engine) if name == "process"] == []
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    number = engine.add_tree(child.pid)
    assert engine.alive(number)
    engine.tick()
    assert {row["pid"] for name, row in rows(engine) if name == "process"} == {child.pid}
    assert [member[0] for member in engine.members(number)] == [child.pid]
    child.kill()
    child.wait()
    engine.tick()
    assert not engine.alive(number)
    engine.remove(number)
    rows(engine)
    engine.tick()
    assert [name for name, _ in rows(engine) if name == "process"] == []


def test_a_root_that_is_not_there_is_a_set_of_nothing(engine: Engine) -> None:
    engine.start()
    number = engine.add_tree(2**22 + 1)
    assert number == 0
    assert not engine.alive(number)


def test_everybody_gets_a_number_of_his_own(engine: Engine) -> None:
    engine.start()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for _ in range(30):
            numbers = list(pool.map(engine.add_tree, [os.getpid()] * 48))
            assert sorted(numbers) == list(range(48))
            list(pool.map(engine.remove, numbers))


def test_two_may_stop_it_at_once(tmp_path: Path) -> None:
    for number in range(20):
        engine = Engine(0.01, segment=os.fsencode(tmp_path / f"{number}.seg"), schema=schema_payload({}))
        engine.start()
        engine.go()
        stoppers = [threading.Thread(target=engine.stop) for _ in range(4)]
        for thread in stoppers:
            thread.start()
        for thread in stoppers:
            thread.join(10)
            assert not thread.is_alive()
        engine.stop()


def test_who_asks_is_answered_though_ticks_take_longer_than_the_interval() -> None:
    engine = Engine(0.001, in_target=True, thread_pid=os.getpid())
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait, daemon=True) for _ in range(400)]
    for thread in threads:
        thread.start()
    engine.start()
    engine.add_tree(os.getpid())
    engine.go()
    time.sleep(0.3)
    begin = time.monotonic()
    for _ in range(20):
        engine.flush()
        assert engine.alive(0)
    assert engine.statistics()["missed"] > 20
    engine.stop()
    assert time.monotonic() - begin < 10
    gate.set()
    for thread in threads:
        thread.join()


def test_several_engines_of_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    engines = [
        Engine(0.02, segment=os.fsencode(tmp_path / f"{number}.seg"), schema=schema_payload({}), in_target=True)
        for number in range(6)
    ]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:  # tables that are made at the first use are made once
        list(pool.map(Engine.start, engines))
    for engine in engines:
        engine.add_tree(os.getpid())
        engine.go()
    time.sleep(0.3)
    engines[0].stop()
    assert all(engine.statistics()["running"] for engine in engines[1:])
    for engine in engines:
        engine.stop()
    for number in range(6):
        segment = read_segment(tmp_path / f"{number}.seg")
        assert (segment.torn, segment.missing) == (0, 0)
        assert len(segment.table("process")["mono_ns"][0]) > 5


# ---- what is left behind


def test_nothing_reads_on_after_the_stop(engine: Engine) -> None:
    """The slow reader of PSS ends too."""
    before = threads_of_kernel()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        engine.start()
        engine.add_tree(os.getpid())
        engine.go()
        deadline = time.monotonic() + 10
        while threads_of_kernel() < before + 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threads_of_kernel() == before + 2
        engine.stop()
        assert threads_of_kernel(before) == before
    finally:
        child.kill()
        child.wait()


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_two_hundred_engines_leave_no_memory_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    threads = threads_of_kernel()

    def some(count: int) -> tuple[int, int, int]:
        for number in range(count):
            path = tmp_path / f"{number}.seg"
            engine = Engine(1.0, segment=os.fsencode(path), schema=b"{}", queue=True, node=True, in_target=True)
            engine.start()
            engine.add_tree(os.getpid())
            engine.go()
            engine.drain()
            engine.stop()
            path.unlink()
        return resident(), threads_of_kernel(threads), len(os.listdir("/proc/self/fd"))

    some(20)
    memory, _, descriptors = some(20)
    after, threads_after, descriptors_after = some(200)
    assert (threads_after, descriptors_after) == (threads, descriptors)
    assert after - memory < 1 << 20


def test_rows_that_nobody_takes_are_lost_and_counted(engine: Engine) -> None:
    engine.start()
    for _ in range(MOST_SETS):
        engine.add_tree(os.getpid())
    engine.go()
    deadline = time.monotonic() + 60
    while engine.statistics()["queue_lost"] == 0 and time.monotonic() < deadline:
        engine.tick()
    engine.stop()
    assert engine.statistics()["queue_lost"] > 0
    taken = 0
    while drained := engine.drain():
        taken += len(drained)
    assert 4 << 20 < taken <= 8 << 20
