"""Sampling by the native engine: it writes its own segment and asks C collectors; Python ones follow its ticks."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jumper.config.entries import BUILT_IN
from jumper.config.libraries import LEVELS
from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.libraries import Libraries
from jumper.monitor.backends.native.streams import SLOW_S, STREAMS, Row, rows_of, schema_payload, stream_names
from jumper.monitor.metrics.context import CollectionContext, new_context
from jumper.monitor.metrics.here import RARE, is_beside, without_absent
from jumper.monitor.metrics.node import NodeCollector
from jumper.monitor.metrics.process import ProcessCollector
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.pipeline import Pipeline, build_pipeline
from jumper.monitor.sampling import Settings, levels_event, ready_message
from jumper.monitor.segment import SegmentWriter, SpoolError, new_segment_id, segment_header
from jumper.schema.columns import is_derived
from jumper.schema.errors import MonitorUnavailableError
from jumper.schema.segment import SUFFIX

#: how long the follower waits for rows before it looks whether it shall end
_PATIENCE_S = 0.5


class NativeSampling:
    """The native engine for one target; parameters as in :class:`jumper.monitor.sampling.Settings`, and one more.

    Parameters
    ----------
    cap_bytes : int
        What the engine's segment holds of the disk at most, 0: no bound. Holes where parts were shipped do not count;
        what is above is dropped and counted.

    Attributes
    ----------
    reason : str or None
        Why it ended, where nobody stopped it.

    Raises
    ------
    MonitorUnavailableError
        At :meth:`start`, where the thread or the segment cannot be made.
    """

    def __init__(self, *arguments: Any, cap_bytes: int = 0, **keywords: Any) -> None:
        self.settings = settings = Settings(*arguments, **keywords)
        self.reason: str | None = None
        self.ready: dict[str, Any] = {}
        self.on_end: Callable[[str | None], None] | None = None
        self._running = False
        self._path: str | None = None
        streaming = settings.stream is not None
        self._libraries = libraries = Libraries(settings.config)
        self._added = {level: libraries.columns(level) for level in STREAMS}
        config = without_absent(libraries.others, settings.target_pid)
        own = any(is_beside(entry) for entry in config.entries)
        followed = streaming or any(entry.origin != BUILT_IN for entry in config.entries)
        #: the follower's part of the streams, and how long it rests between two ticks that it takes
        self._only, self._rest_s = (tuple(STREAMS), 0.0) if followed else (tuple(LEVELS), SLOW_S)
        self._pipeline: Pipeline | None = None
        if streaming or own:
            pipeline = build_pipeline(config, settings.host(), settings.levels, derived=streaming)
            self._pipeline = pipeline if streaming else pipeline.beside()
            for backend in self._pipeline.backends:  # these are the engine's part
                if isinstance(backend, (ProcessCollector, NodeCollector)):
                    backend.watch(())
        schema = segment = lock = b""
        self._extra: SegmentWriter | None = None  # what Python collectors find, of which some have nothing for long
        self._joins: str | None = None  # the segment that these belong to
        if settings.spool is not None:
            name = new_segment_id(str(settings.facts["node"]))
            self._path = os.path.join(settings.spool, name + SUFFIX)
            header = {**segment_header(name, str(settings.facts["node"])), "engine": "native", **settings.header}
            if libraries:
                header["collectors"] = libraries.header()
            schema = schema_payload(header, self._added)
            segment = os.fsencode(self._path)
            if settings.node_lock:
                lock = os.fsencode(NodeLock(settings.spool).path)
            self._joins = name if own else None
            if any(is_beside(entry) and entry.name not in RARE for entry in config.entries):
                self._extra = self._new_extra()
        self._engine = Engine(
            settings.interval,
            schema=schema,
            segment=segment,
            node_lock=lock,
            in_target=settings.in_target,
            node="system" in settings.levels,
            queue=self._pipeline is not None,
            thread_pid=settings.target_pid if settings.threads else 0,
            flush_s=settings.flush_s,
            cap=cap_bytes,
        )
        libraries.add_to(self._engine)
        self._sets: dict[str, int] = {}
        self._follower: threading.Thread | None = None
        self._stopping = threading.Event()
        self._columns = {number: stream_names(number) for number in STREAMS.values()}

    def _new_extra(self) -> SegmentWriter:
        assert self.settings.spool is not None
        header = {**self.settings.header, "kind": "collectors", "joins": self._joins}
        return SegmentWriter(self.settings.spool, header)

    @property
    def running(self) -> bool:
        """Whether samples are taken."""
        rooted = self.settings.target_pid and "process" in self._sets
        if self._running and rooted and not self._engine.alive(self._sets["process"]):
            self._running = False
            self.reason = "the target is gone"
        return self._running

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        now = self._engine.statistics()
        return now["dropped"], os.strerror(now["error"]) if now["error"] else None

    @property
    def statistics(self) -> dict[str, int]:
        """The engine's own figures: ticks, missed, late_ns, cpu_ns, ..."""
        return self._engine.statistics()

    def start(self, timeout_s: float = 10.0, root_io_fd: int | None = None) -> dict[str, Any]:
        """Begin; the first sample is taken before this returns.

        Raises
        ------
        MonitorUnavailableError
            Where the engine has no thread, no descriptors or no place for its segment.
        """
        settings = self.settings
        if root_io_fd is not None:  # the engine keeps one of its own
            os.close(root_io_fd)
        try:
            self._engine.start()
        except OSError as error:
            where = f" ({self._path})" if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOSPC) else ""
            raise MonitorUnavailableError(f"the native engine cannot start: {error.strerror}{where}") from error
        for pid in settings.exclude:
            self._engine.exclude(pid)
        if not settings.in_target:
            self._engine.exclude(os.getpid())
        self._watch(settings.levels)
        self.text(settings.facts)
        self.text(settings.root)
        for each in self._libraries.refused:
            self._tell(each.event())
        if self._pipeline is not None:
            self._pipeline.setup()
        self._running = True
        self._engine.go()
        if self._pipeline is not None:
            self._follow_now(0.0)
            self._follower = threading.Thread(target=self._follow, name="jumper-follower", daemon=True)
            self._follower.start()
        self.ready = ready_message(settings, "native", self._path)
        return self.ready

    @property
    def writers(self) -> list[SegmentWriter]:
        """Segments that are written from Python, to be read through their own descriptor; one may come later."""
        return [self._extra] if self._extra is not None else []

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on; see :meth:`jumper.monitor.sampling.Sampling.set_levels`."""
        self.settings.levels = tuple(levels)
        self._watch(levels)
        self._engine.node("system" in levels)
        self.text(levels_event(levels))

    def _watch(self, levels: Collection[str]) -> None:
        """Let the sets of the engine be those of the levels; `system` is none of them."""
        before = self._sets
        sets = {level: before[level] if level in before else self._new_set(level) for level in levels}
        self._sets = {level: number for level, number in sets.items() if number is not None}
        for level in before.keys() - sets.keys():
            self._engine.remove(before[level])

    def _new_set(self, level: str) -> int | None:
        settings = self.settings
        if level == "process":
            return self._engine.add_tree(settings.target_pid, settings.parents, (settings.tag or "").encode())
        if level == "user":
            return self._engine.add_owner(STREAMS["user"], os.getuid())
        job = settings.host().slurm_job
        if level == "slurm" and job is not None:
            return self._engine.add_owner(STREAMS["slurm"], os.getuid(), f"SLURM_JOB_ID={job}".encode())
        return None

    def exclude(self, pids: Collection[int]) -> None:
        """Let these processes into no level from now on."""
        for pid in pids:
            self._engine.exclude(pid)

    def tick(self) -> None:
        """Take a sample now, outside of the schedule."""
        self._engine.tick()

    def flush(self, timeout_s: float = 2.0) -> int:
        """Take a sample and write everything; return the segment's size in bytes."""
        return self._engine.flush()  # what Python collectors find is written by their thread, as they find it

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take the last sample and end; safe to call twice."""
        if not self._running and self._follower is None and not self._engine.statistics()["running"]:
            return
        self._running = False
        now = self._engine.statistics()
        self.text({"type": "end", "ticks": now["ticks"] + 1, "dropped": now["dropped"]})
        self._engine.stop()
        self._stopping.set()
        if self._follower is not None:
            self._follower.join(timeout_s)
            self._follower = None
        if self._pipeline is not None:
            self._follow_now(0.0)
            self._pipeline.close()
        if self._extra is not None:
            self._extra.text({"type": "end"})
            self._extra.close()

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        if self._path is None:
            return
        stamped = {"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **record}
        self._engine.text(json.dumps(stamped, default=str).encode() + b"\n")

    def _tell(self, record: Mapping[str, Any]) -> None:
        self._note(record)
        self.text(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        if self.settings.note is not None:
            self.settings.note(record)

    def _follow(self) -> None:
        while self._running:
            self._follow_now(_PATIENCE_S)
            if not self.running and self.on_end is not None and self.reason is not None:
                self.on_end(self.reason)
            self._stopping.wait(max(0.0, self._rest_s - self.settings.interval))

    def _follow_now(self, timeout_s: float) -> None:
        """Take the rows that the engine has, tick by tick; only the newest one is a tick of Python collectors."""
        ticks: dict[int, list[tuple[str, Row]]] = {}
        while drained := self._engine.drain(timeout_s):
            timeout_s = 0.0
            for stream, row in rows_of(drained, self._columns, self._added, self._only):
                ticks.setdefault(int(row["mono_ns"] or 0), []).append((stream, row))
        for mono_ns, rows in ticks.items():
            self._take(mono_ns, rows, newest=mono_ns == max(ticks))

    def _take(self, mono_ns: int, rows: list[tuple[str, Row]], newest: bool) -> None:
        context = new_context(mono_ns, time.time_ns())
        for name, row in rows:
            if name in LEVELS:
                context["counters"][name] = {column: v for column, v in row.items() if column != "mono_ns"}
        if newest:
            self._members(context)
        assert self._pipeline is not None
        given = {name: frozenset(counters) for name, counters in context["counters"].items()}
        self._pipeline.levels = tuple(given)  # of this tick: they may have been switched since
        found = self._pipeline.tick(mono_ns, context["wall_ns"], context, own=newest)
        stream = self.settings.stream
        if stream is not None:
            for level, written in found.items():
                if written:
                    stream(level, {"mono_ns": mono_ns, **written})
            for name, row in rows:
                if name not in LEVELS:
                    stream(name, row)
        if self._joins is not None:
            try:
                self._write_beside(mono_ns, found, given)
            except SpoolError as error:  # the folder is gone, or full
                self._joins = None
                self._note({"type": "event", "kind": "collector-off", "text": str(error)})
        for record in self._pipeline.events:
            self._tell(record)
        self._pipeline.events.clear()
        for event in self._libraries.switched_off(self._engine):  # the engine itself puts it into the segment
            self._note(event)

    def _write_beside(self, mono_ns: int, found: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> None:
        """Write what Python collectors found; a reader joins it by tick to what the engine wrote."""
        streaming = self.settings.stream is not None  # then derived columns of ours are among them
        for level, written in found.items():
            mine = {k: v for k, v in written.items() if k not in given[level] and not (streaming and is_derived(k))}
            if mine and given[level]:
                if self._extra is None:
                    self._extra = self._new_extra()
                self._extra.row(level, {"mono_ns": mono_ns, **mine})
        if self._extra is not None:
            self._extra.flush()

    def _members(self, context: CollectionContext) -> None:
        """Fill the documents' keys of single processes."""
        for level, number in self._sets.items():
            members = self._engine.members(number)
            pids = {member[0] for member in members}
            if level == "process":
                context["process_pids"] = pids
            elif level == "user":
                context["user_pids"] = pids
            else:
                context["slurm_pids"] = pids
            for pid, cpu_ns, rss, *io in members:
                context["cpu"][pid] = cpu_ns / 1e9
                context["rss"][pid] = rss
                context["io"][pid] = tuple(io)
