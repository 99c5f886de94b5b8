"""Sampling one target in this process: settings in, a segment or a stream of rows out, by either engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

from jumper.monitor.nodefacts import node_facts
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.pipeline import CollectorConfig, build_pipeline, load_config
from jumper.monitor.sampler import Sampler, Sink
from jumper.monitor.segment import SegmentWriter
from jumper.monitor.sinks import CallSink, SegmentSink
from jumper.utilities import parse_interval, slurm_job_id

Stream = Callable[[str, Mapping[str, Any]], None]
Note = Callable[[Mapping[str, Any]], None]


class Settings:
    """What is sampled and where it goes; the same for both engines.

    Parameters
    ----------
    target_pid : int
    interval : float
        Seconds.
    levels : collection of str
    config : CollectorConfig, optional
        Default: what :func:`jumper.monitor.pipeline.load_config` finds.
    spool : path, optional
        Folder in which the segment is made.
    header, root : mapping, optional
        More keys for the segment's header and for the record of the target.
    threads, node_lock : bool
        Read the target's threads; take `system` only while holding the node's lock.
    stream : callable, optional
        Called with ``(stream, row)`` for every row, derived columns included.
    note : callable, optional
        Called with every event record.
    parents, exclude, tag
        See :class:`jumper.monitor.metrics.process.tree.Tree`.
    flush_s : float
        Write at most so often; 0: at every tick.
    job : mapping, optional
        As of :func:`jumper.monitor.nodefacts.node_facts`.
    """

    def __init__(
        self,
        target_pid: int,
        interval: float = 1.0,
        levels: Collection[str] = ("process",),
        config: CollectorConfig | None = None,
        spool: str | os.PathLike[str] | None = None,
        header: Mapping[str, Any] | None = None,
        root: Mapping[str, Any] | None = None,
        *,
        threads: bool = False,
        node_lock: bool = False,
        stream: Stream | None = None,
        note: Note | None = None,
        parents: Collection[int] = (),
        exclude: Collection[int] = (),
        tag: str | None = None,
        flush_s: float = 0.0,
        job: Mapping[str, int] | None = None,
    ) -> None:
        self.target_pid = target_pid
        self.interval = parse_interval(interval)
        self.levels = tuple(levels)
        self.config = config if config is not None else load_config()
        self.spool = os.fspath(spool) if spool is not None else None
        self.header = {"interval_s": self.interval, "kind": "samples", **(header or {})}
        self.root = {"type": "root", "pid": target_pid, **(root or {})}
        self.threads = threads
        self.node_lock = node_lock
        self.stream = stream
        self.note = note
        self.parents = tuple(parents)
        self.exclude = tuple(exclude)
        self.tag = tag
        self.flush_s = flush_s
        self.facts = node_facts(job)

    @property
    def in_target(self) -> bool:
        """Whether the sampler is a guest of what it samples."""
        return self.target_pid == os.getpid()

    def host(self) -> SimpleNamespace:
        """Return what collectors can have injected."""
        return SimpleNamespace(
            pid=self.target_pid,
            process=None,
            uid=os.getuid(),
            slurm_job=slurm_job_id(),
            interval=self.interval,
            node_info=SimpleNamespace(**self.facts),
        )


class Sampling(Protocol):
    """One target being sampled, by whichever engine."""

    running: bool
    reason: str | None
    ready: dict[str, Any]
    on_end: Callable[[str | None], None] | None

    def start(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Begin; return what is measured here (``pid``, ``segment``, ``segment_path``, facts of the node)."""
        ...

    def flush(self, timeout_s: float = 2.0) -> int:
        """Take a sample and write everything; return the segment's size in bytes."""
        ...

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on; it goes on sampling meanwhile."""
        ...

    def exclude(self, pids: Collection[int]) -> None:
        """Let these processes into no level from now on."""
        ...

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        ...

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take the last sample and end; safe to call twice."""
        ...


class PythonSampling:
    """The python engine in a thread of this process; parameters as in :class:`Settings`.

    Attributes
    ----------
    running : bool
    reason : str or None
        Why it ended, where nobody stopped it.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.settings = settings = Settings(*arguments, **keywords)
        streaming = settings.stream is not None
        pipeline = build_pipeline(settings.config, settings.host(), settings.levels, derived=streaming)
        sinks: list[Sink] = []
        self.writer: SegmentWriter | None = None
        if settings.spool is not None:
            self.writer = SegmentWriter(settings.spool, settings.header)
            self.writer.text(settings.facts)
            self.writer.text(settings.root)
            sinks.append(SegmentSink(self.writer, settings.flush_s, derived=streaming))
        if settings.stream is not None:
            sinks.append(CallSink(settings.stream, settings.note))
        self.sampler = Sampler(
            pipeline,
            settings.levels,
            settings.interval,
            settings.target_pid,
            sinks,
            own_in_target=settings.in_target,
            threads=settings.threads,
            parents=settings.parents,
            exclude=settings.exclude,
            tag=settings.tag,
            node_lock=NodeLock(settings.spool) if settings.node_lock and settings.spool is not None else None,
        )
        self.ready: dict[str, Any] = {}

    @property
    def running(self) -> bool:
        """Whether samples are taken."""
        return self.sampler.running

    @property
    def reason(self) -> str | None:
        """Why it ended, where nobody stopped it."""
        return self.sampler.reason

    @property
    def on_end(self) -> Callable[[str | None], None] | None:
        """Called with the reason when it ends by itself."""
        return self.sampler.on_end

    @on_end.setter
    def on_end(self, call: Callable[[str | None], None] | None) -> None:
        self.sampler.on_end = call

    @property
    def dropped(self) -> tuple[int, str | None]:
        """Blocks that could not be written, and why."""
        return (self.writer.dropped, self.writer.reason) if self.writer is not None else (0, None)

    def start(self, timeout_s: float = 10.0, root_io_fd: int | None = None) -> dict[str, Any]:
        """Begin; the first sample is taken before this returns."""
        self.sampler.start(root_io_fd)
        self.ready = ready_message(self.settings, "python", self.writer.name if self.writer is not None else None)
        return self.ready

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on; see :meth:`Sampling.set_levels`."""
        self.sampler.set_levels(levels)
        self.text(levels_event(levels))

    def exclude(self, pids: Collection[int]) -> None:
        """Let these processes into no level from now on."""
        self.sampler.exclude(pids)

    def tick(self) -> None:
        """Take a sample now, outside of the schedule."""
        self.sampler.tick_now()

    def flush(self, timeout_s: float = 2.0) -> int:
        """Take a sample and write everything; return the segment's size in bytes."""
        self.sampler.tick_now()
        if self.writer is None:
            return 0
        self.writer.flush()
        return self.writer.size

    def text(self, record: Mapping[str, Any]) -> None:
        """Append a record to the segment; on disk after the next sample."""
        if self.writer is not None:
            self.writer.text({"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **record})

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take the last sample and end; safe to call twice."""
        self.sampler.stop(timeout_s)
        if self.writer is not None:
            self.writer.text({"type": "end", "ticks": self.sampler.ticks, "dropped": self.writer.dropped})
            self.writer.close()


def ready_message(settings: Settings, engine: str, path: str | None) -> dict[str, Any]:
    """Return what :meth:`Sampling.start` returns."""
    return {
        "status": "ready",
        "engine": engine,
        "pid": os.getpid(),
        "levels": list(settings.levels),
        **settings.facts,
        "segment": os.path.splitext(os.path.basename(path))[0] if path is not None else None,
        "segment_path": path,
    }


def levels_event(levels: Collection[str]) -> dict[str, Any]:
    """Return the record that says why the series of a level begins or ends here."""
    return {"type": "event", "kind": "levels", "text": f"from here on: {', '.join(levels) or 'no level'}"}


def sampling(engine: str, *arguments: Any, **keywords: Any) -> Any:
    """Return a :class:`Sampling` in this process by an engine: ``python``, ``native``, or ``default``.

    ``default`` is native where it is built.

    Raises
    ------
    MonitorUnavailableError
        Where the native engine was asked for and is not built.
    """
    from jumper.monitor.backends import means_native

    if means_native(engine):
        from jumper.monitor.backends.native.sampling import NativeSampling

        return NativeSampling(*arguments, **keywords)
    return PythonSampling(*arguments, **keywords)
