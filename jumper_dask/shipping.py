"""Carry whole blocks of segments from a worker's spool to the scheduler, each acknowledged, none twice.

One push is in flight at a time, by RPC: an unknown operation is answered with None, which is no acknowledgement,
whereas an unknown stream message would end the worker (distributed's `Server.handle_stream`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jumper.schema import segment as fmt
from jumper.utilities import node_name, safe_name

#: A shard is at most this long, unless a single block is longer.
SHARD_BYTES = 256 << 10
#: Longest wait for one acknowledgement, in seconds.
ACK_S = 5.0
#: A clock record is written when a better exchange was had, and at least this often (clocks drift), in ns.
CLOCK_NS = 60_000_000_000

Call = Callable[..., Awaitable[Any]]
Reader = Callable[[int, int], bytes]


class Source:
    """A segment on its way: how it is read, and how much of it was acknowledged."""

    def __init__(self, path: Path, read: Reader | None = None, descriptor: int | None = None) -> None:
        self.path = path
        self.segment = path.name.removesuffix(fmt.SUFFIX)
        self.acked = 0
        self.descriptor = descriptor
        self.adopted = descriptor is not None
        self._read = read

    def next(self) -> bytes:
        """Return the next shard, whole blocks only; empty where there is none."""
        data = self._bytes(self.acked, SHARD_BYTES)
        end = fmt.whole_blocks(data)
        if not end and (head := fmt.unpack_header(data)) is not None and head[0].size > len(data):
            data = self._bytes(self.acked, head[0].size)
            end = fmt.whole_blocks(data)
        return data[:end]

    def _bytes(self, offset: int, size: int) -> bytes:
        try:
            if self._read is not None:
                return self._read(offset, size)
            if self.descriptor is None:
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.descriptor, size, offset)
        except OSError:
            return b""

    def close(self, remove: bool = False) -> None:
        """Close the file, and remove it where it has come home."""
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = None


class Clock:
    """The offset between this node's monotonic clock and the scheduler's wall clock, from acknowledgements."""

    def __init__(self) -> None:
        self._best_ns: int | None = None
        self._since_ns = 0

    def observe(self, sent_ns: int, came_ns: int, time_ns: int) -> dict[str, Any] | None:
        """Return a `clock` record where this exchange was better than the ones before, else None."""
        error = (came_ns - sent_ns) // 2
        stale = came_ns - self._since_ns > CLOCK_NS
        if self._best_ns is not None and not stale and error * 2 > self._best_ns:
            return None
        self._best_ns, self._since_ns = error, came_ns
        offset = time_ns - (sent_ns + came_ns) // 2
        return {"type": "clock", "offset_ns": offset, "error_ns": error, "mono_ns": came_ns}


class Shipper:
    """Push what the sources hold and the scheduler has not.

    Parameters
    ----------
    call : coroutine function
        ``call(op, **arguments)``: an RPC to the scheduler.
    run, sender : str
        Id of the run, and address of this worker.
    on_clock : callable
        Takes each `clock` record.
    """

    def __init__(self, call: Call, run: str, sender: str, on_clock: Callable[[dict[str, Any]], None]) -> None:
        self.sources: list[Source] = []
        self.period_s = 2.0
        self.refused: str | None = None
        self.live: Callable[[], tuple[str, bytes]] | None = None
        self._call = call
        self._run = run
        self._sender = sender
        self._on_clock = on_clock
        self._clock = Clock()
        self._busy = asyncio.Lock()

    async def drain(self, budget_s: float = 30.0) -> bool:
        """Push until all is acknowledged; return whether it is. Stops at the first refusal and after ``budget_s``."""
        deadline = time.monotonic() + budget_s
        try:
            await asyncio.wait_for(self._busy.acquire(), budget_s)
        except TimeoutError:
            return False
        try:
            for source in list(self.sources):
                while shard := await asyncio.to_thread(source.next):
                    left = min(ACK_S, deadline - time.monotonic())
                    if left <= 0 or not await self._push(source, shard, left):
                        return False
            return True
        finally:
            self._busy.release()

    async def _push(self, source: Source, shard: bytes, timeout_s: float) -> bool:
        sent = time.monotonic_ns()
        try:
            answer = await asyncio.wait_for(
                self._call(
                    "jumper_push",
                    run=self._run,
                    segment=source.segment,
                    offset=source.acked,
                    data=shard,
                    worker=self._sender,
                    live=self.live() if self.live is not None else None,
                ),
                timeout_s,
            )
        except (OSError, TimeoutError) as error:
            self.refused = f"{type(error).__name__}: {error}"
            return False
        came = time.monotonic_ns()
        if not isinstance(answer, dict) or not isinstance(answer.get("ack"), int):
            self.refused = str(answer.get("error")) if isinstance(answer, dict) else "the scheduler has no collector"
            return False
        self.refused = None
        if (record := self._clock.observe(sent, came, answer["time_ns"])) is not None:
            self._on_clock(record)
        self.period_s = float(answer.get("period_s", self.period_s))
        moved = bool(answer["ack"] != source.acked)
        source.acked = answer["ack"]
        return moved


def adopt(folder: Path, run: str) -> list[Source]:
    """Return the segments of a run on this node whose writer is gone, each locked by this process.

    Segments of this process are left alone: closing a second descriptor would drop the writer's lock (fcntl(2)).
    """
    found = []
    prefix = safe_name(node_name(), 80) + "."
    for path in folder.glob("*" + fmt.SUFFIX):
        parts = path.name.removesuffix(fmt.SUFFIX).rsplit(".", 2)
        if not path.name.startswith(prefix) or len(parts) != 3 or parts[1] == str(os.getpid()):
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        if _run_of(descriptor) == run and _orphan(descriptor, parts[1]):
            found.append(Source(path, descriptor=descriptor))
        else:
            os.close(descriptor)
    return found


def _run_of(descriptor: int) -> str | None:
    data = os.pread(descriptor, 64 << 10, 0)
    head = fmt.unpack_header(data)
    if head is None or head[0].kind != fmt.SCHEMA:
        return None
    try:
        run = json.loads(data[fmt.HEADER.size : fmt.HEADER.size + head[0].length]).get("run")
    except ValueError:
        return None
    return run if isinstance(run, str) else None


def _orphan(descriptor: int, pid: str) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # no locks on this file system: the writer's process is asked
        return not os.path.exists(f"/proc/{pid}")
