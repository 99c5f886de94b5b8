"""What the monitor itself takes: at 1 Hz with 100 processes, and by how much it slows what it watches."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measuring import NotPossible, Row, Size, interval_of, spread
from benchmarks.watched import engine, floor, tree
from jumper.monitor.backends import native_built

WATCHED = 100
CPU_LIMIT, PSS_LIMIT, SLOWDOWN_LIMIT = 0.1, 0.5, 1.0
#: by how much the pairs of a workload are shorter, and more, than those of other benchmarks
SHORTER = 4

#: alternates a workload with and without the monitor of its own process; prints seconds, wall and CPU, of each pair
PAIRS = """
import json, sys, time
from jumper.monitor.backends.native.monitor import NativeMonitor
kind, pairs, work = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def cpu():
    total = 0
    for i in range(int(4_000_000 * work)):
        total += i * i % 7
def allocation():
    for _ in range(int(24 * work) + 1):
        kept = [bytearray(1 << 20) for _ in range(64)]
        small = [str(i) for i in range(20_000)]
workload = {"cpu": cpu, "allocation": allocation}[kind]
def once():
    wall, own = time.perf_counter(), time.thread_time()
    workload()
    return time.perf_counter() - wall, time.thread_time() - own
def watched():
    monitor = NativeMonitor(levels=["process"])
    monitor.start(0.1)
    try:
        return once()
    finally:
        monitor.stop()
workload()
found = []
for number in range(pairs):
    found.append([watched(), once()] if number % 2 else [once(), watched()][::-1])
print(json.dumps(found))
"""


def own_cost(size: Size) -> Iterator[Row]:
    """Yield the monitor's part of a core at 1 Hz, and that of the bare C loop."""
    count = WATCHED if size.cost_s > 2 else 3
    for running, what in ((0, "that sleep"), (count, "that all run")):
        cpu, pss = [], []
        with tree(count, running) as watched, floor(watched.pid) as bare, engine(watched.pid, 1.0) as ours:
            time.sleep(2.0 if size.cost_s > 2 else 0.1)  # first samples of new processes are over
            for _ in range(4):
                before, began = ours.cpu(), time.monotonic()
                time.sleep(size.cost_s / 4)
                now, elapsed = ours.cpu(), time.monotonic() - began
                cpu.append((now[0] - before[0]) / elapsed / 1e7)
                pss.append((now[1] - before[1]) / elapsed / 1e7)
            loop = [used / 1e7 for _, _, used in bare.scheduled(1.0, max(1.0, size.cost_s / 4))]
        name = f"own cost at 1 Hz, {count} processes {what}"
        for figure, values, limit in ((name, cpu, CPU_LIMIT), (f"{name}: PSS", pss, PSS_LIMIT)):
            mean = sum(values) / len(values)
            yield Row(
                figure, spread(values, 3, " %"), "one core", f"{mean / 100:.5f}", f"under {limit} %", mean < limit
            )
        mean = sum(loop) / len(loop)
        yield Row(f"the bare C loop in our place, 1 Hz, {count} processes {what}", spread(loop, 3, " %"), "one core",
                  f"{mean / 100:.5f}", "")  # fmt: skip


def slowdown(size: Size) -> Iterator[Row]:
    """Yield how much longer a workload takes at 10 Hz."""
    if not native_built():
        raise NotPossible("the native engine is not built; `jumper doctor` says why")
    for kind, name in (("cpu", "CPU-bound"), ("allocation", "allocation-bound")):
        # many short pairs: what else the machine does in a second is in both of one
        command = [sys.executable, "-c", PAIRS, kind, str(SHORTER * size.pairs), str(size.work / SHORTER)]
        pairs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for index, clock in enumerate(("wall time", "CPU time")):
            with_, without = ([pair[which][index] for pair in pairs] for which in (0, 1))
            ratios = [a / b for a, b in zip(with_, without, strict=True)]
            middle, low, high = interval_of(ratios)
            yield Row(
                f"{name} workload at 10 Hz, {clock}, with and without",
                spread([1e3 * s for s in with_], 0, " ms"),
                spread([1e3 * s for s in without], 0, " ms"),
                f"{middle:.4f} (95 %: {low:.4f} to {high:.4f})",
                f"under {SLOWDOWN_LIMIT:g} %",
                middle < 1 + SLOWDOWN_LIMIT / 100,
            )
