"""What travels by value to workers and schedulers: it must load where `jumper_dask` is not installed.

Only the standard library and distributed may be imported here, and nothing may raise: a plugin that
cannot be unpickled stops each later worker from starting (distributed's `Worker.plugin_add`).
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

#: Longest time that a worker waits for its monitor before it takes tasks without one.
SETUP_S = 20.0
#: Longest time that a worker waits for its monitor to end: it ships for 3 s, see `jumper_dask.site.TEARDOWN_S`.
TEARDOWN_S = 10.0


def report(server: Any, error: BaseException) -> dict[str, Any]:
    """Return why a server lives on unmonitored, and say it to the scheduler where that is possible."""
    status = {"ok": False, "address": getattr(server, "address", None), "error": f"{type(error).__name__}: {error}"}
    try:
        server.log_event("jumper-status", status)
    except Exception as problem:
        status["unsaid"] = repr(problem)
    return status


class WorkerBoot(WorkerPlugin):
    """Start the worker side where the package is, and live on without it where it is not."""

    name = "jumper"
    idempotent = False

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.side: Any = None
        self.status: dict[str, Any] = {"ok": False, "error": "not set up yet"}
        self.ready: asyncio.Event | None = None

    async def setup(self, worker: Any) -> None:
        side = None
        self.ready = asyncio.Event()
        try:
            side = importlib.import_module("jumper_dask.worker").WorkerSide(worker, self.config)
            await asyncio.wait_for(side.start(), SETUP_S)
            self.side, self.status = side, {"ok": True}
            vars(self)["transition"] = side.transition  # asked six times a task: one call less each
        except Exception as error:
            self.status = report(worker, error)
            if side is not None:
                try:
                    await side.close()
                except Exception as problem:
                    self.status["close"] = repr(problem)
        finally:
            self.ready.set()

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Do nothing while there is no worker side."""

    async def teardown(self, worker: Any) -> None:
        if self.ready is not None:  # a worker that joins while the plugin is registered is given it twice
            await self.ready.wait()
        side, self.side = self.side, None
        if side is not None:
            vars(self).pop("transition", None)
            await asyncio.wait_for(side.close(), TEARDOWN_S)


class SchedulerBoot(SchedulerPlugin):
    """Start the scheduler side where the package is; its `start` is synchronous, so that it starts once."""

    name = "jumper-collector"
    idempotent = True

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.side: Any = None
        self.status: dict[str, Any] = {"ok": False, "error": "not started yet"}

    def start(self, scheduler: Any) -> None:  # type: ignore[override]
        try:
            self.side = importlib.import_module("jumper_dask.scheduler").SchedulerSide(scheduler, self.config)
            self.status = {"ok": True}
        except Exception as error:
            self.status = report(scheduler, error)

    def _tell(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self.side is not None:
            try:
                getattr(self.side, method)(*args, **kwargs)
            except Exception as error:
                self.side.trouble(method, error)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if (side := self.side) is not None:  # five times a task, so without what the others go through
            try:
                side.transition(key, start, finish, kwargs)
            except Exception as error:
                side.trouble("transition", error)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self._tell("add_worker", worker)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        self._tell("remove_worker", worker)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == "jumper-status":
            self._tell("worker_status", msg)
        elif topic == "worker-restart-memory":  # a nanny ends its worker (distributed's NannyMemoryManager)
            self._tell("worker_memory", msg)

    async def close(self) -> None:
        if self.side is not None:
            try:
                await self.side.close()
            except Exception as error:
                self.side.trouble("close", error)
