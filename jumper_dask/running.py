"""Which attempts run now, kept where a worker's death does not reach: one small file beside its segment.

A segment has an attempt's start within an interval; a task that fills the memory in a tenth of a second, holding the
GIL, is gone by then. So each start is written at once into a slot, before the task's thread begins: into a map of the
file, which the kernel keeps when the process is killed. Its blocks are allocated before, so a full disk is an error
when it is made, and no signal later.
Whoever adopts the dead worker's segment reads the slots. A slot is not cleared at the end of its attempt: what has a
stop in the segment needs no word from here.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jumper.monitor.segment import boot_id
from jumper.schema import segment as fmt
from jumper_dask.readings import counters

SUFFIX = ".now"
#: Bytes of a slot; an attempt whose key does not fit is not written.
SLOT = 1024
#: Attempts beyond this many at once are not written.
SLOTS = 256


class Slots:
    """The file of one worker process.

    Parameters
    ----------
    segment : path
        The segment beside which it lies.
    """

    def __init__(self, segment: Path) -> None:
        self.path = beside(segment)
        self._free = list(range(SLOTS - 1, -1, -1))
        self._map: mmap.mmap | None = None
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC, 0o600)
        try:
            with contextlib.suppress(OSError):  # a full disk: the segment tells of it
                os.posix_fallocate(descriptor, 0, SLOTS * SLOT)
                self._map = mmap.mmap(descriptor, SLOTS * SLOT)
        finally:
            os.close(descriptor)

    def begin(self, key: str, run_id: str, group: str) -> int | None:
        """Write that an attempt begins now; return its slot, for :meth:`end`."""
        if self._map is None or not self._free:
            return None
        slot = self._free.pop()
        try:
            written = counters.note(self._map, slot * SLOT, SLOT, run_id, group, key)
        except UnicodeError:
            safe = (word.encode(errors="replace").decode() for word in (run_id, group, key))
            written = counters.note(self._map, slot * SLOT, SLOT, *safe)
        if not written:
            self._free.append(slot)
            return None
        return slot

    def end(self, slot: int | None) -> None:
        """Give a slot back."""
        if slot is not None:
            self._free.append(slot)

    def close(self, remove: bool) -> None:
        """Close the file, and remove it where nobody needs it any more."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()


def beside(segment: Path) -> Path:
    """Return the path of the file that belongs to a segment."""
    return segment.with_name(segment.name.removesuffix(fmt.SUFFIX) + SUFFIX)


def last_words(segment: Path, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what is to be said of an adopted segment: that it was left, and which attempts its worker had begun.

    Some of these may have ended; their segment then says so.

    Parameters
    ----------
    segment : path
    header : dict
        Its header, with the worker's address and how often the kernel's OOM killer had struck when it began.
    """
    name = segment.name.removesuffix(fmt.SUFFIX)
    now, before = oom_kills(), header.get("oom_kills")
    yield {
        "type": "event",
        "kind": "adopted",
        "text": f"{name}, whose worker ended without a word",
        "mono_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "worker": header.get("worker"),
        "oom_kills": None if now is None or before is None else now - int(before),
    }
    if header.get("boot_id") != boot_id():
        return  # its monotonic times are not of this clock
    try:
        data = beside(segment).read_bytes()
    except OSError:
        return
    for at in range(0, len(data), SLOT):
        parts = data[at : at + SLOT].split(b"\0")
        if len(parts) < 6 or not (parts[0].isdigit() and parts[1].isdigit()):
            continue
        run_id, group, key = (part.decode(errors="replace") for part in parts[2:5])
        yield {
            "type": "task",
            "event": "start",
            "witness": "spool",
            "spool": name,
            "key": key,
            "attempt_id": run_id,
            "mono_ns": int(parts[0]),
            "wall_ns": int(parts[1]),
            "kind": "dask",
            "group": group,
            "worker": header.get("worker"),
            "pid": header.get("pid"),
        }


def oom_kills() -> int | None:
    """Return how many processes the kernel's OOM killer has ended on this node since it started.

    Source: proc(5), ``/proc/vmstat``, ``oom_kill`` (since Linux 4.13).
    """
    try:
        fields = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(fields["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
