"""The worker's side: what Dask tells of each task, in its event loop and its threads, becomes an attempt's record."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from jumper.utilities import node_name
from jumper_dask import _compat, boundaries
from jumper_dask.coroutines import Meter, leave_out
from jumper_dask.plugin import CollectorPlugin
from jumper_dask.site import Site


class WorkerSide:
    """What the plugin does in one worker.

    Parameters
    ----------
    worker : distributed.Worker
    config : dict
        ``interval``, ``collectors``, ``reset_peak``, as `JumperPlugin` made it.
    """

    def __init__(self, worker: Any, config: dict[str, Any]) -> None:
        self.worker = worker
        self.config = config
        self.site: Site | None = None
        self._attempts: dict[Any, boundaries.Attempt] = {}
        self._ledger: boundaries.Ledger | None = None
        self._slots: dict[Any, int | None] = {}
        self._pid = os.getpid()
        self._address = worker.address
        self._token = secrets.token_hex(4)
        self._calls = itertools.count(1)
        self._by_table: set[Any] = set()  # keys whose boundaries are those of the worker's table of threads
        self._troubled = False

    async def start(self) -> None:
        """Make sure of the scheduler's side, then begin to measure.

        Raises
        ------
        RuntimeError
            Where the scheduler has not the package.
        """
        scheduler = self.worker.scheduler
        plugin = CollectorPlugin(self.config["interval"])
        await scheduler.register_scheduler_plugin(plugin=pickle.dumps(plugin), name=plugin.name, idempotent=True)
        greeting = await scheduler.jumper_hello(
            worker=self.worker.address,
            name=str(self.worker.name),
            node=node_name(),
            pid=os.getpid(),
            interval=float(self.config["interval"]),
        )
        if not isinstance(greeting, dict) or "run" not in greeting:
            raise RuntimeError("the scheduler has no collector; install jumper-workflows there too")
        self._ledger = boundaries.join(self.worker, bool(self.config["reset_peak"]))
        self.site = await Site.enter(self, greeting["run"], self._ledger)
        self.site.shipper.period_s = float(greeting["period_s"])
        self.worker.handlers["jumper_flush"] = self._flush
        actors = _compat.actor_executor(self.worker)
        if actors is not None:
            actors.submit = partial(self._call_actor, type(actors).submit, actors)

    def transition(self, key: Any, start: str, finish: str) -> None:
        """Note what will be run, and how it ended; in the event loop."""
        attempt = self._attempts.get(key)
        if attempt is None:
            if finish == "executing":
                self._expect(key)
            return
        ts = _compat.worker_task(self.worker, key)
        if ts is not None:
            if ts.state in _compat.AT_WORK:
                return
            if isinstance(ts.run_spec, STAND_INS):
                ts.run_spec = ts.run_spec.spec
        del self._attempts[key]
        if self.site is not None:
            self.site.slots.end(self._slots.pop(key, None))
        if self._by_table:
            self._by_table.discard(key)
        if finish == "memory":
            attempt.state = "done" if start in ("executing", "long-running") else "cancelled"
        else:
            attempt.state, attempt.reason = _outcome(ts, finish)
        self._note(attempt)

    def _expect(self, key: Any) -> None:
        ts = _compat.worker_task(self.worker, key)
        ledger = self._ledger
        if ts is None or ledger is None or self.site is None:
            return
        attempt = self._attempts[key] = boundaries.Attempt(
            str(key), _compat.run_id(ts), self._address, ts.prefix, self._pid, "dask", "stop", span=ts.span_id
        )
        if ts.dependencies:
            attempt.input_bytes = sum([int(d.nbytes or 0) for d in ts.dependencies])
        if ts.annotations:
            attempt.annotations = ts.annotations
        self._slots[key] = self.site.slots.begin(attempt.key, attempt.attempt_id, attempt.group)
        if ts.annotations and not _compat.in_process(self.worker, ts):
            attempt.begin_ns = time.monotonic_ns()
            attempt.flags = ("elsewhere",)
        elif (coroutine := _compat.is_coroutine(ts)) is None:
            if not self._by_table:
                _compat.watch_threads(self.worker, self._begins, self.end)
            self._by_table.add(key)
        elif coroutine:
            ts.run_spec = Meter(ts.run_spec, attempt, ledger)
        else:
            ts.run_spec = Call((ts.run_spec, attempt, ledger, self.trouble))

    def _begins(self, key: Any) -> None:
        """Note that the calling thread runs a key from now on."""
        if key in self._by_table and (attempt := self._attempts.get(key)) is not None:
            self.begin(attempt)

    def begin(self, attempt: boundaries.Attempt) -> None:
        """Note that the calling thread begins an attempt."""
        try:
            if self._ledger is not None:
                self._ledger.begin(attempt)
        except Exception as error:  # it would be the task's
            self.trouble(error)

    def end(self, state: str = "done", reason: str | None = None) -> None:
        """Note that the calling thread is through with what it ran, if that has not been noted."""
        try:
            ended = self._ledger.end() if self._ledger is not None else None
            if ended is not None and ended.attempt_id == boundaries.CALL:
                ended.state, ended.reason = state, reason
                self._note(ended)
        except Exception as error:
            self.trouble(error)

    def trouble(self, error: Exception) -> None:
        """Say once why boundaries are missing."""
        if self.site is not None and not self._troubled:
            self._troubled = True
            self.site.event("boundaries-trouble", f"{type(error).__name__}: {error}")

    def _note(self, attempt: boundaries.Attempt) -> None:
        if self.site is not None:
            if not attempt.mono_ns and self._ledger is not None:
                self._ledger.leave(attempt)
                attempt.mono_ns = attempt.mono_ns or time.monotonic_ns()
            if not attempt.begin_ns:  # it failed before it ran
                attempt.begin_ns = attempt.mono_ns
            self.site.note(attempt)

    def _call_actor(self, submit: Any, executor: Any, function: Any, /, *arguments: Any, **keywords: Any) -> Any:
        """Submit a call of an actor's method: Dask tells no more of it."""
        name, number = _compat.method_name(arguments), f"{self._token}{next(self._calls):x}"
        attempt = boundaries.Attempt(
            f"{name}-{number}", boundaries.CALL, self._address, name, self._pid, "dask", "stop"
        )

        def call() -> Any:
            self.begin(attempt)
            try:
                result = function(*arguments, **keywords)
            except BaseException as error:
                leave_out(error)
                self.end("failed", f"{type(error).__name__}: {error}"[:300])
                raise
            self.end()
            return result

        return submit(executor, call)

    def running(self) -> list[boundaries.Attempt]:
        """Return the attempts that are at work."""
        _compat.tidy_threads(self.worker)
        calls = self._ledger.calls(self._address) if self._ledger is not None else []
        return [attempt for attempt in [*list(self._attempts.values()), *calls] if attempt.begin_ns]

    async def _flush(self, budget_s: float = 10.0) -> dict[str, Any]:
        """Write and ship all that there is: the handler that `collect` calls."""
        if self.site is None:
            return {"shipped": False, "error": "closing"}
        return {"shipped": await self.site.flush(budget_s), "error": self.site.shipper.refused}

    async def close(self) -> None:
        """Ship what is left within the budget and take everything back."""
        self.worker.handlers.pop("jumper_flush", None)
        site, self.site = self.site, None
        if site is not None:
            shipped = await site.leave(self)
            said = self.worker.scheduler.jumper_goodbye(worker=self.worker.address, shipped=shipped)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(said, 0.5)
        _compat.unwatch_threads(self.worker)
        if (actors := _compat.actor_executor(self.worker)) is not None:
            vars(actors).pop("submit", None)
        boundaries.leave(self.worker, self._attempts.values())


class Call:
    """A task's function with the boundaries right around it; it stands in for `TaskState.run_spec`.

    Parameters
    ----------
    parts : tuple
        What Dask would call, the attempt, the ledger that is told of its begin and end, and who is told what that
        raises: it would be the task's.
    """

    __slots__ = ("parts",)
    is_coro = False

    def __init__(self, parts: tuple[Any, boundaries.Attempt, boundaries.Ledger, Callable[[Exception], None]]) -> None:
        self.parts = parts  # one attribute: with `__getattr__`, each look at one is slow

    @property
    def spec(self) -> Any:
        """What Dask would call."""
        return self.parts[0]

    def __call__(self, data: Any = ()) -> Any:
        """Call what Dask would."""
        spec, attempt, ledger, trouble = self.parts
        try:
            ledger.begin(attempt)
        except Exception as error:
            trouble(error)
        try:
            return spec(data)
        except BaseException as error:
            leave_out(error)
            raise
        finally:
            try:
                ledger.end()
            except Exception as error:
                trouble(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)

    def __repr__(self) -> str:
        return repr(self.spec)


#: What stands in for a task's function while it is at work.
STAND_INS = (Call, Meter)


def _outcome(ts: Any, finish: str) -> tuple[str, str | None]:
    """Return (state, reason) of an attempt that ended without a result."""
    if finish == "error":
        return "failed", str(getattr(ts, "exception_text", "") or "")[:300] or None
    return "cancelled", "rescheduled by itself" if finish == "rescheduled" else None
