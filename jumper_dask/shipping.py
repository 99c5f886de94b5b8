"""Carry the blocks of segments from a worker's spool to the scheduler, each acknowledged, none twice.

One push is in flight at a time, by RPC: an unknown operation is answered with None, which is no acknowledgement,
whereas an unknown stream message would end the worker (distributed's `Server.handle_stream`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from jumper.monitor.segment import SegmentWriter
from jumper.schema import segment as fmt
from jumper.utilities import node_name, safe_name
from jumper_dask.running import beside

#: A shard is at most this long, unless a single block is longer.
SHARD_BYTES = 256 << 10
#: Longest wait for one acknowledgement, in seconds.
ACK_S = 5.0
#: After a refusal the next push waits so long, twice as long each time, in seconds.
BACK_OFF_S = (1.0, 30.0)
#: A clock record is written when a better exchange was had, and at least this often (clocks drift), in ns.
CLOCK_NS = 10_000_000_000

#: The disk gets back what has come home in pieces of this size; the first bytes stay, as they say whose it is.
RELEASE_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
#: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE (fallocate(2)).
_PUNCH_HOLE = 3

Call = Callable[..., Awaitable[Any]]
Reader = Callable[[int, int], bytes]


class Source:
    """A segment on its way: how it is read, and how much of it was acknowledged."""

    #: Segments of this process that are on their way, also those that no `SegmentWriter` has open.
    own: ClassVar[set[Path]] = set()

    def __init__(
        self,
        path: Path,
        read: Reader | None = None,
        descriptor: int | None = None,
        header: dict[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.header = header or {}
        self.segment = path.name.removesuffix(fmt.SUFFIX)
        self.acked = 0
        self._released = _HEAD_BYTES
        self._hole: int | None = None
        self.descriptor = descriptor
        self.adopted = descriptor is not None
        if not self.adopted:
            self.own.add(path)
        self._read = read

    def next(self) -> bytes:
        """Return the next shard: whole blocks while it is written, all that is there once its writer is gone."""
        data = self._bytes(self.acked, SHARD_BYTES)
        if self.adopted:
            return data
        end = fmt.whole_blocks(data)
        if not end and (head := fmt.unpack_header(data)) is not None and head[0].size > len(data):
            data = self._bytes(self.acked, head[0].size)
            end = fmt.whole_blocks(data)
        return data[:end]

    def release(self) -> None:
        """Give the disk back what has come home, so that a spool stays small for however long a run goes on.

        The file keeps its size, and what is next in it its offset. Does nothing where the file system cannot.
        """
        end = self.acked & ~4095
        if end - self._released < RELEASE_BYTES:
            return
        with contextlib.suppress(OSError, AttributeError):
            if self._hole is None:
                self._hole = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            punch = ctypes.CDLL(None).fallocate
            punch.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
            punch(self._hole, _PUNCH_HOLE, self._released, end - self._released)
        self._released = end

    def _bytes(self, offset: int, size: int) -> bytes:
        try:
            if self._read is not None and str(self.path) in SegmentWriter.open_here:
                return self._read(offset, size)
            if self.descriptor is None:
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.descriptor, size, offset)
        except OSError:
            return b""

    def close(self, remove: bool = False) -> None:
        """Close the file, and remove it, and what lies beside it, where it has come home."""
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
                beside(self.path).unlink(missing_ok=True)
        for descriptor in (self.descriptor, self._hole):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self.descriptor = self._hole = None
        self.own.discard(self.path)


class Clock:
    """What exchanges of times tell of this node's monotonic clock against the run's reference clock."""

    def __init__(self) -> None:
        self._best_ns: int | None = None
        self._since_ns = 0

    def observe(self, sent_ns: int, came_ns: int, answer: dict[str, Any]) -> dict[str, Any] | None:
        """Return a `clock` record where this exchange was better than the ones before, or these are old; else None.

        Parameters
        ----------
        sent_ns, came_ns : int
            When the question left and when the answer came, by this node's monotonic clock.
        answer : dict
            ``came_ns`` and ``time_ns``: when the question came and the answer left, by the reference clock. The
            offset is the difference of the middles; what the way took bounds its error (RFC 5905, section 8).
        """
        there, back = int(answer["came_ns"]), int(answer["time_ns"])
        error = max(1, (came_ns - sent_ns - (back - there) + 1) // 2)
        stale = came_ns - self._since_ns > CLOCK_NS
        if self._best_ns is not None and not stale and error * 2 > self._best_ns:
            return None
        self._best_ns, self._since_ns = error, came_ns
        offset = (there + back) // 2 - (sent_ns + came_ns) // 2
        return {"type": "clock", "offset_ns": offset, "error_ns": error, "mono_ns": (sent_ns + came_ns) // 2}


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
    executor : Executor, optional
        Whose thread touches the files; default is the event loop's.
    """

    def __init__(
        self,
        call: Call,
        run: str,
        sender: str,
        on_clock: Callable[[dict[str, Any]], None],
        executor: Executor | None = None,
    ) -> None:
        self.sources: list[Source] = []
        self.period_s = 2.0
        self.due_s = time.monotonic()
        self.refused: str | None = None
        self.live: Callable[[], tuple[str, bytes]] | None = None
        self._call = call
        self._run = run
        self._sender = sender
        self._on_clock = on_clock
        self._executor = executor
        self._clock = Clock()
        self._busy = asyncio.Lock()
        self._phase = zlib.crc32(f"{os.uname().nodename} {sender}".encode()) / 2**32
        self._failures = 0

    async def exchange(self, times: int) -> None:
        """Ask for the time a few times: the best of several exchanges is far better than one."""
        for _ in range(times):
            sent = time.monotonic_ns()
            answer = await asyncio.wait_for(self._call("jumper_clock"), ACK_S)
            self._observe(sent, answer)

    async def push(self) -> None:
        """Push what is there, and set when the next one is due: each worker at its own part of the period."""
        failed = not await self.drain() and self.refused is not None
        now = time.monotonic()
        if failed:
            low, high = BACK_OFF_S
            self.due_s = now + max(low, min(high, low * 2**self._failures) * random.uniform(0.5, 1.0))
            self._failures = min(self._failures + 1, 30)
        else:
            self._failures = 0
            soonest = now + self.period_s / 2
            self.due_s = soonest + (self._phase * self.period_s - soonest) % self.period_s

    async def drain(self, budget_s: float = 30.0) -> bool:
        """Push until all is acknowledged; return whether it is. Stops at the first refusal and after ``budget_s``."""
        deadline = time.monotonic() + budget_s
        try:
            await asyncio.wait_for(self._busy.acquire(), budget_s)
        except TimeoutError:
            return False
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        try:
            for source in list(self.sources):
                while shard := await in_thread(source.next):
                    left = min(ACK_S, deadline - time.monotonic())
                    if left <= 0 or not await self._push(source, shard, left):
                        return False
                    await in_thread(source.release)
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
        except Exception as error:  # whatever it is, the spool keeps what was not acknowledged
            self.refused = f"{type(error).__name__}: {error}"
            return False
        if not isinstance(answer, dict) or not isinstance(answer.get("ack"), int):
            self.refused = str(answer.get("error")) if isinstance(answer, dict) else "the scheduler has no collector"
            return False
        self.refused = None
        self._observe(sent, answer)
        self.period_s = float(answer.get("period_s", self.period_s))
        moved = bool(answer["ack"] != source.acked)
        source.acked = answer["ack"]
        return moved

    def _observe(self, sent_ns: int, answer: dict[str, Any]) -> None:
        if (record := self._clock.observe(sent_ns, time.monotonic_ns(), answer)) is not None:
            self._on_clock(record)


def adopt(folder: Path, run: str, known: Collection[Path] = ()) -> list[Source]:
    """Return the segments of a run on this node whose writer is gone, each locked by this process.

    Those in ``known``, which this process has adopted, are left alone as its own are.
    """
    found = []
    prefix = safe_name(node_name(), 80) + "."
    for path in folder.glob("*" + fmt.SUFFIX):
        parts = path.name.removesuffix(fmt.SUFFIX).rsplit(".", 2)
        if len(parts) != 3 or not path.name.startswith(prefix) or path in known:
            continue
        if path in Source.own or str(path) in SegmentWriter.open_here:
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        header = _header_of(descriptor)
        if header.get("run") == run and _orphan(descriptor, parts[1]):
            found.append(Source(path, descriptor=descriptor, header=header))
        else:
            os.close(descriptor)
    return found


def _header_of(descriptor: int) -> dict[str, Any]:
    data = os.pread(descriptor, 64 << 10, 0)
    head = fmt.unpack_header(data)
    if head is None or head[0].kind != fmt.SCHEMA:
        return {}
    try:
        header = json.loads(data[fmt.HEADER.size : fmt.HEADER.size + head[0].length])
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def _orphan(descriptor: int, pid: str) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # no locks on this file system: the writer's process is asked
        return not os.path.exists(f"/proc/{pid}")
