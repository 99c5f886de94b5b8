"""What is left after SIGKILL, beside a held GIL, and beside the python engine on the same load."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

import itertools

from jumper.monitor.sampling import sampling
from jumper.store.segments import Segment, read_segment

INTERVAL_S = 0.01
#: writes how many ticks are taken into a file that is mapped: what stands there survives the kill
VICTIM = """
import mmap, os, struct, sys, time
from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.streams import schema_payload
engine = Engine(float(sys.argv[3]), segment=os.fsencode(sys.argv[1]), schema=schema_payload({}), in_target=True,
                thread_pid=os.getpid(), node=True)
engine.start()
engine.add_tree(os.getpid())
with open(sys.argv[2], "r+b") as file:
    taken = mmap.mmap(file.fileno(), 8)
engine.go()
print(flush=True)
while True:
    engine.text(b'{"type":"event","kind":"hello"}\\n')
    taken[:] = struct.pack("<q", engine.statistics()["ticks"])
"""


def column(segment: Segment, stream: str, name: str) -> list[int]:
    return [int(value) for value in segment.table(stream)[name][0]]


def kill_once(folder: Path, moment_s: float) -> None:
    path, known = folder / "a.seg", folder / "ticks"
    known.write_bytes(bytes(8))
    arguments = [sys.executable, "-c", VICTIM, str(path), str(known), str(INTERVAL_S)]
    victim = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    time.sleep(moment_s)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    (seen,) = struct.unpack("<q", known.read_bytes())
    segment = read_segment(path)
    assert segment.missing == 0
    assert segment.torn <= 1  # the block that was being written
    assert not segment.complete
    ticks = column(segment, "monitor", "ticks")
    assert ticks == list(range(1, len(ticks) + 1))
    assert len(ticks) >= seen
    moments = column(segment, "monitor", "mono_ns")
    for stream in ("process", "system"):
        # a tick's blocks follow each other; the kill may come between two of them
        assert column(segment, stream, "mono_ns")[: len(moments)] == moments
    path.unlink()


@pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_loses_nothing_that_was_taken(tmp_path: Path, times: int) -> None:
    moments = random.Random(times)
    for _ in range(times):
        kill_once(tmp_path, moments.uniform(0, 0.3))


HOLDER = """
import ctypes, os, sys, time
from jumper.monitor.sampling import sampling
one = sampling("native", os.getpid(), interval=0.1, levels=["process", "system"], spool=sys.argv[1])
path = one.start()["segment_path"]
time.sleep(0.3)
begin = time.monotonic_ns()
ctypes.PyDLL(None).usleep(3_000_000)
print(path, begin, time.monotonic_ns(), flush=True)
time.sleep(0.3)
one.stop()
"""


def test_a_held_gil_makes_no_gap(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HOLDER, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    path, begin, end = done.stdout.split()
    moments = column(read_segment(path), "process", "mono_ns")
    assert max(b - a for a, b in itertools.pairwise(moments)) <= 200_000_000
    assert len([moment for moment in moments if int(begin) < moment < int(end)]) >= 28


LOAD = """
import mmap, os, subprocess, sys, threading, time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def child(seconds, memory):
    pid = os.fork()
    if pid == 0:
        held = bytearray(memory)
        held[::4096] = b"x" * len(held[::4096])
        burn(seconds)
        with open("/dev/zero", "rb") as zero, open("/dev/null", "wb") as null:
            for _ in range(50):
                null.write(zero.read(1000))
        if seconds < 0.2:
            os._exit(0)
        print("held", flush=True)
        time.sleep(600)
    return pid

sys.stdin.readline()
shared = mmap.mmap(-1, 32 << 20)
shared[::4096] = b"x" * len(shared[::4096])
threads = [threading.Thread(target=burn, args=(0.2,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for _ in range(4):
    os.waitpid(child(0.05, 1 << 20), 0)
subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"])
child(0.25, 24 << 20)
time.sleep(600)
"""
#: what both engines read from the same files at about the same time
COUNTERS_NS = ("cpu_ns", "cpu_user_ns", "cpu_system_ns")
CHARACTERS = ("read_chars", "write_chars", "reads", "writes", "read_bytes", "write_bytes")
GAUGES = ("rss_bytes", "memory_bytes", "hwm_bytes", "hwm_max_bytes")
MIB = 1 << 20


def test_both_engines_say_the_same_of_the_same_load(tmp_path: Path) -> None:
    load = subprocess.Popen(
        [sys.executable, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert load.stdin is not None and load.stdout is not None
    rows: dict[str, dict[str, Any]] = {}
    engines = {
        name: sampling(name, load.pid, interval=0.05, levels=["process"], spool=tmp_path)
        for name in ("python", "native")
    }
    try:
        for one in engines.values():
            one.start()
        load.stdin.write(b"\n")
        load.stdin.flush()
        assert load.stdout.readline() == b"held\n"
        time.sleep(3.0)  # the load stands still; the slow reading of PSS comes to an end
        for one in engines.values():
            one.flush()
    finally:
        for one in engines.values():
            one.stop()
        load.stdin.close()
        os.killpg(load.pid, signal.SIGKILL)
        load.wait()
        load.stdout.close()
    for name, one in engines.items():
        table = read_segment(one.ready["segment_path"]).table("process")
        # the last row with the processes there: stopping takes one more
        rows[name] = {key: values[-1].item() if valid[-1] else None for key, (values, valid) in table.items()}
    python, native = rows["python"], rows["native"]
    assert set(python) == set(native)
    assert (python["processes"], python["threads"]) == (native["processes"], native["threads"]) == (2, 2)
    for key in COUNTERS_NS:
        assert abs(python[key] - native[key]) <= 20_000_000, (key, python[key], native[key])
    assert native["cpu_ns"] > 900_000_000
    for key in CHARACTERS:
        assert python[key] == native[key], key
    for key in GAUGES:
        assert abs(python[key] - native[key]) <= MIB, (key, python[key], native[key])
    assert python["pss_missing"] == native["pss_missing"] == 0
    assert abs(python["pss_bytes"] - native["pss_bytes"]) <= MIB
