"""What the sub-processes of tasks cost: who spawned them, and which of them were reaped between two looks.

The kernel adds what a child used to its parent's ledger (RUSAGE_CHILDREN, `/proc/self/io`) when it is reaped.
An audit hook says which task is about to spawn; `/proc/self/task/TID/children` says which children live. What was
added between two looks goes to whose children went in between: exactly if they are one task's, else by number.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable

from jumper_dask.readings import Io, ThreadsIo, counters, open_or_none, parse_io

Cost = tuple[int, int, int, int, int, int]
#: user ns, system ns, read bytes, write bytes, read chars, write chars
NOTHING: Cost = (0, 0, 0, 0, 0, 0)


class Spawner:
    """A running attempt, as far as its children go.

    Attributes
    ----------
    tid : int or None
        The kernel's id of the thread that runs it.
    spawned : int
        How many processes it was about to make.
    cost : list of int
        What those that were reaped had used.
    estimated : bool
        Whether that is a share of what several attempts' children used.
    ended : bool
        Whether the attempt has ended: what its children cost from now on is nobody's.
    """

    __slots__ = ("cost", "ended", "estimated", "fresh", "last_event", "spawned", "tid", "unseen")

    def __init__(self, tid: int | None) -> None:
        self.tid = tid
        self.spawned = self.unseen = 0
        self.ended = self.fresh = self.estimated = False
        self.last_event = ""
        self.cost = list(NOTHING)


class Children:
    """The ledger of this process's children, shared out to the attempts that spawned them.

    Parameters
    ----------
    running : callable
        Gives a spawner for each attempt at work: who shares the cost of children that nobody was seen to spawn.

    Attributes
    ----------
    given_ns, own_ns : int
        CPU that attempts got so far, and CPU of children that are the monitor's own.
    """

    def __init__(self, running: Callable[[], Iterable[Spawner]]) -> None:
        self._threads = ThreadsIo()
        self._running = running
        self.given_ns = self.own_ns = 0
        self._lists: dict[int, int] = {}
        self._owner: dict[int, Spawner] = {}
        self._cpu = counters.children()
        self._self_io = open_or_none("/proc/self/io", os.O_RDONLY)
        self._io: Io | None = None
        self._gone = [0, 0, 0, 0]
        self._seen_io: dict[int, Io] = {}
        self._reaped: dict[int, tuple[Spawner, int]] = {}

    def spawning(self, spawner: Spawner, known: Collection[Spawner]) -> None:
        """Note that an attempt is about to spawn, from its own thread."""
        if self._io is None:
            self._io = self._children_io()
        self.settle(known, sure=spawner)
        spawner.spawned += 1
        spawner.unseen += 1
        spawner.fresh = True

    def settle(
        self,
        known: Collection[Spawner],
        sure: Spawner | None = None,
        boundary: bool = False,
        cpu: tuple[int, int] | None = None,
    ) -> bool:
        """Share out what was added to the ledger since the last look; return whether files were read for it.

        Parameters
        ----------
        known : collection of Spawner
            The attempts at work that spawned.
        sure : Spawner, optional
            One of them that is at no fork now: all that it spawned is listed or reaped.
        boundary : bool
            Whether an attempt begins or ends: I/O is shared out then.
        cpu : tuple of int, optional
            What ``counters.children`` returned just now.
        """
        cpu = cpu or counters.children()
        if cpu == self._cpu and self._io is None and not self._owner and not known:
            return False
        user, system = cpu[0] - self._cpu[0], cpu[1] - self._cpu[1]
        self._cpu = cpu
        if not known and not self._owner and not user and not system:
            if boundary:
                self._io = None
            return False
        reaped = self._look(known, sure)
        if user or system:
            self._share((user, system, 0, 0, 0, 0), reaped)
        for attempt, number in reaped.values():
            before = self._reaped.get(id(attempt), (attempt, 0))[1]
            self._reaped[id(attempt)] = (attempt, before + number)
        if boundary:
            self._share_io()
            if not known and not self._owner:
                self._io = None
        return True

    @property
    def seen_ns(self) -> int:
        """CPU of all children that were reaped until the last look."""
        return sum(self._cpu)

    def skip(self) -> None:
        """Leave out what was added since the last look: children that are our own."""
        before, self._cpu = self._cpu, counters.children()
        self.own_ns += sum(self._cpu) - sum(before)

    def _look(self, waiting: Collection[Spawner], sure: Spawner | None) -> dict[int, tuple[Spawner, int]]:
        reaped: dict[int, tuple[Spawner, int]] = {}

        def count(attempt: Spawner, number: int) -> None:
            if number > 0:
                reaped[id(attempt)] = (attempt, reaped.get(id(attempt), (attempt, 0))[1] + number)

        tids = {a.tid: a for a in waiting if a.tid is not None}
        tids.update({a.tid: a for a in self._owner.values() if a.tid is not None and a.tid not in tids})
        alive: set[int] = set()
        for tid, attempt in tids.items():
            for pid in self._list(tid):
                alive.add(pid)
                if pid not in self._owner:
                    self._owner[pid] = attempt
                    attempt.unseen = max(0, attempt.unseen - 1)
        for pid in [pid for pid in self._owner if pid not in alive]:
            count(self._owner.pop(pid), 1)
        for attempt in waiting:
            # its last spawn may not have come to its fork yet: it counts, but stays expected
            pending = 1 if attempt.fresh and attempt is not sure and attempt.unseen else 0
            count(attempt, attempt.unseen)
            attempt.unseen = pending
            if attempt is sure:
                attempt.fresh = False
        return reaped

    def _share(self, cost: Cost, reaped: dict[int, tuple[Spawner, int]]) -> None:
        shares = list(reaped.values())
        guessed = not shares
        if guessed:
            shares = [(attempt, 1) for attempt in self._running()]
        total = sum(number for _, number in shares)
        given = list(NOTHING)
        for position, (attempt, number) in enumerate(shares):
            last, had = position == len(shares) - 1, sum(attempt.cost[:2])
            for index, amount in enumerate(cost):
                part = amount - given[index] if last else amount * number // total
                given[index] += part
                attempt.cost[index] += part
            if not attempt.ended:
                self.given_ns += sum(attempt.cost[:2]) - had
            if guessed or len(shares) > 1:
                attempt.estimated = True

    def _share_io(self) -> None:
        reaped, self._reaped = self._reaped, {}
        before, self._io = self._io, self._children_io()
        if before is None or self._io is None:
            return
        now = self._io
        cost: Cost = (0, 0, *(max(0, b - a) for a, b in zip(before, now, strict=True)))  # type: ignore[assignment]
        if reaped and any(cost):
            self._share(cost, reaped)

    def _list(self, tid: int) -> list[int]:
        """Return the children that a thread forked and that are not reaped (proc(5), task/TID/children)."""
        descriptor = self._lists.get(tid)
        if descriptor is None:
            descriptor = open_or_none(f"/proc/self/task/{tid}/children", os.O_RDONLY)
            if descriptor is None:
                return []
            self._lists[tid] = descriptor
        try:
            text = os.pread(descriptor, 1 << 16, 0)
        except OSError:
            os.close(self._lists.pop(tid))
            return []
        return [int(pid) for pid in text.split()]

    def _children_io(self) -> Io | None:
        """Return the I/O of the reaped children: the process's less its threads', living and gone."""
        if self._self_io is None:
            return None
        own = threading.get_native_id()
        for _ in range(4):
            others = self._others_io(own)
            mine = self._threads.io(own)
            try:
                total = parse_io(os.pread(self._self_io, 512, 0))
            except (OSError, IndexError, ValueError):
                return None
            if others == self._others_io(own):
                break
        if mine is None:
            return None
        io, looked = mine
        counted = [t - o - m for t, o, m in zip(total, others, io, strict=True)]
        counted[2] -= looked  # the text of our own counters was read after they were taken
        return Io(*counted)

    def _others_io(self, own: int) -> list[int]:
        alive = {tid for tid in self._threads.alive() if tid != own}
        for tid in [tid for tid in self._seen_io if tid not in alive and tid != own]:
            self._gone = [a + b for a, b in zip(self._gone, self._seen_io.pop(tid), strict=True)]
        total = list(self._gone)
        for tid in alive:
            reading = self._threads.io(tid)
            if reading is not None:
                self._seen_io[tid] = reading[0]
                total = [a + b for a, b in zip(total, reading[0], strict=True)]
        return total

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in [*self._lists.values(), *([self._self_io] if self._self_io is not None else [])]:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._lists.clear()
        self._self_io = None
        self._threads.close()
