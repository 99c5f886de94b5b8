"""Being on time at 10 Hz beside two busy processes, while the monitored process holds the GIL; and a bare C loop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.measuring import NotPossible, Row, Size
from benchmarks.watched import floor, tree
from jumper.monitor.backends import native_built

INTERVAL_S, BUSY, WATCHED = 0.1, 2, 100

HOLDER = """
import ctypes, json, os, sys, threading, time
from jumper.monitor.backends.native import Engine
from jumper.monitor.backends.native.streams import rows_of, stream_names, STREAMS
tree, interval, seconds, hold = int(sys.argv[1]), *map(float, sys.argv[2:])
engine = Engine(interval, in_target=True, queue=True)
engine.start()
engine.add_tree(os.getpid())
engine.add_tree(tree)
engine.go()
began = time.monotonic()
ctypes.PyDLL(None).usleep(int(hold * 1e6))
held = time.monotonic() - began
time.sleep(max(0.0, seconds - held))
drained = b""
while more := engine.drain():
    drained += more
engine.stop()
names = {number: stream_names(number) for number in STREAMS.values()}
rows = [row for stream, row in rows_of(drained, names) if stream == "monitor"]
print(json.dumps({"held": held, "ticks": [row["mono_ns"] for row in rows], "late": [row["late_ns"] for row in rows]}))
"""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many processes that never rest."""
    processes = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def on_time(size: Size) -> Iterator[Row]:
    """Yield the longest gap and the lateness of both."""
    if not native_built():
        raise NotPossible("the native engine is not built; `jumper doctor` says why")
    with tree(WATCHED if size.schedule_s > 1 else 3) as watched, floor(watched.pid) as bare, busy(BUSY):
        settings = [str(watched.pid), str(INTERVAL_S), str(size.schedule_s), str(size.hold_s)]
        process = subprocess.Popen([sys.executable, "-c", HOLDER, *settings], stdout=subprocess.PIPE)
        ticks = bare.scheduled(INTERVAL_S, size.schedule_s)  # at the same time
        found = json.loads(process.communicate()[0])
    gaps = [b - a for a, b in zip(found["ticks"], found["ticks"][1:], strict=False)]
    name = f"10 Hz for {size.schedule_s:g} s, {BUSY} busy processes, GIL held for {found['held']:.1f} s"
    ours, theirs = max(gaps) / 1e6, max(gap for _, gap, _ in ticks[1:]) / 1e6
    limit = 2 * INTERVAL_S * 1e3
    yield Row(
        f"{name}: longest gap", f"{ours:.1f} ms", f"{theirs:.1f} ms", f"{ours / theirs:.2f}",
        f"at most {limit:g} ms", ours <= limit,
    )  # fmt: skip
    ours, theirs = at(found["late"][1:], 0.99) / 1e6, at([late for late, _, _ in ticks], 0.99) / 1e6
    yield Row(
        f"{name}: 99 % late by less than", f"{ours:.2f} ms", f"{theirs:.2f} ms", f"{ours / theirs:.2f}",
        "no worse than the loop", ours <= theirs * 1.1,
    )  # fmt: skip


def at(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]
