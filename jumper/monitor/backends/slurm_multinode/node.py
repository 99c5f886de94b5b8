"""One node of a job: the agent that samples there, when it was lost, and when it came back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jumper.adapters.data import NodeInfo, PerformanceData
from jumper.config.libraries import LEVELS
from jumper.monitor.agent_process import AgentProcess
from jumper.schema.errors import MonitorUnavailableError

#: a node is lost after so many intervals without a sample, but not before so many seconds
SILENT_INTERVALS, SILENT_S = 2.5, 1.0
#: how soon a new agent is tried where one has ended, or is silent, and after how long at the latest
RETRY_S, RETRY_SILENT_S, RETRY_MOST_S = 1.0, 5.0, 60.0
#: how long a new agent may take to answer
PATIENCE_S = 60.0
#: how often the node's clock is asked for, and until its offset is known
CLOCK_S, CLOCK_SOON_S = 10.0, 0.2

Row = Mapping[str, Any]


class _Placed:
    """An agent whose rows wait until it is known where its clock is.

    Attributes
    ----------
    heard : bool
        A row has come since this was last set to False.
    """

    def __init__(self, take: Callable[[str, Row, int], None]) -> None:
        self.agent: AgentProcess
        self.heard = False
        self._take = take
        self._waiting: list[tuple[str, Row]] = []
        self._lock = threading.Lock()

    def hear(self, stream: str, row: Row) -> None:
        """Take a row of the agent."""
        self.heard = True
        if stream in LEVELS:
            with self._lock:
                self._waiting.append((stream, row))
            self.flush()

    def flush(self) -> None:
        """Hand on what waits, where the clock is known."""
        offset_ns = self.agent.clock.offset_ns
        if offset_ns is None:
            return
        with self._lock:
            for stream, row in self._waiting:
                self._take(stream, row, offset_ns)
            self._waiting.clear()


class Node:
    """A node and its samples.

    Parameters
    ----------
    name : str
        As Slurm has it.
    make : callable
        Returns a new agent for it; called with its stream.
    interval, start_time : float
        Seconds; monotonic seconds before which no sample can be.
    sample, event : callable
        ``sample(node, level, row)`` and ``event(node, kind, text)``.

    Attributes
    ----------
    info : NodeInfo or None
        Its hardware, once it has answered.
    data : PerformanceData
    state : {"starting", "measured", "lost"}
    reason : str or None
        Why it is not measured.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[str, Callable[[str, Row], None]], AgentProcess],
        interval: float,
        start_time: float,
        sample: Callable[[str, str, Row], None],
        event: Callable[[str, str, str], None],
    ) -> None:
        self.name = name
        self.info: NodeInfo | None = None
        self.data = PerformanceData()
        self.data.start_time = start_time
        self.state = "starting"
        self.reason: str | None = None
        self._failures = 0
        self._lost_s = 0.0
        self._ended: float | None = None
        self._make = make
        self._sample = sample
        self._event = event
        self._silent_s = max(SILENT_S, SILENT_INTERVALS * interval)
        self._start_time = start_time
        self._agent: _Placed | None = None
        self._next: _Placed | None = None
        self._ready = False
        self._since = self._asked = self._tried = time.monotonic()
        self._retry_s = RETRY_S
        self._quiet_s = 0.0

    @property
    def pids(self) -> list[int]:
        """Processes on this host that carry what the node says."""
        agents = [placed.agent.pid for placed in (self._agent, self._next) if placed is not None]
        return [pid for pid in agents if pid is not None]

    @property
    def gone(self) -> bool:
        """Whether its agent has ended and no other could be started."""
        return self._agent is None and self._failures > 1

    @property
    def gap_s(self) -> float:
        """How long it was not measured."""
        now = time.monotonic() if self._ended is None else self._ended
        return self._lost_s + (now - self._since if self.state == "lost" else 0.0)

    @property
    def clock_error_ns(self) -> int | None:
        """How far its samples may be off in time, at most; None where its clock is not known."""
        clock = self._agent.agent.clock if self._agent is not None else None
        return clock.error_ns if clock is not None and clock.offset_ns is not None else None

    def launch(self) -> None:
        """Start an agent on the node; :meth:`configure` goes on."""
        placed = _Placed(self._take)
        placed.agent = self._make(self.name, placed.hear)
        self._tried, self._ready = time.monotonic(), False
        try:
            placed.agent.launch()
        except MonitorUnavailableError as error:
            self._failed(str(error))
        else:
            self._next = placed

    def configure(self, exclude: Collection[int], here: str | None) -> None:
        """Tell a new agent what to sample, and the one that samples what is not to be in it."""
        for placed in (self._agent, self._next):
            if placed is not None:
                placed.agent.configure(exclude, here)

    def look(self, elapsed: float) -> bool:
        """Look how the node is; `elapsed` seconds have passed since the last look. Return whether it wants an agent."""
        if self._agent is not None:
            self._look_at(self._agent, elapsed)
        if self._next is not None:
            self._look_for(self._next)
        wanted = self._agent is None or self.state == "lost"
        return wanted and self._next is None and time.monotonic() - self._tried >= self._retry_s

    def miss(self, reason: str) -> None:
        """Say that the node did not answer in time; it may still come."""
        if self.state == "starting":
            self._event(self.name, "node-missing", reason)
            self.state, self.reason = "lost", reason

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on."""
        if self._agent is not None and self.state == "measured":
            self._agent.agent.set_levels(levels)

    def flush(self) -> int:
        """Take a sample now."""
        return self._agent.agent.flush(0.5) if self._agent is not None and self.state == "measured" else 0

    def ask_stop(self) -> None:
        """Have its agent take a last sample and end; one that does not answer is ended at once."""
        self._ended = time.monotonic()
        if self._next is not None:
            self._next.agent.kill()
        if self._agent is not None and self.state == "measured":
            self._agent.agent.ask_stop()
        elif self._agent is not None:
            self._agent.agent.kill()

    def stop(self, timeout_s: float) -> None:
        """Wait until its agent has ended."""
        if self._agent is not None:
            self._agent.agent.stop(timeout_s)

    def _look_at(self, placed: _Placed, elapsed: float) -> None:
        agent = placed.agent
        if not agent.running:
            self._agent = None
            self._lose(agent.reason or "its agent ended", RETRY_S)
            agent.kill()
            return
        if placed.heard:
            placed.heard, self._quiet_s = False, 0.0
            if self.state == "lost":
                self._regain()
        else:
            self._quiet_s += elapsed
            if self._quiet_s > self._silent_s:
                self._lose(f"no sample for {self._quiet_s:.1f} s", RETRY_SILENT_S)
        if time.monotonic() - self._asked >= CLOCK_S:
            self._asked = time.monotonic()
            agent.ask_clock()

    def _look_for(self, placed: _Placed) -> None:
        """See whether a new agent has answered, and told its clock."""
        agent, now = placed.agent, time.monotonic()
        try:
            if not self._ready:
                self._ready = agent.confirm()
                self._asked = 0.0
            if self._ready and not agent.running:
                raise MonitorUnavailableError(agent.reason or "it ended at once")
        except MonitorUnavailableError as error:
            self._next = None
            self._failed(str(error))
            return
        if self._ready and agent.clock.offset_ns is None and now - self._asked >= CLOCK_SOON_S:
            self._asked = now
            agent.ask_clock()
        if agent.clock.offset_ns is not None:
            self._become(placed)
        elif now - self._tried > PATIENCE_S:
            self._next = None
            agent.kill()
            self._failed(f"no answer within {PATIENCE_S:g} s")

    def _become(self, placed: _Placed) -> None:
        before, self._agent, self._next = self._agent, placed, None
        if before is not None:
            before.agent.kill()
        ready = placed.agent.ready
        known = {name: ready[name] for name in NodeInfo.__dataclass_fields__ if name in ready}
        self.info = NodeInfo(**{**known, "node": self.name})
        self.data.num_cpus, self.data.num_system_cpus = self.info.num_cpus, self.info.num_system_cpus
        self.data.num_gpus = self.info.num_gpus
        self._failures, self._quiet_s = 0, 0.0
        if self.state == "lost":
            self._regain()
        self.state, self.reason = "measured", None
        placed.flush()

    def _lose(self, reason: str, retry_s: float) -> None:
        if self.state == "measured":
            self.state, self._since = "lost", time.monotonic() - self._quiet_s
            self._tried, self._retry_s = time.monotonic(), retry_s
            self._event(self.name, "node-lost", reason)
        self.reason = reason

    def _regain(self) -> None:
        gap = time.monotonic() - self._since
        self._lost_s += gap
        self.state, self.reason = "measured", None
        if self._next is not None:
            self._next.agent.kill()
            self._next = None
        self._event(self.name, "node-back", f"there after {gap:.1f} s without it")

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self.miss(reason)
        self.reason = reason
        self._retry_s = min(RETRY_MOST_S, 2 * self._retry_s)

    def _take(self, level: str, row: Row, offset_ns: int) -> None:
        time_s = max(self._start_time, (row["mono_ns"] + offset_ns) / 1e9)
        clean = {name: value for name, value in row.items() if name not in ("mono_ns", "pid")}
        sample = {"time": time_s, **clean}
        self.data.add_sample(level, sample)
        self._sample(self.name, level, sample)
