"""The boundaries of tasks: what this process's counters said when each attempt began and when it ended.

The counters are read in the thread that runs an attempt, right before and right after the call. One ledger a process,
because peaks and children are the process's.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from jumper_dask import _compat
from jumper_dask.balance import SHORT_NS, Balance
from jumper_dask.children import Children, Spawner
from jumper_dask.readings import Memory, Reading, counters, open_or_none

if TYPE_CHECKING:
    from jumper_dask.coroutines import Meter
    from jumper_dask.counters import Io, Look

#: What Python says before it makes a process (docs.python.org, "Audit events table").
SPAWNS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.system", "os.posix_spawn"})
#: A look that is younger than this serves the next start too, in ns; the I/O of a thread does that used less CPU since.
FRESH_NS = 500_000
SHARED = ("shared",)
#: The attempt id of a call of an actor's method: each has a key of its own.
CALL = "call"


class Attempt(msgspec.Struct, gc=False, eq=False, omit_defaults=True, tag_field="type", tag="task"):
    """One run of one key on this worker, and its `task` record (docs/segment.md).

    The garbage collector does not walk it, so that thousands that wait to be written cost the tasks nothing.
    """

    key: str
    attempt_id: str
    worker: str
    group: str
    pid: int
    kind: str
    event: str
    mono_ns: int = 0
    begin_ns: int = 0
    wall_ns: int = 0
    span: str | None = None
    layer: str | None = None
    annotations: Any = None
    input_bytes: int | None = None
    thread: int | None = None
    base: Reading | None = None
    end: Reading | None = None
    children: dict[str, Any] | None = None
    helpers_cpu_ns: int = 0
    hwm_bytes: int | None = None
    rss_start_bytes: int | None = None
    rss_stop_bytes: int | None = None
    state: str = ""
    reason: str | None = None
    flags: tuple[str, ...] = ()


class Runner:
    """Where attempts run, one after the other: a thread.

    Attributes
    ----------
    attempt : Attempt or None
        What it runs now.
    spent_ns : int
        CPU of the attempts that ended here.
    began_ns : int
        The thread's clock when the present one began.
    ended_ns : int
        The thread's clock when the last one ended.
    beside_ns : int
        What nobody known had used when the present one began.
    """

    __slots__ = (
        "attempt",
        "began_ns",
        "beside_ns",
        "ended_ns",
        "io",
        "io_file",
        "spawner",
        "spent_ns",
        "tid",
    )

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        io_file = open_or_none("/proc/thread-self/io", os.O_RDONLY)
        self.io_file = -1 if io_file is None else io_file
        self.attempt: Attempt | None = None
        self.spawner: Spawner | None = None
        self.spent_ns = self.began_ns = self.ended_ns = self.beside_ns = 0
        self.io: Io = None

    def start(self) -> tuple[int, Reading]:
        """Return the time and what the thread has used; I/O from the last end where it did hardly anything since."""
        begin_ns, cpu_ns, _ = counters.start(-1)
        io = self.io
        if io is None or cpu_ns - self.ended_ns > FRESH_NS:
            begin_ns, cpu_ns, io = counters.start(self.io_file)
            if io is None:
                return begin_ns, Reading(cpu_ns)
        # what is read and written to learn this is no task's
        read, written, _, _, read_chars, write_chars = io
        return begin_ns, Reading(cpu_ns, read, written, read_chars, write_chars)

    def close(self) -> None:
        """Close the descriptor."""
        if self.io_file >= 0:
            os.close(self.io_file)
            self.io_file = -1


class Ledger:
    """The attempts at work in this process and the counters at their boundaries.

    Parameters
    ----------
    reset_peak : bool
        Whether the memory's high-water mark may be reset at boundaries.
    """

    def __init__(self, reset_peak: bool) -> None:
        self.memory = Memory(reset_peak)
        self.children = Children(self._spawners)
        self.balance = Balance(self.children)
        self.workers: list[Any] = []
        self.working: list[Attempt] = []
        self._runners: dict[int, Runner] = {}  # by the kernel's thread id
        self._local = threading.local()
        # a finalizer that spawns may run wherever the collector does, also below us
        self._lock = threading.RLock()
        self._spawned = False
        self._looked_ns = 0
        self._rss: int | None = None

    # in the thread that runs the attempt

    def begin(self, attempt: Attempt) -> None:
        """Note that the calling thread begins an attempt."""
        memory = self.memory
        self._lock.acquire()  # `with` takes three times as long
        try:
            try:
                runner: Runner = self._local.runner
            except AttributeError:
                runner = self._local.runner = Runner()
                self._runners[runner.tid] = runner
                self.balance.runs(runner)
            if runner.attempt is not None:  # what it ran before did not come to its end
                self.end()
            now = time.monotonic_ns()
            if now - self._looked_ns > FRESH_NS:
                seen, reaped, read, written = counters.look(memory.clear, memory.statm)
                files, io = self._look(now, None, seen, reaped), runner.io
                if io is not None:
                    runner.io = None if files or seen is None else (*io[:4], io[4] + read, io[5] + written)
            self._enter(attempt)
            balance = self.balance
            if now - balance.read_ns > SHORT_NS and len(self.working) == 1 and balance.possible:
                balance.read()
            runner.beside_ns = balance.unattributed_ns
            attempt.thread = runner.tid
            runner.attempt, runner.spawner = attempt, None
            attempt.begin_ns, base = runner.start()
            attempt.base, runner.began_ns = base, base.cpu_ns
        finally:
            self._lock.release()

    def end(self) -> Attempt | None:
        """Note that the calling thread ended its attempt; return it, or None where it had begun none."""
        runner: Runner | None = getattr(self._local, "runner", None)
        if runner is None or runner.attempt is None:
            return None
        attempt, memory = runner.attempt, self.memory
        self._lock.acquire()
        try:
            mono_ns, cpu_ns, io, seen, reaped = counters.stop(runner.io_file, memory.clear, memory.statm)
            attempt.mono_ns, runner.ended_ns = mono_ns, cpu_ns
            runner.spent_ns += cpu_ns - runner.began_ns
            files = self._look(mono_ns, runner.spawner, seen, reaped)
            runner.io = None if files or seen is None else io
            if io is None:
                attempt.end = Reading(cpu_ns)
            else:
                read, written, read_chars, write_chars, _, _ = io
                attempt.end = Reading(cpu_ns, read, written, read_chars, write_chars)
            self._leave(attempt, runner.spawner)
            if mono_ns - attempt.begin_ns > SHORT_NS and not attempt.flags and self.balance.possible:
                self._helpers(attempt, runner)
            runner.attempt = None
        finally:
            self._lock.release()
        return attempt

    def _helpers(self, attempt: Attempt, runner: Runner) -> None:
        """Give an attempt that was alone in the process what no known thread used meanwhile."""
        self.balance.read()
        if self.balance.helped_ns(runner):  # perhaps by somebody who is new
            self.balance.meet()
            runner.io = None  # files were read for that
            self.balance.read()
        if helped := self.balance.helped_ns(runner):
            attempt.helpers_cpu_ns = helped
            attempt.flags = ("helpers",)
            self.balance.credited_ns += helped

    # for attempts that no thread runs alone

    def enter(self, attempt: Attempt, meter: Meter | None = None) -> None:
        """Note that an attempt begins now that shares its thread; its meter knows its CPU."""
        with self._lock:
            attempt.begin_ns = time.monotonic_ns()
            if attempt.begin_ns - self._looked_ns > FRESH_NS:
                self._look(attempt.begin_ns)
            self._enter(attempt)
            if meter is not None:
                self.balance.meters.append(meter)

    def leave(self, attempt: Attempt, meter: Meter | None = None) -> None:
        """Note that such an attempt ended, or that one will never end."""
        with self._lock:
            if attempt not in self.working:
                return
            attempt.mono_ns = time.monotonic_ns()
            spawner = meter.spawner if meter is not None else None
            self._look(attempt.mono_ns, spawner)
            self._leave(attempt, spawner)
            if meter is not None:
                self.balance.meters.remove(meter)
                self.balance.metered_ns += meter.used_ns(lambda tid: 0)

    def _enter(self, attempt: Attempt) -> None:
        attempt.rss_start_bytes = self._rss
        working = self.working
        working.append(attempt)
        if len(working) > 1:
            for other in working:
                other.flags = SHARED

    def _leave(self, attempt: Attempt, spawner: Spawner | None) -> None:
        attempt.rss_stop_bytes = self._rss
        if attempt in self.working:
            self.working.remove(attempt)
        if spawner is None:
            return
        spawner.ended = True
        user, system, *io = spawner.cost
        attempt.children = {
            "cpu_ns": user + system,
            "cpu_user_ns": user,
            "cpu_system_ns": system,
            "read_bytes": io[0],
            "write_bytes": io[1],
            "read_chars": io[2],
            "write_chars": io[3],
            "spawned": spawner.spawned,
            "estimated": spawner.estimated,
        }
        if spawner.estimated:
            attempt.flags = (*attempt.flags, "estimated")

    def calls(self, worker: str) -> list[Attempt]:
        """Return the calls of actors' methods that a worker runs now."""
        return [attempt for attempt in list(self.working) if attempt.attempt_id == CALL and attempt.worker == worker]

    # what the process's children cost

    def without(self, action: Callable[[], Any]) -> Any:
        """Do something that may reap a child of ours; what that child cost is no task's."""
        with self._lock:
            self.children.settle(self._known())
        try:
            return action()
        finally:
            with self._lock:
                self.children.skip()

    def spawning(self, event: str) -> None:
        """Note that the calling thread is about to make a process."""
        runner = self._runner_now()
        if runner is None:
            return
        with self._lock:
            spawner = runner.spawner
            if spawner is None:
                spawner = runner.spawner = Spawner(threading.get_native_id())
            self._spawned = True
            again = event == "os.posix_spawn" and spawner.last_event == "subprocess.Popen"
            spawner.last_event = "" if again else event
            if not again:
                self.children.spawning(spawner, self._known())

    def _runner_now(self) -> Runner | Meter | None:
        """Return where the attempt runs whose code is being run, or None."""
        meter: Meter | None = getattr(self._local, "meter", None)
        if meter is not None:
            return meter
        runner: Runner | None = getattr(self._local, "runner", None)
        return runner if runner is not None and runner.attempt is not None else None

    def _places(self) -> list[Runner | Meter]:
        return [runner for runner in self._runners.values() if runner.attempt is not None] + list(self.balance.meters)

    def _known(self) -> list[Spawner]:
        return [place.spawner for place in self._places() if place.spawner is not None]

    def _spawners(self) -> list[Spawner]:
        """Return a spawner for each attempt at work."""
        self._spawned = True
        for place in self._places():
            place.spawner = place.spawner or Spawner(place.tid)
        return self._known()

    def stepping(self, meter: Meter | None) -> None:
        """Say whose coroutine the calling thread runs from now on; None: nobody's."""
        self._local.meter = meter

    def _look(
        self, mono_ns: int, sure: Spawner | None = None, seen: Look = None, reaped: tuple[int, int] | None = None
    ) -> bool:
        """Take memory and children, as far as they are not known yet; return whether files were read for it."""
        self._looked_ns = mono_ns
        if seen is None:
            peak, self._rss, read = self.memory.look()
        else:
            (peak, self._rss), read = seen, False
        if peak is not None:
            for attempt in self.working:
                if attempt.hwm_bytes is None or peak > attempt.hwm_bytes:
                    attempt.hwm_bytes = peak
        known = self._known() if self._spawned else []
        self._spawned = bool(known)
        return self.children.settle(known, sure, True, reaped) or read

    def account(self) -> dict[str, int] | None:
        """Return who used the CPU of this process so far: a row of the stream `worker`; None where nobody knows."""
        if not self.balance.possible:
            return None
        with self._lock:
            self.children.settle(self._known())
            for tid in self.balance.renew():
                self._runners.pop(tid).close()
            return self.balance.row()

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            for runner in self._runners.values():
                runner.close()
            self._runners.clear()
            self.memory.close()
            self.children.close()


_LEDGER: Ledger | None = None
_HOOKED = False
_GUARD = threading.Lock()


def join(worker: Any, reset_peak: bool) -> Ledger:
    """Return the ledger of this process, with the worker in it; called in the worker's event loop."""
    global _LEDGER, _HOOKED
    with _GUARD:
        if _LEDGER is None:
            _LEDGER = Ledger(reset_peak and not _compat.scheduler_is_here())
        if not _HOOKED:
            _HOOKED = True
            sys.addaudithook(_hook)
            os.register_at_fork(after_in_child=_forget)
        _LEDGER.workers.append(worker)
        _LEDGER.balance.loop(threading.get_native_id())
        return _LEDGER


def leave(worker: Any, attempts: Iterable[Attempt]) -> None:
    """Take the worker and its attempts out of the ledger; the last one closes it."""
    global _LEDGER
    with _GUARD:
        ledger = _LEDGER
        if ledger is None or worker not in ledger.workers:
            return
        ledger.workers.remove(worker)
        for attempt in attempts:
            ledger.leave(attempt)
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
