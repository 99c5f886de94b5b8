"""Trees of processes that come and go, watched by one native engine: added and let go of while it runs."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.streams import SLOW_S, STREAMS, rows_of, schema_payload, stream_names
from jumper.monitor.beside import Beside
from jumper.monitor.nodefacts import node_facts
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.roots import Most
from jumper.monitor.segment import SegmentWriter, new_segment_id, segment_header
from jumper.schema.errors import MonitorUnavailableError
from jumper.schema.segment import SUFFIX
from jumper.utilities import slurm_job_id

_json = json.JSONEncoder(default=str).encode  # made once: json.dumps makes one a call


class Follower:
    """Adds to the newest tick what the engine does not read: GPUs and energy of each tree, in a segment beside its own.

    Parameters
    ----------
    spool : Path
    header : mapping
        Of that segment; ``joins`` names the engine's.
    roots : NativeRoots
        Whose engine queues its rows.
    """

    def __init__(self, spool: Path, header: Mapping[str, Any], roots: NativeRoots) -> None:
        self._roots = roots
        self._writer = SegmentWriter(spool, {**header, "kind": "collectors"})
        self._beside = Beside(self._writer.text)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jumper-follower", daemon=True)

    def start(self) -> None:
        """Follow from now on."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(SLOW_S):
            self.look()

    def look(self) -> None:
        """Take what the engine has queued, and add to its newest tick."""
        names = {number: stream_names(number) for number in STREAMS.values()}
        engine, trees = self._roots.engine, {pid: number for number, pid in self._roots.trees.items()}
        with self._lock:
            rows: list[tuple[str, dict[str, Any]]] = []
            while drained := engine.drain():
                rows += rows_of(drained, names, only=("process", "system"))
            newest = max((row["mono_ns"] for _, row in rows), default=None)
            for stream, row in rows:
                number = trees.get(row.get("pid") or 0)
                if row["mono_ns"] != newest or (stream == "process" and number is None):
                    continue
                level = "system" if stream == "system" else f"tree{number}"
                pids = [] if number is None else [member[0] for member in engine.members(number)]
                found = self._beside.row(level, pids, row, row["mono_ns"])
                if found:
                    self._writer.row(stream, {**{key: row[key] for key in ("mono_ns", "pid") if key in row}, **found})
            self._writer.flush()

    def stop(self) -> None:
        """Take what is left, and close the segment."""
        self._stopping.set()
        self._thread.join(5.0)
        self.look()
        self._writer.text({"type": "end"})
        self._writer.close()
        self._beside.close()


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
        self.trees: dict[int, int] = {}
        self._follower = Follower(Path(spool), {**header, "joins": name}, self) if Beside.wanted() else None
        self.engine = Engine(
            interval,
            schema=schema_payload(whole),
            segment=os.fsencode(self.path),
            node_lock=os.fsencode(NodeLock(spool).path),
            in_target=True,
            queue=self._follower is not None,
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
            self.engine.start()
        except OSError as error:
            raise MonitorUnavailableError(f"the native engine cannot start: {error.strerror} ({self.path})") from error
        if "user" in self._levels:
            self.engine.add_owner(STREAMS["user"], os.getuid())
        job = slurm_job_id()
        if "slurm" in self._levels and job is not None:
            self.engine.add_owner(STREAMS["slurm"], os.getuid(), f"SLURM_JOB_ID={job}".encode())
        self.text(self._facts)
        self.engine.go()
        if self._follower is not None:
            self._follower.start()

    def add(self, pid: int, tag: str | None = None, parents: Collection[int] = (), soon: bool = False) -> int | None:
        """Watch the tree of a process; return its number, None where there is no room."""
        number = self.engine.add_tree(pid, tuple(parents), (tag or "").encode(), soon)
        if number >= 0:
            self.trees[number] = pid
        return number if number >= 0 else None

    def finish(self, number: int) -> Most:
        """Take a last sample of a tree and watch it no more; return the most that it had."""
        if self._follower is not None:
            self.engine.tick()
            self._follower.look()
        self.trees.pop(number, None)
        found = self.engine.finish(number)
        return Most() if found is None else Most(*found)

    def tick(self) -> None:
        """Take a sample now."""
        self.engine.tick()

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        stamped = {"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **record}
        self.engine.text(_json(stamped).encode() + b"\n")

    @property
    def cpu_ns(self) -> int:
        """What sampling has cost so far, as of the last sample."""
        return self.engine.statistics()["cpu_ns"]

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        now = self.engine.statistics()
        return now["dropped"], os.strerror(now["error"]) if now["error"] else None

    def stop(self) -> None:
        """Take the last sample and end; safe to call twice."""
        if self._ended:
            return
        self._ended = True
        if self._follower is not None:
            self._follower.stop()
        now = self.engine.statistics()
        self.text({"type": "end", "ticks": now["ticks"] + 1, "dropped": now["dropped"]})
        self.engine.stop()
