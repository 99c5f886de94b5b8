"""What is private or young in distributed, in one place, with what is done where it is missing."""

from __future__ import annotations

import sys
import threading
from typing import Any

#: States of a worker's task in which its thread is still at work (`distributed.worker_state_machine`).
AT_WORK = frozenset({"executing", "long-running", "cancelled", "resumed"})


def worker_task(worker: Any, key: Any) -> Any | None:
    """Return the worker's own `TaskState` of a key, or None once it is forgotten."""
    return worker.state.tasks.get(key)


def run_id(ts: Any) -> str:
    """Return what tells the attempts of a key apart: the scheduler's run id."""
    return str(getattr(ts, "run_id", 0))


def in_thread(worker: Any, ts: Any) -> bool:
    """Return whether a thread of this process runs a task.

    No for coroutines (they share the event loop's thread) and for executors
    that are processes, whose idents are not of this process.
    """
    if getattr(getattr(ts, "run_spec", None), "is_coro", False):
        return False
    name = (getattr(ts, "annotations", None) or {}).get("executor", "default")
    return "ThreadPoolExecutor" in type(worker.executors.get(name)).__name__


def ran_on(worker: Any, ts: Any) -> int | None:
    """Return the Python ident of the thread that ran a finished task, or None where it is not known."""
    ident: int | None = worker.state.threads.get(ts.key) if in_thread(worker, ts) else None
    return ident


def runs_now(worker: Any, ident: int) -> Any | None:
    """Return the key that a thread of this process is running for a worker, or None."""
    return worker.active_threads.get(ident)


def running_threads(worker: Any) -> dict[Any, int]:
    """Return key -> ident of the threads at work."""
    with worker.active_threads_lock:
        return {key: ident for ident, key in worker.active_threads.items()}


def pool_threads(worker: Any) -> list[int]:
    """Return the idents of the threads that run tasks without an executor of their own."""
    threads = getattr(worker.executors.get("default"), "_threads", None) or ()
    return [thread.ident for thread in list(threads) if thread.ident is not None]


def compute_times(ts: Any) -> tuple[float, float] | None:
    """Return (start, stop) of the last run by the scheduler's clock, in seconds, or None."""
    for entry in reversed(getattr(ts, "startstops", None) or ()):
        if entry["action"] == "compute":
            return float(entry["start"]), float(entry["stop"])
    return None


def scheduler_delay(worker: Any) -> float:
    """Return scheduler clock - worker clock in seconds, as `startstops` were shifted by it."""
    return float(getattr(worker, "scheduler_delay", 0.0) or 0.0)


def memory_limit(worker: Any) -> int | None:
    """Return the worker's memory limit in bytes, or None where it has none."""
    limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
    return int(limit) if limit else None


def scheduler_is_here() -> bool:
    """Return whether a scheduler lives in this process (`processes=False`, notebooks, tests)."""
    module = sys.modules.get("distributed.scheduler")
    return bool(module is not None and list(getattr(module.Scheduler, "_instances", ())))


def native_id(ident: int) -> int | None:
    """Return the kernel's thread id of a living Python thread, or None."""
    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.native_id
    return None
