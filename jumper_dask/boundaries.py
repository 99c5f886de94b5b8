"""The boundaries of tasks: what this process's counters said when each attempt began and when it ended.

One ledger a process, because peaks and children are the process's; several workers may live in it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from jumper_dask import _compat
from jumper_dask.children import NOTHING, Children
from jumper_dask.readings import Memory, Reading, Threads

#: What Python says before it makes a process (docs.python.org, "Audit events table").
SPAWNS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.system", "os.posix_spawn"})
#: A look that is younger than this serves the next start too, in ns: between two tasks of a thread nothing happens.
FRESH_NS = 500_000


class Attempt:
    """One run of one key on this worker, while it is at work; ``finish`` makes its records."""

    __slots__ = (
        "announced", "children", "children_estimated", "facts", "flags", "fresh", "hwm", "ident", "key", "last_event",
        "mono_ns", "rss_start", "run_id", "seen", "shared", "spawned", "state", "tid", "unseen", "wall_ns", "worker",
    )  # fmt: skip

    def __init__(self, worker: Any, key: Any, run_id: str, facts: dict[str, Any]) -> None:
        self.worker = worker
        self.key = key
        self.run_id = run_id
        self.facts = facts
        self.mono_ns = self.wall_ns = 0
        self.ident: int | None = None
        self.seen: int | None = None
        self.tid: int | None = None
        self.announced = False
        self.state = ""
        self.rss_start: int | None = None
        self.hwm: int | None = None
        self.shared = False
        self.flags: list[str] = []
        self.spawned = self.unseen = 0
        self.fresh = False
        self.last_event = ""
        self.children = list(NOTHING)
        self.children_estimated = False

    def start_record(self, base: Reading | None = None) -> dict[str, Any]:
        """Return the `task` record of the start (docs/segment.md)."""
        record = {
            "type": "task",
            "event": "start",
            "key": str(self.key),
            "attempt_id": self.run_id,
            "mono_ns": self.mono_ns,
            "wall_ns": self.wall_ns,
            "kind": "dask",
            "pid": os.getpid(),
            **self.facts,
        }
        if self.rss_start is not None:
            record["rss_start_bytes"] = self.rss_start
        if self.tid is not None:
            record["thread"] = self.tid
        if base is not None:
            record["base"] = base
        return record


class Ledger:
    """The attempts at work in this process and the counters at their boundaries.

    Parameters
    ----------
    reset_peak : bool
        Whether the memory's high-water mark may be reset at boundaries.
    """

    def __init__(self, reset_peak: bool) -> None:
        self.threads = Threads()
        self.memory = Memory(reset_peak)
        self.children = Children(self.threads)
        self.workers: list[Any] = []
        self.running: dict[tuple[int, Any], Attempt] = {}
        self._lock = threading.Lock()
        self._looked_ns = 0
        self._rss: int | None = None

    def begin(self, worker: Any, key: Any, run_id: str, facts: dict[str, Any]) -> Attempt:
        """Note that an attempt begins now; its thread is not known yet."""
        attempt = Attempt(worker, key, run_id, facts)
        with self._lock:
            attempt.mono_ns, attempt.wall_ns = time.monotonic_ns(), time.time_ns()
            if attempt.mono_ns - self._looked_ns > FRESH_NS:
                self._look(attempt.mono_ns)
            attempt.rss_start = self._rss
            self.running[id(worker), key] = attempt
            if len(self.running) > 1:
                for other in self.running.values():
                    other.shared = True
        return attempt

    def finish(
        self, attempt: Attempt, ident: int | None, times: tuple[int, int] | None, seek: bool = False
    ) -> list[dict[str, Any]]:
        """Return the records of an attempt that ended: of its stop, and of its start if that was not written yet.

        ``times`` are its start and stop in ns of the monotonic clock, where the thread noted them. ``seek``: whether a
        thread of the pool ran it though ``ident`` is None, as Dask forgets the thread of a task that it reschedules.
        """
        with self._lock:
            mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            self._look(mono_ns, attempt)
            self.running.pop((id(attempt.worker), attempt.key), None)
            if ident is None:
                ident = attempt.ident or attempt.seen
            if ident is None and seek:
                ident = self._left_by(attempt)
            step = self.threads.step(ident) if ident is not None else None
            if step is not None:
                attempt.tid = step[0]
        records = []
        stop_ns = mono_ns
        if times is not None:
            stop_ns = min(mono_ns, times[1])
            if not attempt.announced:
                start_ns = max(attempt.mono_ns, min(times[0], stop_ns))
                attempt.wall_ns += start_ns - attempt.mono_ns
                attempt.mono_ns = start_ns
        if not attempt.announced:
            records.append(attempt.start_record())
        record: dict[str, Any] = {
            "type": "task",
            "event": "stop",
            "key": str(attempt.key),
            "attempt_id": attempt.run_id,
            "mono_ns": max(stop_ns, attempt.mono_ns),
            "wall_ns": wall_ns - (mono_ns - stop_ns),
            "state": attempt.state,
        }
        if attempt.tid is not None:
            record["thread"] = attempt.tid
        if step is not None:
            record["base"], record["end"] = step[1], step[2]
        if attempt.spawned or any(attempt.children):
            user, system, *io = attempt.children
            record["children"] = {
                "cpu_ns": user + system,
                "cpu_user_ns": user,
                "cpu_system_ns": system,
                "read_bytes": io[0],
                "write_bytes": io[1],
                "read_chars": io[2],
                "write_chars": io[3],
                "spawned": attempt.spawned,
                "estimated": attempt.children_estimated,
            }
        if attempt.hwm is not None:
            record["hwm_bytes"] = attempt.hwm
        if self._rss is not None:
            record["rss_stop_bytes"] = self._rss
        flags = attempt.flags + ["shared"] * attempt.shared + ["estimated"] * attempt.children_estimated
        if flags:
            record["flags"] = flags
        records.append(record)
        return records

    def see(self, worker: Any) -> None:
        """Note which threads run the worker's attempts: Dask forgets that of a task that it reschedules."""
        idents = _compat.running_threads(worker)
        with self._lock:
            for attempt in self.running.values():
                if attempt.worker is worker and attempt.seen is None:
                    attempt.seen = idents.get(attempt.key)

    def announce(self, workers: Iterable[Any]) -> list[dict[str, Any]]:
        """Return start records of the workers' attempts that are at work: each once, and again with its thread."""
        records = []
        with self._lock:
            for worker in workers:
                idents = _compat.running_threads(worker)
                for attempt in self.running.values():
                    if attempt.worker is not worker or attempt.ident is not None:
                        continue
                    attempt.ident = idents.get(attempt.key)
                    if attempt.ident is not None:
                        attempt.tid = self.threads.tid(attempt.ident)
                    elif attempt.announced:
                        continue
                    attempt.announced = True
                    base = self.threads.base(attempt.tid) if attempt.tid is not None else None
                    records.append(attempt.start_record(base))
        return records

    def without(self, action: Callable[[], Any]) -> Any:
        """Do something that may reap a child of ours; what that child cost is no task's."""
        with self._lock:
            self.children.settle(self.running.values())
        try:
            return action()
        finally:
            with self._lock:
                self.children.skip()

    def spawning(self, event: str) -> None:
        """Note that the calling thread is about to make a process."""
        ident = threading.get_ident()
        with self._lock:
            for worker in self.workers:
                key = _compat.runs_now(worker, ident)
                attempt = self.running.get((id(worker), key)) if key is not None else None
                if attempt is None:
                    continue
                again = event == "os.posix_spawn" and attempt.last_event == "subprocess.Popen"
                attempt.last_event = "" if again else event
                if not again:
                    attempt.tid = threading.get_native_id()
                    self.children.spawning(attempt, self.running.values())
                return

    def _left_by(self, attempt: Attempt) -> int | None:
        """Return the thread that must have run an attempt: the only idle one that worked since it was read last."""
        busy = set(_compat.running_threads(attempt.worker).values())
        idle = (ident for ident in _compat.pool_threads(attempt.worker) if ident not in busy)
        worked = [ident for ident in idle if self.threads.worked(ident)]
        return worked[0] if len(worked) == 1 else None

    def _look(self, mono_ns: int, ending: Attempt | None = None) -> None:
        self._looked_ns = mono_ns
        self._rss = self.memory.rss()
        peak = self.memory.peak()
        running = self.running.values()
        if peak is not None:
            for attempt in running:
                if attempt.hwm is None or peak > attempt.hwm:
                    attempt.hwm = peak
        self.children.settle(running, sure=ending, boundary=True)

    def close(self) -> None:
        """Close the descriptors."""
        self.threads.close()
        self.memory.close()
        self.children.close()


_LEDGER: Ledger | None = None
_HOOKED = False
_GUARD = threading.Lock()


def join(worker: Any, reset_peak: bool) -> Ledger:
    """Return the ledger of this process, with the worker in it."""
    global _LEDGER, _HOOKED
    with _GUARD:
        if _LEDGER is None:
            _LEDGER = Ledger(reset_peak and not _compat.scheduler_is_here())
        if not _HOOKED:
            _HOOKED = True
            sys.addaudithook(_hook)
            os.register_at_fork(after_in_child=_forget)
        _LEDGER.workers.append(worker)
        return _LEDGER


def leave(worker: Any) -> None:
    """Take the worker out of the ledger; the last one closes it."""
    global _LEDGER
    with _GUARD:
        ledger = _LEDGER
        if ledger is None or worker not in ledger.workers:
            return
        ledger.workers.remove(worker)
        for name in [name for name in ledger.running if name[0] == id(worker)]:
            del ledger.running[name]
        if not ledger.workers:
            _LEDGER = None
            ledger.close()


def _hook(event: str, args: Any) -> None:
    if event in SPAWNS and (ledger := _LEDGER) is not None:
        try:
            ledger.spawning(event)
        except Exception:  # an audit hook that raises would forbid the task its process
            return


def _forget() -> None:
    global _LEDGER, _GUARD
    _LEDGER = None
    _GUARD = threading.Lock()
