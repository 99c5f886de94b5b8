"""Who is taken for a stranger: processes with a session of their own, another parent, or that were there before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.streams import rows_of, schema_payload, stream_names

NAMES = {number: stream_names(number) for number in range(1, 7)}
BURN = "import time\nwhile time.process_time() < {}: pass\n"


@contextmanager
def watching(pid: int, interval_s: float = 0.05) -> Iterator[Engine]:
    engine = Engine(interval_s, queue=True, schema=schema_payload({}))
    engine.start()
    try:
        engine.add_tree(pid)
        engine.go()
        yield engine
    finally:
        engine.stop()


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have a Python that waits for a line before it does what it shall, and for another before it ends."""
    whole = "import os, subprocess, sys, time\ninput()\n" + text + "\nprint('done', flush=True)\ninput()\n"
    started = subprocess.Popen([sys.executable, "-c", whole], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout):
            assert stream is not None
            stream.close()


def go(started: subprocess.Popen[bytes]) -> None:
    assert started.stdin is not None and started.stdout is not None
    started.stdin.write(b"\n")
    started.stdin.flush()
    assert started.stdout.readline() == b"done\n"


def last(engine: Engine) -> dict[str, Any]:
    engine.tick(False)
    rows = [row for stream, row in rows_of(engine.drain(0.0), NAMES) if stream == "process"]
    return rows[-1]


def spawn(code: str) -> str:
    """Return the text that starts a Python of the program's."""
    return f"subprocess.Popen([sys.executable, '-c', {code!r}])"


@pytest.mark.parametrize("waits", [False, True])
def test_a_child_in_a_session_of_its_own_is_found_with_what_it_starts(waits: bool) -> None:
    inner = BURN.format(0.3) + "time.sleep(60)"
    outer = f"import subprocess, sys, time\np = {spawn(inner)}\nprint(p.pid, flush=True)\n"
    outer += "time.sleep(60)" if waits else ""
    text = f"p = subprocess.Popen([sys.executable, '-c', {outer!r}], start_new_session=True, stdout=subprocess.PIPE)\n"
    text += "pids = [int(p.stdout.readline()), p.pid]\n" + ("" if waits else "time.sleep(0.3)\np.wait()\n")
    text += "print(*pids, flush=True)"
    with program(text) as started, watching(started.pid) as engine:
        assert started.stdin is not None and started.stdout is not None
        started.stdin.write(b"\n")
        started.stdin.flush()
        inside, middle = map(int, started.stdout.readline().split())
        try:
            before = last(engine)["cpu_ns"]
            deadline = time.monotonic() + 20
            while _cpu(inside) < 0.28 and time.monotonic() < deadline:
                time.sleep(0.02)
            row = last(engine)
            assert row["processes"] == (3 if waits else 2)
            assert row["cpu_ns"] >= max(before, 280_000_000)
        finally:
            for pid in (inside, middle) if waits else (inside,):
                os.kill(pid, 9)


def test_a_sleeper_whose_parent_ends_is_counted_once() -> None:
    """It does not run when it gets another parent, and is collected by that one."""
    sleeper = BURN.format(0.4) + "print('asleep', flush=True)\ninput()"
    middle = (
        f"import os, subprocess, sys\np = subprocess.Popen([sys.executable, '-c', {sleeper!r}], stdin=0, "
        "stdout=subprocess.PIPE)\np.stdout.readline()\nprint(p.pid, flush=True)\nos.read(int(sys.argv[1]), 1)"
    )
    text = f"""
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
read, write = os.pipe()
inside, out = os.pipe()
p = subprocess.Popen([sys.executable, '-c', {middle!r}, str(inside)], stdin=read, stdout=subprocess.PIPE,
                     pass_fds=[inside])
sleeper = int(p.stdout.readline())
print('asleep', flush=True)
input()
os.write(out, b'1')
p.wait()
print('parted', flush=True)
input()
os.write(write, b'\\n')
os.waitpid(sleeper, 0)
"""
    with program(text) as started, watching(started.pid, 3600.0) as engine:
        assert started.stdin is not None and started.stdout is not None
        for answer in (b"asleep\n", b"parted\n"):
            started.stdin.write(b"\n")
            started.stdin.flush()
            assert started.stdout.readline() == answer
            time.sleep(0.2)  # the sleeper has come to its rest
            last(engine)  # the second one sees the parent of the sleeper gone
        parted = last(engine)["cpu_ns"]
        last(engine)
        go(started)  # no tick sees how the sleeper ends
        usage = _cpu(started.pid, children=True)
        total = last(engine)["cpu_ns"]
        assert parted >= 400_000_000
        assert total / 1e9 == pytest.approx(usage, abs=0.06)


@pytest.mark.slow
def test_an_old_stranger_is_found_when_its_parent_is_watched() -> None:
    child = BURN.format(0.2) + "time.sleep(60)"
    with program(f"p = {spawn(child)}\nprint(p.pid, flush=True)") as started:
        assert started.stdin is not None and started.stdout is not None
        started.stdin.write(b"\n")
        started.stdin.flush()
        pid = int(started.stdout.readline())
        with program("") as other, watching(other.pid, 0.5) as engine:
            time.sleep(22)  # old enough, and scanned since
            engine.add_tree(started.pid)
            engine.tick(True)
            engine.tick(True)
            rows = [row for stream, row in rows_of(engine.drain(0.0), NAMES) if row.get("pid") == started.pid]
            assert rows[-1]["processes"] == 2
        os.kill(pid, 9)


def _cpu(pid: int, children: bool = False) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")
