"""The scheduler's side: takes shards, notes what only the scheduler knows of each attempt, hands the run out."""

from __future__ import annotations

import asyncio
import platform
import secrets
import time
from collections import deque
from importlib.metadata import version
from typing import Any

import msgspec
from distributed.comm.addressing import get_address_host

from jumper.schema import RUN_SCHEMA, VERSION
from jumper_dask import dashboard, settings
from jumper_dask.live import Live
from jumper_dask.receiving import RunFolder
from jumper_dask.roster import Roster

#: All workers together push at most this often, in pushes a second: each costs one to two ms of a busy core.
PUSHES_A_SECOND = 15.0
#: Shards of a worker when its push is due: of its boundaries, and of its samples.
SHARDS = 2
#: Shortest time between two pushes of a worker, in seconds.
PERIOD_S = 2.0
#: Notes are written this often, in seconds.
WRITE_S = 2.0
#: So many notes wait for a disk that does not keep up; further ones are dropped and counted.
NOTES = 200_000

_ENCODER = msgspec.json.Encoder(enc_hook=str)


class SchedulerSide:
    """What the collector does in the scheduler; built in its event loop.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    config : dict
        ``interval`` in seconds.
    """

    def __init__(self, scheduler: Any, config: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.interval = float(config["interval"])
        self.created_ns = time.time_ns()
        self.finished_ns: int | None = None
        self.run = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(3)
        self.folder = RunFolder(self.run, {"kind": "scheduler", "interval_s": self.interval})
        self.collected = False
        self.live = Live(scheduler.workers)
        self.roster = Roster()
        self._notes: deque[bytes] = deque()
        self._dropped = 0
        self._runnable: dict[Any, int] = {}
        self._states: dict[str, Any] = {}
        self._trouble: set[str] = set()
        self._versions = {"jumper": VERSION, "python": platform.python_version(), "dask": version("dask"),
                          "distributed": version("distributed")}  # fmt: skip
        # the run's reference: this node's monotonic clock, set once by its wall clock, which may be stepped
        mono = time.monotonic_ns()
        self._offset_ns = time.time_ns() - mono
        self._note({"type": "clock", "offset_ns": self._offset_ns, "error_ns": 0, "mono_ns": mono})
        for address in scheduler.workers:
            self.add_worker(address)
        for handler in ("hello", "goodbye", "home", "push", "clock", "time", "collect", "read", "collected"):
            scheduler.handlers[f"jumper_{handler}"] = getattr(self, "_" + handler)
        self._task = asyncio.ensure_future(self._work())
        if settings.dashboard() if config.get("dashboard") is None else config["dashboard"]:
            try:
                dashboard.add_page(scheduler)
            except Exception as error:  # what it touches there is not all public
                self.trouble("dashboard", error)

    def trouble(self, where: str, error: BaseException) -> None:
        """Keep a failure of ours as an event, once for each place."""
        if where not in self._trouble:
            self._trouble.add(where)
            self._event("collector-trouble", f"{where}: {type(error).__name__}: {error}")

    # what the scheduler tells us

    def transition(self, key: Any, start: str, finish: str, facts: dict[str, Any]) -> None:
        """Note when an attempt became runnable, and how it ended as the scheduler saw it."""
        if start == "processing":
            self._ended(key, finish, facts)
        elif finish in ("queued", "no-worker", "processing"):
            self._runnable.setdefault(key, time.time_ns())
        elif finish in ("released", "forgotten", "memory", "erred"):
            self._runnable.pop(key, None)

    def add_worker(self, worker: str) -> None:
        """Expect a worker to be measured."""
        ws = self.scheduler.workers.get(worker)
        self.roster.expect(worker, str(getattr(ws, "name", worker)))
        self._states[worker] = ws
        name = self._name(worker)
        self._event("worker-joined", f"worker {name} joined", worker=worker, name=name)

    def remove_worker(self, worker: str) -> None:
        """Note that a worker went; its attempts have been told by :meth:`transition`."""
        self._states.pop(worker, None)
        self.roster.left(worker)
        self._event("worker-left", f"worker {self._name(worker)} left", worker=worker)

    def worker_status(self, message: Any) -> None:
        """Note why a worker lives on unmonitored."""
        if isinstance(message, dict) and not message.get("ok") and message.get("address"):
            self.roster.unmonitored(str(message["address"]), str(message.get("error")))

    def worker_memory(self, message: Any) -> None:
        """Note that a nanny ends its worker because of its memory."""
        if isinstance(message, dict) and message.get("worker"):
            address, size = str(message["worker"]), message.get("rss")
            self._event("worker-memory", f"worker {self._name(address)} held {size} bytes; its nanny ended it",
                        worker=address, rss_bytes=size, pid=message.get("pid"))  # fmt: skip

    def _name(self, address: str) -> str:
        member = self.roster.get(address)
        return member.name if member is not None else "?"

    def _ended(self, key: Any, finish: str, facts: dict[str, Any]) -> None:
        ts = self.scheduler.tasks[key]
        runnable = self._runnable.pop(key, None)
        address = facts.get("worker")
        times = [entry for entry in facts.get("startstops") or () if entry["action"] == "compute"]
        lost = self._lost_on(ts, address)
        if lost is None and not times:
            return  # never ran, or is retried: the worker's own records tell
        note: dict[str, Any] = {
            "type": "task",
            "event": "note",
            "witness": "scheduler",
            "key": str(key),
            "attempt_id": str(ts.run_id),
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            "kind": "dask",
            "group": ts.prefix.name,
            "layer": ts.group.name,
            "worker": lost or address,
        }
        if ts.group.span_id is not None:
            note["span"] = ts.group.span_id
        if ts.annotations:
            note["annotations"] = ts.annotations
        if times and runnable is not None:
            note["queued_s"] = max(0.0, times[-1]["start"] - runnable / 1e9)
        if lost is not None:
            reason = f"its worker {self._name(lost)} ({lost}) left while it ran"
            note.update(event="stop", state="lost", reason=reason)
            if (member := self.roster.get(lost)) is not None and member.node is not None:
                note["ran_on"] = member.node
            self._note(note)
            return
        note["state"] = "done" if finish == "memory" else "failed"
        if finish == "erred" and facts.get("exception_text"):
            note["reason"] = str(facts["exception_text"])[:300]
        if address in self.roster.measured:
            self._note(note)
        else:
            self._unmonitored(note, times[-1])

    def _lost_on(self, ts: Any, address: str | None) -> str | None:
        """Return the worker that left while it ran this attempt, or None.

        It is out of the scheduler's table by now; `executing` is what its last heartbeat said. What began
        after that has its start in the worker's own segment, and no end.
        """
        workers = self.scheduler.workers
        if address is not None:
            return address if address not in workers else None
        for known, ws in self._states.items():
            if known not in workers and ts in getattr(ws, "executing", ()):
                return known
        return None

    def _unmonitored(self, note: dict[str, Any], entry: dict[str, Any]) -> None:
        """Note start and stop of an attempt whose worker is not measured, by the scheduler's clock."""
        shift = time.monotonic_ns() - time.time_ns()
        note["ran_on"] = get_address_host(note["worker"])
        for event, when in (("start", entry["start"]), ("stop", entry["stop"])):
            wall = round(when * 1e9)
            self._note({**note, "event": event, "wall_ns": wall, "mono_ns": wall + shift, "flags": ["unmonitored"]})

    def node_of(self, address: str) -> str:
        """Return the node of a worker; its host, where it is not measured."""
        member = self.roster.get(address)
        return str(member.node if member is not None and member.node else get_address_host(address))

    def is_measured(self, address: str) -> bool:
        """Return whether a worker has a monitor now."""
        return address in self.roster.measured

    # what workers and clients ask

    async def _hello(self, worker: str, name: str, node: str, pid: int, interval: float) -> dict[str, Any]:
        self.roster.came(worker, name, node, pid)
        self.interval = interval
        return {"run": self.run, "period_s": self._period()}

    async def _goodbye(self, worker: str, shipped: bool) -> None:
        self.roster.goodbye(worker, shipped)

    async def _home(self, segments: list[str]) -> None:
        for segment in segments:
            self.roster.home(segment)

    def _now(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    async def _clock(self) -> dict[str, int]:
        return {"came_ns": self._now(), "time_ns": self._now()}

    async def _time(self) -> dict[str, Any]:
        return {"run": self.run, "time_ns": self._now(), "monitored": len(self.roster.measured)}

    async def _push(
        self, run: str, segment: str, offset: int, data: bytes, worker: str, live: tuple[str, bytes] | None = None
    ) -> dict[str, Any]:
        came = self._now()
        if run != self.run:
            return {"error": f"this scheduler collects run {self.run}, not {run}"}
        try:
            acked = await self.folder.put(segment, offset, bytes(data))
        except (OSError, ValueError) as error:
            self.trouble("push", error)
            return {"error": str(error)}
        if live is not None:
            self.live.take(worker, *live)
        return {"ack": acked, "came_ns": came, "time_ns": self._now(), "period_s": self._period()}

    async def _collect(self, budget_s: float = 10.0) -> dict[str, Any]:
        """Flush all workers and say what the run consists of."""
        workers = list(self.roster.measured)
        answers = await asyncio.gather(*(self._flush(address, budget_s) for address in workers))
        late = {address: why for address, why in zip(workers, answers, strict=True) if why is not None}
        for address, why in late.items():
            self._event("flush-late", f"worker {self._name(address)}: {why}", worker=address)
        await self._write()
        return {"run": self.run, "info": self.info(late), "files": await self.folder.in_thread(self.folder.sizes),
                "time_ns": self._now()}  # fmt: skip

    async def _flush(self, address: str, budget_s: float) -> str | None:
        try:
            answer = await asyncio.wait_for(self.scheduler.rpc(address).jumper_flush(budget_s=budget_s), budget_s + 1)
        except Exception as error:  # whatever it is, the others' shards are here
            return f"did not flush within {budget_s:g} s ({type(error).__name__})"
        if not isinstance(answer, dict) or not answer.get("shipped"):
            return f"could not ship: {answer.get('error') if isinstance(answer, dict) else 'no monitor there'}"
        return None

    async def _read(self, name: str, offset: int, size: int) -> bytes | dict[str, str]:
        try:
            data: bytes = await self.folder.in_thread(self.folder.get, name, offset, size)
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        return data

    async def _collected(self, run: str) -> bool:
        self.collected = self.collected or run == self.run
        return self.collected

    def info(self, late: dict[str, str] | None = None) -> dict[str, Any]:
        """Return what goes into `run.json` (docs/run.md)."""
        coverage = self.roster.coverage()
        coverage["missing"] += [{"worker": a, "name": self._name(a), "reason": why} for a, why in (late or {}).items()]
        coverage.update(duplicates=self.folder.duplicates, refused=self.folder.refused, notes_dropped=self._dropped)
        return {
            "schema": RUN_SCHEMA,
            "run": self.run,
            "kind": "dask",
            "command": f"dask cluster {self.scheduler.address}",
            "created_ns": self.created_ns,
            "finished_ns": self.finished_ns,
            "interval_s": self.interval,
            "versions": self._versions,
            "coverage": coverage,
        }

    # our own segment

    def _period(self) -> float:
        return max(PERIOD_S, len(self.roster.measured) * SHARDS / PUSHES_A_SECOND)

    def _event(self, kind: str, text: str, **more: Any) -> None:
        self._note({"type": "event", "kind": kind, "text": text, "mono_ns": time.monotonic_ns(),
                    "wall_ns": time.time_ns(), **more})  # fmt: skip

    def _note(self, record: dict[str, Any]) -> None:
        if len(self._notes) < NOTES:
            self._notes.append(_ENCODER.encode(record))
        else:
            self._dropped += 1

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self._write()
            except Exception as error:
                self.trouble("write", error)

    async def _write(self) -> None:
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        await self.folder.in_thread(self.folder.write, notes, self.info())

    async def close(self) -> None:
        """Write what is left; the folder stays unless a client has collected the run."""
        self._task.cancel()
        self.finished_ns = time.time_ns()
        await self._write()
        self.folder.close(remove=self.collected)
