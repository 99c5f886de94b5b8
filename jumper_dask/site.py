"""What a worker's process has once for each run: its segments, its sampler, its shipper, and the thread that writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import native_built
from jumper.monitor.pipeline import CollectorConfig
from jumper.monitor.sampling import Sampling
from jumper.monitor.segment import SegmentWriter, spool_folder
from jumper.schema.errors import MonitorUnavailableError
from jumper.utilities import slurm_job_id
from jumper_dask import _compat, boundaries, settings
from jumper_dask.live import Totals
from jumper_dask.running import Slots, beside, last_words, oom_kills
from jumper_dask.shipping import Shipper, Source, adopt

if TYPE_CHECKING:
    from jumper_dask.worker import WorkerSide

#: A nanny kills a closing worker after 4 s: what is left then stays in the spool for who comes next.
TEARDOWN_S = 3.0
#: How often the spool folder is looked through for segments whose worker is gone, in seconds.
ADOPT_S = 10.0
#: Records in a block at most, so that a block fits into a shard.
RECORDS_A_BLOCK = 200
#: So many records wait for a disk that does not keep up; further ones are dropped and counted.
NOTES = 100_000
#: Exchanges of times at the start, of which the best one counts.
EXCHANGES = 8
#: `collect` tries again after a refusal, in seconds.
RETRY_S = 0.5

_ENCODER = msgspec.json.Encoder(enc_hook=str)


class Site:
    """What a process has once for each run: two segments, an agent, and the shipper.

    Its records are written by a thread of its own, so that a slow disk does not hold the event loop.
    """

    _sites: ClassVar[dict[str, Site]] = {}

    def __init__(self, side: WorkerSide, run: str, ledger: boundaries.Ledger) -> None:
        self.run = run
        self.ledger = ledger
        self.sides: list[WorkerSide] = []
        self.slots: Slots
        self._notes: deque[boundaries.Attempt | dict[str, Any]] = deque()
        self._announced: set[tuple[str, str]] = set()
        self._overflow = 0
        self.interval = float(side.config["interval"])
        self.totals = Totals()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumper-spool")
        self.shipper = Shipper(self._call, run, side.worker.address, self.note, self._thread)
        self.shipper.live = self._live
        self._config = side.config
        self._writer: SegmentWriter | None = None
        self._agent: Sampling | None = None
        self._trouble: str | None = None
        self._folder: Path | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._adopted_s = time.monotonic()
        self._leaving = False
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
                with contextlib.suppress(OSError, TimeoutError, TypeError):  # the next pushes tell the time, too
                    await site.shipper.exchange(EXCHANGES)
                # apart, so that what was noted is on disk within an interval, however long the scheduler takes
                steps = (partial(site._in_thread, site._write), site._ship)
                site._tasks = [asyncio.create_task(site._always(step)) for step in steps]
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

    def note(self, record: boundaries.Attempt | dict[str, Any]) -> None:
        """Take a record; it is encoded and written by the thread of the spool."""
        if len(self._notes) < NOTES:
            self._notes.append(record)
        else:
            self._overflow += 1

    async def flush(self, budget_s: float) -> bool:
        """Write and ship all that there is now; return whether the scheduler has it."""
        deadline = time.monotonic() + budget_s
        await self._in_thread(self._adopt)
        await self._in_thread(self._flush_agent, min(2.0, budget_s / 2))
        await self._in_thread(self._write)
        while not (shipped := await self.shipper.drain(max(0.1, deadline - time.monotonic()))):
            if time.monotonic() + RETRY_S > deadline:
                break
            await asyncio.sleep(RETRY_S)
        await self._adopted_home()
        return shipped

    async def leave(self, side: WorkerSide) -> bool:
        """Take a worker out; the last one ships what is left and closes. Return whether the scheduler has all."""
        deadline = time.monotonic() + TEARDOWN_S
        if len(self.sides) > 1:
            await self._in_thread(self._write)
            self.sides.remove(side)
            return True  # the others of this process carry it
        self._sites.pop(self.run, None)
        self._leaving = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TEARDOWN_S / 3)
        shipped = False
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._in_thread(self._finish), TEARDOWN_S / 2)
            shipped = await self.shipper.drain(max(0.1, deadline - time.monotonic()))
            await self._adopted_home()
        self.sides.remove(side)
        self._thread.submit(self._close, shipped)
        self._thread.shutdown(wait=False)
        return shipped

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def _call(self, op: str, **arguments: Any) -> Any:
        return await getattr(self.sides[0].worker.scheduler, op)(**arguments)

    def _live(self) -> tuple[str, bytes]:
        """Return what the scheduler's page shows of this process."""
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_ns = time.process_time_ns() + round((waited.ru_utime + waited.ru_stime) * 1e9)
        return self.totals.message(cpu_ns, self.ledger.memory.rss() or 0, _cpu_of(self._agent))

    async def _always(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step each interval, whether the one before failed or not."""
        while not self._leaving:  # before Python 3.12 `asyncio.wait_for` may lose a cancellation (cpython#86296)
            await asyncio.sleep(min(self.interval, 1.0))
            try:
                await step()
            except Exception as error:
                if (said := f"{type(error).__name__}: {error}") != self._trouble:
                    self._trouble = said
                    self.event("monitor-trouble", said)

    async def _ship(self) -> None:
        """Adopt what dead workers left, and push, where it is time to."""
        now = time.monotonic()
        if now - self._adopted_s >= ADOPT_S:
            self._adopted_s = now
            await self._in_thread(self._adopt)
        if now >= self.shipper.due_s:
            await self.shipper.push()
            await self._adopted_home()

    def _open(self) -> None:
        self._folder = folder = spool_folder()
        header = {"run": self.run, "interval_s": self.interval, "worker": self.sides[0].worker.address,
                  "oom_kills": oom_kills()}  # fmt: skip
        self._writer = SegmentWriter(folder, {"kind": "tasks", **header}, cap_bytes=settings.spool_bytes())
        self.slots = Slots(self._writer.path)
        self.shipper.sources.append(Source(self._writer.path, read=self._writer.read))
        collectors = self._config["collectors"]
        levels = ["process", "system", *(["slurm"] if slurm_job_id() else [])]
        root = {"name": str(self.sides[0].worker.name), "kind": "dask-worker"}
        limit = _compat.memory_limit(self.sides[0].worker)
        # a thread that no held GIL stops, or a process of its own where that is not built
        engine: Any = AgentProcess
        if native_built():
            from jumper.monitor.backends.native.sampling import NativeSampling

            engine = partial(NativeSampling, cap_bytes=settings.spool_bytes())
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
            self._meet_writers()
        except MonitorUnavailableError as error:
            self._agent = None
            self.event("monitor-unavailable", str(error))
        self._adopt()
        self._write()

    def _meet_writers(self) -> None:
        """Ship what Python collectors find, too; of some that is first written when they find something."""
        known = {source.path for source in self.shipper.sources}
        for writer in getattr(self._agent, "writers", ()):
            if writer.path not in known:
                self.shipper.sources.append(Source(writer.path, read=writer.read))

    def event(self, kind: str, text: str, **more: Any) -> None:
        """Note what happened."""
        self.note({"type": "event", "kind": kind, "text": text, "mono_ns": time.monotonic_ns(),
                   "wall_ns": time.time_ns(), **more})  # fmt: skip

    def _write(self) -> None:
        writer = self._writer
        if writer is None:
            return
        if self._agent is not None and not self._agent.running and self._agent.reason:
            reason, agent, self._agent = self._agent.reason, self._agent, None
            self.event("monitor-lost", reason)
            self.ledger.without(agent.stop)
        shift = time.time_ns() - time.monotonic_ns()
        for side in self.sides:
            for attempt in side.running():
                if (name := (attempt.key, attempt.attempt_id)) not in self._announced:
                    self._announced.add(name)
                    begin_ns = attempt.begin_ns
                    start = msgspec.structs.replace(attempt, event="start", mono_ns=begin_ns, wall_ns=begin_ns + shift)
                    writer.line(_encode(start))
        notes, add = self._notes, self.totals.add
        for left in range(len(notes), 0, -RECORDS_A_BLOCK):
            records = [notes.popleft() for _ in range(min(left, RECORDS_A_BLOCK))]
            for record in records:
                if type(record) is boundaries.Attempt:
                    record.wall_ns = record.mono_ns + shift
                    if self._announced:
                        self._announced.discard((record.key, record.attempt_id))
                    add(record)
            writer.line(_encode(*records))
            writer.flush()
        # what has come home no longer counts
        writer.cap_bytes = settings.spool_bytes() + self.shipper.sources[0].acked
        row = self.ledger.account()
        if row is not None:
            writer.row("worker", row)
        writer.flush()
        self._meet_writers()

    def _flush_agent(self, timeout_s: float) -> None:
        if self._agent is not None:
            self._agent.flush(timeout_s)

    def _finish(self) -> None:
        if self._agent is not None:
            self.ledger.without(partial(self._agent.stop, TEARDOWN_S / 3))
        self._write()
        if self._writer is not None:
            self._writer.text({"type": "end", "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), "ticks": 0,
                               "dropped": self._writer.dropped + self._overflow})  # fmt: skip
            self._writer.flush()

    def _adopt(self) -> None:
        if self._folder is None:
            return
        for source in adopt(self._folder, self.run, {source.path for source in self.shipper.sources}):
            self.shipper.sources.append(source)
            for record in last_words(source.path, source.header):
                self.note(record)

    async def _adopted_home(self) -> None:
        """Tell the scheduler which adopted segments have come home whole, and remove them."""
        sources = await self._in_thread(self._whole)
        if sources:
            await self._call("jumper_home", segments=[source.segment for source in sources])
            await self._in_thread(self._drop, sources)

    def _whole(self) -> list[Source]:
        return [s for s in self.shipper.sources if s.adopted and s.acked and not s.next()]

    def _drop(self, sources: list[Source]) -> None:
        for source in sources:
            self.shipper.sources.remove(source)
            source.close(remove=True)
            beside(source.path).unlink(missing_ok=True)

    def _close(self, shipped: bool) -> None:
        for source in self.shipper.sources:
            source.close(remove=shipped and source.acked > 0)
        if self._writer is not None:
            self.slots.close(remove=shipped)
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


def _encode(*records: boundaries.Attempt | dict[str, Any]) -> bytes:
    """Return records as lines of JSON, the last one without its end."""
    try:
        return _ENCODER.encode_lines(records)[:-1]
    except (TypeError, ValueError):  # a lone surrogate in a key, an integer beyond 64 bits
        return b"\n".join(map(_encode_any, records))


def _encode_any(record: boundaries.Attempt | dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(record)
    except (TypeError, ValueError):
        return json.dumps(msgspec.to_builtins(record, enc_hook=str), default=str).encode()
