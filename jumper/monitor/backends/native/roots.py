"""Trees of processes that come and go, watched by one native engine: added and let go of while it runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.sampling import STREAMS, schema_payload
from jumper.monitor.nodefacts import node_facts
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.roots import Most
from jumper.monitor.segment import new_segment_id, segment_header
from jumper.schema.errors import MonitorUnavailableError
from jumper.schema.segment import SUFFIX
from jumper.utilities import slurm_job_id

#: what the engine says where nothing was seen
_NULL = -(2**63)


class NativeRoots:
    """The native engine for many trees; see :class:`jumper.monitor.roots.Roots`."""

    def __init__(
        self,
        interval: float,
        spool: str | os.PathLike[str],
        levels: Collection[str],
        header: Mapping[str, Any],
        flush_s: float,
    ) -> None:
        facts = node_facts()
        name = new_segment_id(str(facts["node"]))
        self.path = Path(spool) / (name + SUFFIX)
        whole = {**segment_header(name, str(facts["node"])), "engine": "native", **header, "interval_s": interval}
        self._levels = tuple(levels)
        self._facts = facts
        self._ended = False
        self._engine = Engine(
            interval,
            schema=schema_payload(whole),
            segment=os.fsencode(self.path),
            node_lock=os.fsencode(NodeLock(spool).path),
            in_target=True,
            node="system" in self._levels,
            flush_s=flush_s,
        )

    def start(self) -> None:
        """Begin to sample.

        Raises
        ------
        MonitorUnavailableError
            Where the thread or the segment cannot be made.
        """
        try:
            self._engine.start()
        except OSError as error:
            raise MonitorUnavailableError(f"the native engine cannot start: {error.strerror} ({self.path})") from error
        if "user" in self._levels:
            self._engine.add_owner(STREAMS["user"], os.getuid())
        job = slurm_job_id()
        if "slurm" in self._levels and job is not None:
            self._engine.add_owner(STREAMS["slurm"], os.getuid(), f"SLURM_JOB_ID={job}".encode())
        self.text(self._facts)
        self._engine.go()

    def add(self, pid: int, tag: str | None = None, parents: Collection[int] = ()) -> int | None:
        """Watch the tree of a process; return its number, None where there is no room."""
        number = self._engine.add_tree(pid, tuple(parents), (tag or "").encode())
        return number if number >= 0 else None

    def finish(self, number: int) -> Most:
        """Take a last sample of a tree and watch it no more; return the most that it had."""
        found = self._engine.finish(number)
        return Most() if found is None else Most(*(None if value == _NULL else value for value in found))

    def tick(self) -> None:
        """Take a sample now."""
        self._engine.tick()

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        stamped = {"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **record}
        self._engine.text(json.dumps(stamped, default=str).encode() + b"\n")

    @property
    def cpu_ns(self) -> int:
        """What sampling has cost so far, as of the last sample."""
        return self._engine.statistics()["cpu_ns"]

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        now = self._engine.statistics()
        return now["dropped"], os.strerror(now["error"]) if now["error"] else None

    def stop(self) -> None:
        """Take the last sample and end; safe to call twice."""
        if self._ended:
            return
        self._ended = True
        now = self._engine.statistics()
        self.text({"type": "end", "ticks": now["ticks"] + 1, "dropped": now["dropped"]})
        self._engine.stop()
