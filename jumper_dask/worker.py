"""The worker's side: records of boundaries, an agent that samples this process, and what carries both home."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import resource
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import native_built
from jumper.monitor.pipeline import CollectorConfig
from jumper.monitor.sampling import Sampling
from jumper.monitor.segment import SegmentWriter, spool_folder
from jumper.schema.errors import MonitorUnavailableError
from jumper.utilities import node_name, slurm_job_id
from jumper_dask import _compat, boundaries
from jumper_dask.live import Totals
from jumper_dask.plugin import CollectorPlugin
from jumper_dask.shipping import Shipper, Source, adopt

#: A nanny kills a closing worker after 4 s: what is left then stays in the spool for who comes next.
TEARDOWN_S = 3.0
#: How often the spool folder is looked through for segments whose worker is gone, in seconds.
ADOPT_S = 10.0
#: How long after a task's start its thread is looked up, in seconds.
SEE_S = 0.002
#: Records in a block at most, so that a block fits into a shard.
RECORDS_A_BLOCK = 200
#: The spool is full past this size, in bytes.
SPOOL_BYTES = 256 << 20

_ENCODER = msgspec.json.Encoder(enc_hook=str)


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
        self._facts: dict[str, Any] = {}
        self._seeing = self._begun = False

    async def start(self) -> None:
        """Make sure of the scheduler's side, then begin to measure."""
        scheduler = self.worker.scheduler
        plugin = CollectorPlugin(self.config["interval"])
        await scheduler.register_scheduler_plugin(plugin=pickle.dumps(plugin), name=plugin.name, idempotent=True)
        greeting = await scheduler.jumper_hello(
            worker=self.worker.address, name=str(self.worker.name), node=node_name(), pid=os.getpid()
        )
        if not isinstance(greeting, dict) or "run" not in greeting:
            raise RuntimeError("the scheduler has no collector; install jumper-workflows there too")
        self._facts = {"worker": self.worker.address}
        self._ledger = boundaries.join(self.worker, bool(self.config["reset_peak"]))
        self.site = await Site.enter(self, greeting["run"], self._ledger)
        self.worker.handlers["jumper_flush"] = self._flush

    def transition(self, key: Any, start: str, finish: str) -> None:
        """Note the boundaries among a task's transitions."""
        attempt = self._attempts.get(key)
        if attempt is None and finish != "executing":
            return
        ledger, site = self._ledger, self.site
        if ledger is None or site is None:
            return
        ts = _compat.worker_task(self.worker, key)
        if attempt is None:
            if ts is None:
                return
            facts = {**self._facts, "group": ts.prefix}
            if ts.span_id is not None:
                facts["span"] = ts.span_id
            if ts.dependencies:
                facts["input_bytes"] = sum(int(d.nbytes or 0) for d in ts.dependencies)
            self._attempts[key] = ledger.begin(self.worker, key, _compat.run_id(ts), facts)
            self._see_soon()
        elif ts is None or ts.state not in _compat.AT_WORK:
            del self._attempts[key]
            attempt.state, reason = _outcome(ts, start, finish)
            ident = _compat.ran_on(self.worker, ts) if ts is not None else None
            seek = ident is None and ts is not None and start == "executing" and _compat.in_thread(self.worker, ts)
            records = ledger.finish(attempt, ident, self._times(ts), seek)
            if reason is not None:
                records[-1]["reason"] = reason
            site.totals.add(attempt.facts["group"], records[-1]["mono_ns"] - attempt.mono_ns, records[-1])
            for record in records:
                site.note(record)

    def _see_soon(self) -> None:
        if self._seeing:
            self._begun = True
        else:
            self._seeing, self._begun = True, False
            asyncio.get_running_loop().call_later(SEE_S, self._see)

    def _see(self) -> None:
        """Look at who runs what; once more where an attempt began meanwhile."""
        self._seeing = False
        if self._ledger is not None and self.site is not None:
            self._ledger.see(self.worker)
            if self._begun:
                self._see_soon()

    def _times(self, ts: Any) -> tuple[int, int] | None:
        times = _compat.compute_times(ts)
        if times is None:
            return None
        shift = time.monotonic_ns() - time.time_ns() - round(_compat.scheduler_delay(self.worker) * 1e9)
        return round(times[0] * 1e9) + shift, round(times[1] * 1e9) + shift

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
            await site.leave(self)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.worker.scheduler.jumper_goodbye(worker=self.worker.address), 0.5)
        boundaries.leave(self.worker)


class Site:
    """What a process has once for each run: two segments, an agent, and the shipper.

    Its records are written by a thread of its own, so that a slow disk does not hold the event loop.
    """

    _sites: ClassVar[dict[str, Site]] = {}

    def __init__(self, side: WorkerSide, run: str, ledger: boundaries.Ledger) -> None:
        self.run = run
        self.ledger = ledger
        self.sides: list[WorkerSide] = []
        self._lines: deque[bytes] = deque()
        self.interval = float(side.config["interval"])
        self.totals = Totals()
        self.shipper = Shipper(self._call, run, side.worker.address, self.note)
        self.shipper.live = self._live
        self._config = side.config
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumper-spool")
        self._writer: SegmentWriter | None = None
        self._agent: Sampling | None = None
        self._reason: str | None = None
        self._folder: Path | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._failure: Exception | None = None

    @classmethod
    async def enter(cls, side: WorkerSide, run: str, ledger: boundaries.Ledger) -> Site:
        """Return the process's site of a run with the worker in it, opened by the first one."""
        site = cls._sites.get(run)
        if site is None:
            site = cls._sites[run] = cls(side, run, ledger)
            site.sides.append(side)
            try:
                await site._in_thread(site._open)
                site._task = asyncio.create_task(site._work())
            except Exception as error:
                site._failure = error
                del cls._sites[run]
                raise
            finally:
                site._ready.set()
        else:
            site.sides.append(side)
            await site._ready.wait()
            if site._failure is not None:
                raise site._failure
        return site

    def note(self, record: dict[str, Any]) -> None:
        """Take a record; encoded at once, so that the garbage collector has nothing of ours to walk."""
        self._lines.append(_encode(record))

    async def flush(self, budget_s: float) -> bool:
        """Write and ship all that there is now; return whether the scheduler has it."""
        deadline = time.monotonic() + budget_s
        await self._in_thread(self._adopt)
        await self._in_thread(self._flush_agent, min(2.0, budget_s / 2))
        await self._in_thread(self._write)
        return await self.shipper.drain(max(0.1, deadline - time.monotonic()))

    async def leave(self, side: WorkerSide) -> None:
        """Take a worker out; the last one ships what is left and closes."""
        deadline = time.monotonic() + TEARDOWN_S
        if len(self.sides) > 1:
            await self._in_thread(self._write)
            self.sides.remove(side)
            return
        self._sites.pop(self.run, None)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        shipped = False
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._in_thread(self._finish), TEARDOWN_S / 2)
            shipped = await self.shipper.drain(max(0.1, deadline - time.monotonic()))
        self.sides.remove(side)
        self._thread.submit(self._close, shipped)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def _call(self, op: str, **arguments: Any) -> Any:
        return await getattr(self.sides[0].worker.scheduler, op)(**arguments)

    def _live(self) -> tuple[str, bytes]:
        """Return what the scheduler's page shows of this process."""
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_ns = time.process_time_ns() + round((waited.ru_utime + waited.ru_stime) * 1e9)
        return self.totals.message(cpu_ns, self.ledger.memory.rss() or 0, _cpu_of(self._agent))

    async def _work(self) -> None:
        shipped = adopted = time.monotonic()
        while True:
            await asyncio.sleep(min(self.interval, 1.0))
            now = time.monotonic()
            try:
                await self._in_thread(self._write)
                if now - adopted >= ADOPT_S:
                    adopted = now
                    await self._in_thread(self._adopt)
                if now - shipped >= self.shipper.period_s:
                    shipped = now
                    await self.shipper.drain()
                    await self._in_thread(self._drop_adopted)
            except Exception as error:
                self._reason = repr(error)

    def _open(self) -> None:
        self._folder = folder = spool_folder()
        header = {"run": self.run, "interval_s": self.interval, "worker": self.sides[0].worker.address}
        self._writer = SegmentWriter(folder, {"kind": "tasks", **header}, cap_bytes=SPOOL_BYTES)
        self.shipper.sources.append(Source(self._writer.path, read=self._writer.read))
        collectors = self._config["collectors"]
        levels = ["process", "system", *(["slurm"] if slurm_job_id() else [])]
        root = {"name": str(self.sides[0].worker.name), "kind": "dask-worker"}
        limit = _compat.memory_limit(self.sides[0].worker)
        # a thread that no held GIL stops, or a process of its own where that is not built
        engine: Any = AgentProcess
        if native_built():
            from jumper.monitor.backends.native.sampling import NativeSampling

            engine = NativeSampling
        self._agent = engine(
            target_pid=os.getpid(),
            interval=self.interval,
            levels=levels,
            config=CollectorConfig.from_json(collectors) if collectors else None,
            spool=folder,
            header=header,
            root={**root, "memory_limit_bytes": limit} if limit else root,
            threads=True,
            node_lock=True,
        )
        try:
            ready = self._agent.start()
            self.shipper.sources.append(Source(Path(ready["segment_path"])))
            writers = getattr(self._agent, "writers", ())
            self.shipper.sources += [Source(writer.path, read=writer.read) for writer in writers]
            if not writers:
                self.shipper.sources += [Source(Path(path)) for path in ready.get("also", ())]
        except MonitorUnavailableError as error:
            self._agent = None
            self._event("monitor-unavailable", str(error))
        self._adopt()
        self._write()

    def _event(self, kind: str, text: str) -> None:
        self.note({"type": "event", "kind": kind, "text": text, "mono_ns": time.monotonic_ns(),
                   "wall_ns": time.time_ns()})  # fmt: skip

    def _write(self) -> None:
        writer = self._writer
        if writer is None:
            return
        if self._agent is not None and not self._agent.running and self._agent.reason:
            reason, agent, self._agent = self._agent.reason, self._agent, None
            self._event("monitor-lost", reason)
            self.ledger.without(agent.stop)
        for record in self.ledger.announce(side.worker for side in self.sides):
            self.note(record)
        for position in range(len(self._lines)):
            writer.line(self._lines.popleft())
            if position % RECORDS_A_BLOCK == RECORDS_A_BLOCK - 1:
                writer.flush()
        writer.flush()

    def _flush_agent(self, timeout_s: float) -> None:
        if self._agent is not None:
            self._agent.flush(timeout_s)

    def _finish(self) -> None:
        if self._agent is not None:
            self.ledger.without(partial(self._agent.stop, TEARDOWN_S / 3))
        self._write()
        if self._writer is not None:
            self._writer.text({"type": "end", "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), "ticks": 0,
                               "dropped": self._writer.dropped})  # fmt: skip
            self._writer.flush()

    def _adopt(self) -> None:
        if self._folder is None:
            return
        known = {source.path for source in self.shipper.sources}
        for source in adopt(self._folder, self.run):
            if source.path in known:
                source.close()
            else:
                self.shipper.sources.append(source)
                self._event("adopted", source.segment)

    def _drop_adopted(self) -> None:
        for source in [source for source in self.shipper.sources if source.adopted]:
            if source.acked and not source.next():
                self.shipper.sources.remove(source)
                source.close(remove=True)

    def _close(self, shipped: bool) -> None:
        for source in self.shipper.sources:
            source.close(remove=shipped and source.acked > 0)
        if self._writer is not None:
            self._writer.close()


def _cpu_of(agent: Any) -> int:
    """Return the CPU that a sampler used, in ns: its thread's, or that of its process (clock_getcpuclockid(3))."""
    if agent is None:
        return 0
    if (statistics := getattr(agent, "statistics", None)) is not None:
        return int(statistics["cpu_ns"])
    try:
        return time.clock_gettime_ns((~agent.pid << 3) | 2)
    except (OSError, TypeError):
        return 0


def _encode(record: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(record)
    except (TypeError, ValueError):  # a lone surrogate in a key, an integer beyond 64 bits
        return json.dumps(msgspec.to_builtins(record, enc_hook=str), default=str).encode()


def _outcome(ts: Any, start: str, finish: str) -> tuple[str, str | None]:
    """Return (state, reason) of an attempt that ended with this transition."""
    if finish == "error":
        return "failed", str(getattr(ts, "exception_text", "") or "")[:300] or None
    if finish == "memory" and start in ("executing", "long-running"):
        return "done", None
    if finish == "rescheduled":
        return "cancelled", "rescheduled by itself"
    return "cancelled", None
