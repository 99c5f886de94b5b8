"""What is private or young in distributed, in one place, with what is done where it is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: States of a worker's task in which its thread is still at work (`distributed.worker_state_machine`).
AT_WORK = frozenset({"executing", "long-running", "cancelled", "resumed"})


def worker_task(worker: Any, key: Any) -> Any | None:
    """Return the worker's own `TaskState` of a key, or None once it is forgotten."""
    return worker.state.tasks.get(key)


def run_id(ts: Any) -> str:
    """Return what tells the attempts of a key apart: the scheduler's run id."""
    return str(getattr(ts, "run_id", 0))


def is_coroutine(ts: Any) -> bool | None:
    """Return whether calling a task's `run_spec` gives a coroutine; None before that was a `GraphNode` (2024.12)."""
    return getattr(ts.run_spec, "is_coro", None)


def in_process(worker: Any, ts: Any) -> bool:
    """Return whether a thread of this process runs a task: executors may be processes."""
    name = (ts.annotations or {}).get("executor", "default")
    return "ThreadPoolExecutor" in str(type(worker.executors.get(name)))


class ActiveThreads(dict[int, Any]):
    """A worker's `active_threads`, thread ident -> key, that tells of what is noted in it.

    Dask notes a thread's key in the thread itself, right before and right after it calls a task's function or an
    actor's method; `distributed.worker._run_task` and `_run_actor` have done so since they are there.

    Attributes
    ----------
    begins, ends : callable or None
        Told the key, and that the thread is through with it; called in that thread.
    """

    def __init__(self, before: dict[int, Any]) -> None:
        super().__init__(before)
        self.begins: Callable[[Any], None] | None = None
        self.ends: Callable[[], None] | None = None
        self._before = before  # what runs already goes on to use that one
        self._kept = dict(before)

    def __setitem__(self, ident: int, key: Any) -> None:
        dict.__setitem__(self, ident, key)
        if self.begins is not None:
            self.begins(key)

    def __delitem__(self, ident: int) -> None:
        if self.ends is not None:
            self.ends()
        dict.__delitem__(self, ident)

    def __reduce__(self) -> tuple[type, tuple[dict[int, Any]]]:
        return dict, (dict(self),)  # who asks a worker for it gets a plain one

    def tidy(self) -> None:
        """Drop what was noted in the one before and has ended there."""
        for ident in [ident for ident in self._kept if ident not in self._before]:
            if self.get(ident) is self._kept.pop(ident):
                self.pop(ident)


def watch_threads(worker: Any, begins: Callable[[Any], None], ends: Callable[[], None]) -> None:
    """Be told, in each thread, of what it begins and ends to run for a worker; once more replaces who is told."""
    with worker.active_threads_lock:
        if not isinstance(worker.active_threads, ActiveThreads):
            worker.active_threads = ActiveThreads(worker.active_threads)
        worker.active_threads.begins, worker.active_threads.ends = begins, ends


def tidy_threads(worker: Any) -> None:
    """Let the worker's table of running threads be right also about what began before it was watched."""
    with worker.active_threads_lock:
        if isinstance(worker.active_threads, ActiveThreads):
            worker.active_threads.tidy()


def unwatch_threads(worker: Any) -> None:
    """Be told no more. The table stays: what runs now will take itself out of it."""
    with worker.active_threads_lock:
        if isinstance(worker.active_threads, ActiveThreads):
            worker.active_threads.begins = worker.active_threads.ends = None


def method_name(arguments: tuple[Any, ...]) -> str:
    """Return ``Class.method`` of a call that was submitted to the executor of actors.

    Its arguments are those of `distributed.worker._run_actor`: function, args, kwargs, execution_state, key, ...
    """
    return str(arguments[4]) if len(arguments) > 4 else "actor"


def actor_executor(worker: Any) -> Any | None:
    """Return the executor that runs the methods of a worker's actors, or None."""
    return worker.executors.get("actor")


def memory_limit(worker: Any) -> int | None:
    """Return the worker's memory limit in bytes, or None where it has none."""
    limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
    return int(limit) if limit else None


def scheduler_is_here() -> bool:
    """Return whether a scheduler lives in this process (`processes=False`, notebooks, tests)."""
    module = sys.modules.get("distributed.scheduler")
    return bool(module is not None and list(getattr(module.Scheduler, "_instances", ())))
