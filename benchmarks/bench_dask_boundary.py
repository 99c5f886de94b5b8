"""What a trivial task costs the worker, in microseconds of CPU: two boundaries, two records, and writing them.

It drives the worker side as Dask's state machine does, without a cluster, so that the number is ours alone.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from distributed.worker_state_machine import TaskState

from benchmarks.measuring import Row, Size, spread
from jumper.monitor.segment import SegmentWriter
from jumper_dask import boundaries
from jumper_dask.live import Totals
from jumper_dask.worker import WorkerSide, _encode

TASKS = 300
ROUNDS = 60
LIMIT_US = 20


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
    side.site = SimpleNamespace(note=lambda record: lines.append(_encode(record)), totals=Totals())  # type: ignore[assignment]
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


def boundary(size: Size) -> Iterator[Row]:
    """Yield what the two boundaries of a task cost its worker."""
    for reset_peak in (True, False):

        async def rounds(reset: bool = reset_peak) -> list[tuple[float, float]]:
            return [once(reset) for _ in range(ROUNDS if size.work == 1 else 2)]

        found = asyncio.run(rounds())
        together = [bounds + writing for bounds, writing in found]
        name = f"Dask, a trivial task, peaks {'on' if reset_peak else 'off'}: boundaries, records, writing them"
        parts = f"{statistics.median(b for b, _ in found):.1f} + {statistics.median(w for _, w in found):.1f} us"
        middle = statistics.median(together)
        yield Row(name, spread(together, 1, " us"), parts, "", f"under {LIMIT_US} us", middle < LIMIT_US)
