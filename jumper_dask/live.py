"""What each group of tasks cost so far: added up in the worker, carried by its shards, read when somebody looks.

A worker keeps totals and sends them, encoded, along with each shard. The scheduler keeps the last message of each
process and does not decode it: totals are cumulative, so a lost or repeated message changes nothing.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from jumper_dask.boundaries import Attempt

__all__ = ["Group", "Live", "Process", "Totals"]

#: A process tells so many groups apart; tasks of further ones are added up as `OTHERS`.
GROUPS = 100
OTHERS = "(other groups)"
NAME_LENGTH = 100
#: Messages longer than this are not kept, in bytes.
MESSAGE_BYTES = 64 << 10
#: So many processes are told apart; what the longest silent ones cost is added up and stays.
PROCESSES = 2000


class Group(msgspec.Struct, array_like=True, gc=False):
    """What the attempts of a group cost so far; times in ns, sizes in bytes."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0
    peak_bytes: int = 0
    read_chars: int = 0
    write_chars: int = 0

    def add(self, other: Group, sign: int = 1) -> None:
        """Add another one's figures, or with ``sign`` -1 take them away; peaks only grow."""
        self.done += sign * other.done
        self.failed += sign * other.failed
        self.cancelled += sign * other.cancelled
        self.cpu_ns += sign * other.cpu_ns
        self.wall_ns += sign * other.wall_ns
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.read_chars += sign * other.read_chars
        self.write_chars += sign * other.write_chars


class Process(msgspec.Struct, array_like=True):
    """What a process of workers said last: counters in ns by its own clocks, sizes in bytes, and its groups."""

    mono_ns: int
    cpu_ns: int
    rss_bytes: int
    own_cpu_ns: int
    own_since_ns: int
    groups: dict[str, Group]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Process)


class Totals:
    """The worker's part: what its groups cost so far."""

    def __init__(self) -> None:
        self.identity = secrets.token_hex(8)
        self.groups: dict[str, Group] = {}
        self._since_ns = time.monotonic_ns()

    def add(self, attempt: Attempt) -> None:
        """Add an attempt that ended."""
        total = self.groups.get(attempt.group) or self._new(attempt.group)
        state = attempt.state
        if state == "done":
            total.done += 1
        elif state == "failed":
            total.failed += 1
        else:
            total.cancelled += 1
        total.wall_ns += attempt.mono_ns - attempt.begin_ns
        base, end = attempt.base, attempt.end
        if base is not None and end is not None:
            total.cpu_ns += end.cpu_ns - base.cpu_ns + attempt.helpers_cpu_ns
            if (before := base.read_chars) is not None and (after := end.read_chars) is not None:
                total.read_chars += after - before
            if (before := base.write_chars) is not None and (after := end.write_chars) is not None:
                total.write_chars += after - before
        if (children := attempt.children) is not None:
            total.cpu_ns += children["cpu_ns"]
            total.read_chars += children["read_chars"]
            total.write_chars += children["write_chars"]
        peak = attempt.hwm_bytes or attempt.rss_stop_bytes or 0
        if peak > total.peak_bytes:
            total.peak_bytes = peak

    def _new(self, group: str) -> Group:
        name = group[:NAME_LENGTH] if len(self.groups) < GROUPS else OTHERS
        return self.groups.setdefault(name, Group())

    def message(self, cpu_ns: int, rss_bytes: int, own_cpu_ns: int) -> tuple[str, bytes]:
        """Return who says it, and what: this process's counters and all its groups, encoded."""
        said = Process(time.monotonic_ns(), cpu_ns, rss_bytes, own_cpu_ns, self._since_ns, self.groups)
        return self.identity, _ENCODER.encode(said)


class _Sender:
    """A process as the scheduler knows it: its last two messages, and what of them has been added up."""

    __slots__ = ("before", "came_s", "counted", "data", "now", "worker")

    def __init__(self) -> None:
        self.worker = ""
        self.data = self.before = b""
        self.came_s = 0.0
        self.now: Process | None = None
        self.counted: dict[str, Group] = {}


class Seen(msgspec.Struct):
    """A process as a reader sees it.

    Attributes
    ----------
    worker : str
        Address of its first worker.
    cores : float or None
        CPU between its last two messages, in cores.
    rss_bytes : int
        Resident memory.
    own : float
        CPU of its sampler since it began, in cores.
    age_s : float
        How long ago it said so, in seconds.
    """

    worker: str
    cores: float | None
    rss_bytes: int
    own: float
    age_s: float


class Live:
    """The scheduler's part: the last message of each process; decoded by :meth:`look` only.

    Parameters
    ----------
    living : collection of str
        Addresses of the workers that are there; it is looked at, and may change.
    """

    def __init__(self, living: Collection[str]) -> None:
        self._living = living
        self._senders: OrderedDict[str, _Sender] = OrderedDict()
        self._changed: set[str] = set()
        self._totals: dict[str, Group] = {}

    def take(self, worker: str, identity: str, data: bytes) -> None:
        """Keep a message, not decoded; the longest silent process is added up for good where there are too many."""
        if len(data) > MESSAGE_BYTES:
            return
        sender = self._senders.get(identity)
        if sender is None:
            sender = self._senders[identity] = _Sender()
        self._senders.move_to_end(identity)
        sender.worker, sender.came_s = worker, time.monotonic()
        sender.before, sender.data = sender.data, data
        self._changed.add(identity)
        while len(self._senders) > PROCESSES + len(self._living):
            self._forget(next(iter(self._senders)))

    def _forget(self, identity: str) -> None:
        if self._senders[identity].worker in self._living:
            self._senders.move_to_end(identity)
            return
        self._count(identity)
        self._changed.discard(identity)
        del self._senders[identity]

    def look(self) -> dict[str, Group]:
        """Return the totals of all groups; only what came since the last look is decoded."""
        for identity in self._changed:
            self._count(identity)
        self._changed.clear()
        return self._totals

    def processes(self) -> list[Seen]:
        """Return the processes of the living workers, as of the last :meth:`look`."""
        found = []
        now_s = time.monotonic()
        for sender in self._senders.values():
            said = sender.now
            if said is None or sender.worker not in self._living:
                continue
            before = _decoded(sender.before)
            cores = None
            if before is not None and said.mono_ns > before.mono_ns:
                cores = max(0.0, (said.cpu_ns - before.cpu_ns) / (said.mono_ns - before.mono_ns))
            own = said.own_cpu_ns / max(1, said.mono_ns - said.own_since_ns)
            found.append(Seen(sender.worker, cores, said.rss_bytes, own, now_s - sender.came_s))
        return found

    def _count(self, identity: str) -> None:
        sender = self._senders[identity]
        said = _decoded(sender.data)
        if said is None:
            return
        sender.now = said
        for name, group in said.groups.items():
            known = name in self._totals or len(self._totals) < 10 * GROUPS
            total = self._totals.setdefault(name if known else OTHERS, Group())
            total.add(group)
            if (counted := sender.counted.get(name)) is not None:
                total.add(counted, -1)
        sender.counted = said.groups


def _decoded(data: bytes) -> Process | None:
    try:
        return _DECODER.decode(data) if data else None
    except msgspec.DecodeError:  # of another version
        return None
