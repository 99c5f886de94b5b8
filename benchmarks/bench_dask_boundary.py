"""What a trivial task costs the worker, in microseconds of CPU: two boundaries, two records, and writing them.

Run as ``python benchmarks/bench_dask_boundary.py``; it drives the worker side as Dask's state machine does,
without a cluster, so that the number is ours alone. The budget is 20 us a task.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
import time
from types import SimpleNamespace
from typing import Any

from distributed.worker_state_machine import TaskState

from jumper.monitor.segment import SegmentWriter
from jumper_dask import boundaries
from jumper_dask.worker import WorkerSide, _encode

TASKS = 300
ROUNDS = 60


class ThreadPoolExecutor:
    """Only the name is looked at."""


def stand_in() -> Any:
    """A worker as far as boundaries look at it."""
    ident = threading.get_ident()
    tasks: dict[str, Any] = {}
    for index in range(TASKS):
        task = tasks[f"inc-{index:032x}"] = TaskState(f"inc-{index:032x}")
        task.run_id, task.prefix, task.annotations = index, "inc", {}
    return SimpleNamespace(
        state=SimpleNamespace(tasks=tasks, threads=dict.fromkeys(tasks, ident)),
        executors={"default": ThreadPoolExecutor()},
        active_threads={},
        active_threads_lock=threading.Lock(),
        scheduler_delay=0.0,
        address="tcp://127.0.0.1:12345",
        handlers={},
    )


def once(reset_peak: bool) -> tuple[float, float]:
    """Return (boundaries and records, writing) in us of CPU a task."""
    worker = stand_in()
    side = WorkerSide(worker, {"interval": 1.0, "collectors": None, "reset_peak": reset_peak})
    side._facts = {"worker": worker.address}
    side._ledger = boundaries.join(worker, reset_peak)
    lines: list[bytes] = []
    side.site = SimpleNamespace(note=lambda record: lines.append(_encode(record)))  # type: ignore[assignment]
    gc.freeze()  # the stand-in's own objects are not ours to walk
    begin = time.thread_time_ns()
    for key, task in worker.state.tasks.items():
        task.state = "executing"
        side.transition(key, "ready", "executing")
        task.startstops.append({"action": "compute", "start": time.time(), "stop": time.time()})
        task.state = "memory"
        side.transition(key, "executing", "memory")
    middle = time.thread_time_ns()
    with tempfile.TemporaryDirectory() as folder, SegmentWriter(folder) as writer:
        for position, line in enumerate(lines):
            writer.line(line)
            if position % 200 == 199:
                writer.flush()
    end = time.thread_time_ns()
    boundaries.leave(worker)
    return (middle - begin) / TASKS / 1e3, (end - middle) / TASKS / 1e3


async def main() -> None:
    print(f"{'peaks':>8} {'boundaries':>12} {'writing':>10} {'together':>10}   us of CPU a task, least of {ROUNDS}")
    for reset_peak in (True, False):
        rounds = [once(reset_peak) for _ in range(ROUNDS)]
        bounds, writing = min(r[0] for r in rounds), min(r[1] for r in rounds)
        print(f"{'on' if reset_peak else 'off':>8} {bounds:12.1f} {writing:10.1f} {bounds + writing:10.1f}")


if __name__ == "__main__":
    asyncio.run(main())
