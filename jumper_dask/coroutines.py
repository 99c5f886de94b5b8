"""What a coroutine used of the event loop's thread: its CPU between two awaits, and that of the tasks it made.

A coroutine gives the loop back at each `await`, so what the thread uses between two of them is its own, exactly.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from jumper_dask.children import Spawner
from jumper_dask.readings import Reading

if TYPE_CHECKING:
    from jumper_dask.boundaries import Attempt, Ledger


class Meter:
    """The account of one attempt whose function is a coroutine; it stands in for `TaskState.run_spec`.

    Parameters
    ----------
    spec : object
        What Dask would call; calling it gives a coroutine.
    attempt : Attempt
    ledger : Ledger
    """

    def __init__(self, spec: Any, attempt: Attempt, ledger: Ledger) -> None:
        self.spec = spec
        self.attempt = attempt
        self.spawner: Spawner | None = None
        self.tid = threading.get_native_id()
        self._ledger = ledger
        self._open = False
        #: CPU of the steps that ended, and the thread's clock when the present one began
        self._state: tuple[int, int | None] = (0, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)

    def __repr__(self) -> str:
        return repr(self.spec)

    async def __call__(self, data: Any) -> Any:
        """Await what Dask would, on the account of the attempt."""
        ledger, attempt = self._ledger, self.attempt
        attempt.thread = self.tid
        ledger.enter(attempt, self)
        self._open = True
        try:
            return await Steps(self.spec(data), self)
        except BaseException as error:
            leave_out(error)
            raise
        finally:
            self._open = False
            attempt.base, attempt.end = Reading(0), Reading(self._state[0])
            ledger.leave(attempt, self)

    def used_ns(self, clock: Any) -> int:
        """Return the CPU so far; ``clock`` gives what a thread had used when it was last looked at, in ns."""
        used, began = self._state
        return used if began is None else used + max(0, clock(self.tid) - began)

    def step(self, method: Any, *arguments: Any) -> Any:
        """Run a coroutine to its next await; tasks that it makes meanwhile are of this account too."""
        used, began = self._state
        if not self._open or began is not None:
            return method(*arguments)
        loop = asyncio.get_running_loop()
        outer = loop.get_task_factory()

        def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **keywords: Any) -> Any:
            steps = Steps(coroutine, self)
            return outer(loop, steps, **keywords) if outer else asyncio.Task(steps, loop=loop, **keywords)

        loop.set_task_factory(factory)
        self._ledger.stepping(self)
        began = time.thread_time_ns()
        self._state = used, began
        try:
            return method(*arguments)
        finally:
            self._state = used + time.thread_time_ns() - began, None
            self._ledger.stepping(None)
            loop.set_task_factory(outer)


def leave_out(error: BaseException, frames: int = 1) -> None:
    """Take the calling frame, and what of ours it called, out of the traceback of what it raises again.

    Raising again by a bare ``raise`` notes a frame no second time (``RERAISE`` in CPython's Python/bytecodes.c), so
    that a user sees the same traceback with us and without.
    """
    traceback = error.__traceback__
    for _ in range(frames):
        traceback = traceback and traceback.tb_next
    error.__traceback__ = traceback


class Steps(Coroutine[Any, Any, Any]):
    """A coroutine that is driven step by step, each on its account."""

    def __init__(self, coroutine: Any, meter: Meter) -> None:
        self._coroutine = coroutine
        self._meter = meter

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            return self._meter.step(self._coroutine.send, None)
        except BaseException as error:
            leave_out(error, 2)
            raise

    def send(self, value: Any) -> Any:
        """Go on with a value."""
        try:
            return self._meter.step(self._coroutine.send, value)
        except BaseException as error:
            leave_out(error, 2)
            raise

    def throw(self, *thrown: Any) -> Any:
        """Go on with an exception."""
        try:
            return self._meter.step(self._coroutine.throw, *thrown)
        except BaseException as error:
            leave_out(error, 2)
            raise

    def close(self) -> None:
        """End it."""
        self._coroutine.close()
