"""What a trivial task costs its worker, in microseconds of CPU: all transitions, two boundaries, one record, writing.

It drives the worker side as Dask's state machine and its threads do, without a cluster, so that the number is ours
alone; one thread plays all parts, and its clock counts.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from dask._task_spec import Task
from distributed.worker_state_machine import TaskState

from benchmarks.measuring import Row, Size, spread
from jumper.monitor.segment import SegmentWriter
from jumper_dask import boundaries
from jumper_dask.readings import counters
from jumper_dask.running import Slots
from jumper_dask.shipping import Source
from jumper_dask.site import Site
from jumper_dask.worker import WorkerSide

#: in an interval of 1 s: Dask itself needs half a millisecond of its worker for each
TASKS = 1000
ROUNDS = 60
LIMIT_US = 20
#: What a plugin is told of a task from its arrival to its end, in the order of `distributed.worker_state_machine`.
BEFORE = (("released", "waiting"), ("waiting", "ready"))
AFTER = (("memory", "released"), ("released", "forgotten"))


class ThreadPoolExecutor:
    """Only the name is looked at."""


def stand_in() -> Any:
    """A worker as far as boundaries look at it; its one `TaskState` is as warm as the state machine leaves it."""
    task = TaskState("inc")
    task.run_id, task.prefix, task.annotations, task.run_spec = 1, "inc", {}, Task("inc", int)
    return SimpleNamespace(
        state=SimpleNamespace(tasks={f"inc-{index:032x}": task for index in range(TASKS)}),
        executors={"default": ThreadPoolExecutor()},
        active_threads={},
        active_threads_lock=threading.Lock(),
        address="tcp://127.0.0.1:12345",
        name="0",
        handlers={},
    )


def play(worker: Any, tell: Callable[[str, str, str], None]) -> int:
    """Let the worker have its tasks run; return the CPU in ns."""
    ident = threading.get_ident()
    begin = time.thread_time_ns()
    for key, task in worker.state.tasks.items():
        for start, finish in BEFORE:
            tell(key, start, finish)
        task.state = "executing"
        tell(key, "ready", "executing")
        with worker.active_threads_lock:
            worker.active_threads[ident] = key
        task.run_spec({})
        with worker.active_threads_lock:
            del worker.active_threads[ident]
        task.state = "memory"
        tell(key, "executing", "memory")
        for start, finish in AFTER:
            tell(key, start, finish)
    return time.thread_time_ns() - begin


def once(reset_peak: bool) -> tuple[float, float, float]:
    """Return (in the event loop and in the task's thread, the same without us, in the spool's thread), us of CPU."""
    worker = stand_in()
    bare = play(worker, lambda key, start, finish: None)
    side = WorkerSide(worker, {"interval": 1.0, "collectors": None, "reset_peak": reset_peak})
    side._ledger = boundaries.join(worker, reset_peak)
    site = side.site = Site(side, "bench", side._ledger)
    with tempfile.TemporaryDirectory() as folder, SegmentWriter(folder) as writer:
        site._writer, site.slots, site.sides = writer, Slots(writer.path), [side]
        site.shipper.sources.append(Source(writer.path, read=writer.read))
        site._write()  # the segment's head, which it has once
        gc.freeze()  # the stand-in's own objects are not ours to walk
        measured = play(worker, side.transition)
        begin = time.thread_time_ns()
        site._write()
        writing = time.thread_time_ns() - begin
        site.slots.close(remove=True)
    site._thread.shutdown()
    boundaries.leave(worker, ())
    return measured / TASKS / 1e3, bare / TASKS / 1e3, writing / TASKS / 1e3


def boundary(size: Size) -> Iterator[Row]:
    """Yield what a trivial task costs its worker; the least of all rounds counts, as others use the machine, too."""
    how = "compiled" if counters.__name__.endswith("_boundary") else "in Python"
    for reset_peak in (True, False):

        async def rounds(reset: bool = reset_peak) -> list[tuple[float, float, float]]:
            return [once(reset) for _ in range(ROUNDS if size.work == 1 else 2)]

        measured, bare, writing = zip(*asyncio.run(rounds()), strict=True)
        together = [a - b + c for a, b, c in zip(measured, bare, writing, strict=True)]
        boundaries_us, spool_us = min(measured) - min(bare), min(writing)
        least = boundaries_us + spool_us
        figure = f"Dask, a trivial task on its worker, peaks {'on' if reset_peak else 'off'}, counters {how}: least"
        parts = f"{boundaries_us:.1f} at its boundaries + {spool_us:.1f} in the spool"
        ours = f"{least:.1f} us; of {len(together)} rounds {spread(together, 1)}"
        yield Row(figure, ours, parts, "", f"at most {LIMIT_US} us", least <= LIMIT_US)
