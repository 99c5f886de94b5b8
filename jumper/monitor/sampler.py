"""The clock of a monitor: one thread that ticks on an absolute schedule and hands rows to sinks.

The same thread looks for new processes between ticks. A tick that comes late is
taken at once; ticks that could not be taken at all are counted, not made up.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from jumper.monitor.metrics.node import NodeCollector
from jumper.monitor.metrics.process import ProcessCollector
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.pipeline import Pipeline
from jumper.monitor.threads import ThreadReader
from jumper.utilities import parse_interval

Row = Mapping[str, Any]


class Sink(Protocol):
    """Where the rows of a tick go."""

    def tick(self, mono_ns: int, rows: Mapping[str, list[Row]]) -> None:
        """Take the rows of one tick: stream -> rows. Must not raise."""
        ...

    def event(self, record: Mapping[str, Any]) -> None:
        """Take an event record."""
        ...


class Sampler:
    """Tick a pipeline until stopped.

    Parameters
    ----------
    pipeline : Pipeline
    levels : collection of str
    interval : float
        Seconds between ticks, at least 1 ms.
    target_pid : int
    sinks : list of Sink
    own_in_target : bool
        The sampler runs inside the target: its own CPU is left out of the target's.
    threads : bool
        Also read the target's threads (stream ``thread``).
    node_lock : NodeLock, optional
        The level `system` is taken only while this is held.
    parents, exclude, tag
        See :class:`jumper.monitor.metrics.process.tree.Tree`.

    Attributes
    ----------
    running : bool
    reason : str or None
        Why it ended, where nobody stopped it.
    on_end : callable or None
        Called with the reason when it ends by itself.
    ticks, missed : int
    """

    def __init__(
        self,
        pipeline: Pipeline,
        levels: Collection[str],
        interval: float,
        target_pid: int,
        sinks: list[Sink],
        *,
        own_in_target: bool = False,
        threads: bool = False,
        parents: Collection[int] = (),
        exclude: Collection[int] = (),
        tag: str | None = None,
        node_lock: NodeLock | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.levels = tuple(levels)
        self.interval = parse_interval(interval)
        self.sinks = sinks
        self.running = False
        self.reason: str | None = None
        self.on_end: Callable[[str | None], None] | None = None
        self.ticks = self.missed = 0
        self._late_ns = 0
        self._cpu_ns = 0
        self._own_in_target = own_in_target
        self._ticking: tuple[int, int] | None = None  # the thread that ticks, and its clock when it began
        self._owner: int | None = None
        self._node: NodeCollector | None = None
        self._node_lock = node_lock
        self._threads = ThreadReader(target_pid) if threads else None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: ProcessCollector | None = None
        for backend in pipeline.backends:
            if isinstance(backend, ProcessCollector):
                self._process = backend
                backend.watch(
                    self.levels,
                    longest_s=self.interval,
                    own_cpu_ns=self._own_cpu_ns if own_in_target else None,
                    parents=parents,
                    exclude=exclude,
                    tag=tag,
                )
            elif isinstance(backend, NodeCollector):
                self._node = backend
                backend.watch(self.levels)

    @property
    def process(self) -> ProcessCollector | None:
        """The built-in process collector of the pipeline, where it has one."""
        return self._process

    @property
    def target_alive(self) -> bool:
        """Whether the target has processes left; True where none is watched."""
        source = self._process.target if self._process is not None else None
        return source is None or source.alive

    @property
    def cpu_ns(self) -> int:
        """CPU time that sampling has used so far, ns; of this process's where it is a guest in its target."""
        return self._own_cpu_ns()

    def start(self, root_io_fd: int | None = None) -> None:
        """Set the collectors up, take the first tick here, and go on in a thread.

        ``root_io_fd`` is the target's /proc/PID/io, opened while it lived; it is closed here.
        """
        self._owner = os.getpid()
        self.pipeline.setup()
        if self._process is not None and root_io_fd is not None:
            self._process.keep_io(root_io_fd)
        self.running = True
        self._tick()
        self._thread = threading.Thread(target=self._run, name="jumper-sampler", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take a last tick and end; safe to call twice, from any thread, and in a fork, where nothing happens."""
        if self._in_fork():
            return
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        with self._lock:
            was_running, self.running = self.running, False
        if was_running:
            self._tick()
        with contextlib.suppress(Exception):
            self.pipeline.close()
        if self._node_lock is not None:
            self._node_lock.release()

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next tick on; the schedule stays."""
        if self._in_fork():
            return
        with self._lock:
            self.levels = tuple(levels)
            if self._process is not None:
                self._process.switch(self.levels)
            if self._node is not None:
                self._node.watch(self.levels)

    def exclude(self, pids: Collection[int]) -> None:
        """Let these processes into no level from now on."""
        with self._lock:
            if self._process is not None:
                self._process.exclude(pids)

    def tick_now(self) -> None:
        """Take a tick now, outside of the schedule (a process is about to go)."""
        if not self._in_fork():
            self._tick()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended; return whether it has."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _in_fork(self) -> bool:
        """Whether this is a fork of the process that samples: the thread is not here, and its lock may be held."""
        return self._owner is not None and self._owner != os.getpid()

    def _own_cpu_ns(self) -> int:
        thread, began = self._ticking or (None, 0)
        # the target's clock, read in the middle of a tick, has what this tick took so far
        current = time.thread_time_ns() - began if thread == threading.get_ident() else 0
        return self._cpu_ns + current + (self._sharing_cpu_ns() if self._own_in_target else 0)

    def _sharing_cpu_ns(self) -> int:
        sharing = getattr(getattr(self._process, "target", None), "sharing", None)
        return getattr(sharing, "cpu_ns", 0)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
            self._event("monitor-lost", self.reason)
        finally:
            if not self._stop.is_set():
                self.running = False
                if self.on_end is not None:
                    self.on_end(self.reason)

    def _loop(self) -> None:
        step = round(self.interval * 1e9)
        due = time.monotonic_ns() + step
        look: float | None = 0.0
        while True:
            wait = (due - time.monotonic_ns()) / 1e9
            if look is not None and look < wait:
                if self._stop.wait(look):
                    return
                with self._lock:
                    began = time.thread_time_ns()
                    look = self._process.poll() if self._process is not None else None
                    self._cpu_ns += time.thread_time_ns() - began
                continue
            if self._stop.wait(max(0.0, wait)):
                return
            late = time.monotonic_ns() - due
            skipped = max(0, late // step)
            self.missed += skipped
            self._late_ns = late
            due += step * (skipped + 1)
            self._tick()
            look = 0.0 if self._process is not None else None
            if not self.target_alive:
                self.reason = "the target is gone"
                return

    def _tick(self) -> None:
        with self._lock:
            began = time.thread_time_ns()
            self._ticking = threading.get_ident(), began
            node = "system" in self.levels and (self._node_lock is None or self._node_lock.held())
            if self._node_lock is not None and self._node is not None:
                self._node.watch(self.levels if node else ())
                if "system" not in self.levels:  # somebody else may take it now
                    self._node_lock.release()
            self.pipeline.levels = tuple(level for level in self.levels if node or level != "system")
            mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            rows: dict[str, list[Row]] = {
                level: [{"mono_ns": mono_ns, **row}]
                for level, row in self.pipeline.tick(mono_ns, wall_ns).items()
                if row
            }
            if self._threads is not None:
                rows["thread"] = [*self._threads.read(mono_ns)]
            self.ticks += 1
            self._ticking = None
            self._cpu_ns += time.thread_time_ns() - began
            began = time.thread_time_ns()
            rows["monitor"] = [self._own_row(mono_ns)]
            events = self.pipeline.events[:]
            self.pipeline.events.clear()
            for sink in self.sinks:
                for record in events:
                    sink.event(record)
                sink.tick(mono_ns, rows)
            self._cpu_ns += time.thread_time_ns() - began

    def _own_row(self, mono_ns: int) -> dict[str, Any]:
        pss = self._sharing_cpu_ns()
        inside = self._own_in_target
        return {
            "mono_ns": mono_ns,
            "pid": os.getpid(),
            "cpu_ns": self._cpu_ns + pss if inside else time.process_time_ns(),
            "rss_bytes": None if inside else own_rss_bytes(),
            "ticks": self.ticks,
            "missed": self.missed,
            "late_ns": self._late_ns,
            "pss_cpu_ns": pss,
            "dropped": sum(getattr(sink, "dropped", 0) for sink in self.sinks),
        }

    def _event(self, kind: str, text: str) -> None:
        record = {
            "type": "event",
            "kind": kind,
            "text": text,
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
        }
        for sink in self.sinks:
            with contextlib.suppress(Exception):
                sink.event(record)


def own_rss_bytes() -> int | None:
    """Return this process's resident memory in bytes, or None where it cannot be read. Source: proc_pid_statm(5)."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
