"""The parent's side of an agent: start it, drain its streams, ask it to flush, stop it, all with deadlines."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jumper.monitor.lines import LineProcess
from jumper.monitor.offset import ClockOffset
from jumper.monitor.pipeline import CollectorConfig
from jumper.schema.errors import MonitorUnavailableError
from jumper.utilities import parse_interval

#: where the package lies, for an interpreter that is started with -P
_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULE = "jumper.monitor.agent"


def agent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which this interpreter finds what it finds here."""
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGE_ROOT, *sys.path]))}


class AgentProcess:
    """An agent that samples a process from outside.

    Parameters
    ----------
    target_pid : int
        0: none but who has the tag.
    interval : float
        Seconds.
    levels : collection of str
    config : CollectorConfig, optional
        Default: what :func:`jumper.monitor.pipeline.load_config` finds.
    spool : path, optional
        Folder in which it writes its segment.
    header : mapping, optional
        More keys for the segment's header.
    root : mapping, optional
        ``name``, ``kind``, ``memory_limit_bytes`` of the target.
    threads, node_lock : bool
        Read the target's threads; take `system` only while holding the node's lock.
    stream : callable, optional
        Called with ``(stream, row)`` for every row, in the reading thread.
    note : callable, optional
        Called with every event record, there too.
    engine : {"default", "python", "native"}
        Which one samples in there; default is native where it is built.
    tag : str, optional
        ``NAME=value`` in the environment of processes that belong to the target too.
    job : mapping, optional
        ``cpus`` and ``memory_bytes`` that a batch job has on the agent's node, where it cannot see them itself.
    command, environment : optional
        What to start instead of an agent on this host.

    Attributes
    ----------
    running : bool
    reason : str or None
        Why it does not run, where nobody stopped it.
    on_end : callable or None
        Called with the reason when it ends by itself.
    ready : dict
        What it said when it was ready.
    clock : ClockOffset
        Our monotonic clock minus its own, once :meth:`ask_clock` was answered.
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
        stream: Callable[[str, Mapping[str, Any]], None] | None = None,
        note: Callable[[Mapping[str, Any]], None] | None = None,
        engine: str = "default",
        tag: str | None = None,
        job: Mapping[str, int] | None = None,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._message = {
            "target_pid": target_pid,
            "interval": parse_interval(interval),
            "levels": list(levels),
            "collectors": config.to_json() if config is not None else None,
            "spool": os.fspath(spool) if spool is not None else None,
            "header": dict(header or {}),
            "root": dict(root or {}),
            "threads": threads,
            "node_lock": node_lock,
            "stream": stream is not None,
            "engine": engine,
            "tag": tag,
            "job": dict(job or {}),
        }
        self._command = list(command) or [sys.executable, "-P", "-m", MODULE]
        self._environment = environment
        self._stream = stream
        self._note = note
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process: LineProcess | None = None
        self._stopping = False
        self._owner: int | None = None
        self._configured = False
        self._excluded: set[int] = set()
        self._asked = 0
        self._clock_asked = (0, 0)
        self._farewell: str | None = None
        self.on_end: Callable[[str | None], None] | None = None
        self.ready: dict[str, Any] = {}
        self.clock = ClockOffset()
        self.running = False
        self.reason: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the agent, or of what was started to start it; or None."""
        return self._process.pid if self._process is not None else None

    def start(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Start the agent and return its ready message.

        Raises
        ------
        MonitorUnavailableError
            Where it does not answer in time, or says why it cannot.
        """
        self.launch()
        self.configure()
        if not self.confirm(timeout_s):
            self.kill()
            said = "; ".join(self._said()) or f"no answer within {timeout_s:g} s"
            raise MonitorUnavailableError(f"the agent did not start: {said}; see `jumper doctor`")
        return self.ready

    def launch(self) -> None:
        """Start the process; :meth:`configure` and :meth:`confirm` do the rest of :meth:`start`.

        Raises
        ------
        MonitorUnavailableError
            Where it cannot be started.
        """
        self._owner = os.getpid()
        environment = self._environment if self._environment is not None else agent_environment(os.environ)
        try:
            self._process = LineProcess(self._command, environment, self._hear, self._gone)
        except OSError as error:
            raise MonitorUnavailableError(f"cannot start the agent with {self._command[0]}: {error}") from error

    def configure(self, exclude: Collection[int] = (), here: str | None = None) -> None:
        """Tell the agent what to sample; called again, what it is to let into no level from then on.

        Parameters
        ----------
        exclude : collection of int, optional
            Processes that are no part of any level, of the host that ``here`` names.
        here : str, optional
            As of :func:`jumper.monitor.nodefacts.process_table`; default: the agent's host.
        """
        assert self._process is not None
        new = [pid for pid in exclude if pid not in self._excluded]
        self._excluded.update(new)
        if not self._configured:
            self._configured = self._process.send({**self._message, "exclude": new, "here": here})
        elif new:
            self._process.send({"cmd": "exclude", "exclude": new, "here": here}, 0.0)

    def confirm(self, timeout_s: float = 0.0) -> bool:
        """Return whether the agent is ready, within some time.

        Raises
        ------
        MonitorUnavailableError
            Where it says why it cannot, or has ended.
        """
        answer = self._answer(("ready", "error", "gone"), timeout_s)
        if answer is None:
            return False
        if answer["status"] != "ready":
            said = answer.get("error") or "; ".join(self._said()) or "it ended without a word"
            self.kill()
            raise MonitorUnavailableError(f"the agent did not start: {said}; see `jumper doctor`")
        self.ready = answer
        self.running = True
        return True

    def ask_clock(self) -> None:
        """Ask for the agent's clock; the answer goes into ``clock``."""
        if self._process is not None:
            self._asked += 1
            self._clock_asked = (self._asked, time.monotonic_ns())
            self._process.send({"cmd": "clock", "number": self._asked}, 0.0)

    def flush(self, timeout_s: float = 2.0) -> int:
        """Take a sample and write everything; return the segment's size in bytes (0 without an answer)."""
        answer = self._ask({"cmd": "flush"}, ("flushed", "stopped"), timeout_s)
        return int(answer["size"]) if answer else 0

    def set_levels(self, levels: Collection[str], timeout_s: float = 2.0) -> None:
        """Take these levels from the next sample on; returns when the agent has answered."""
        self._message["levels"] = list(levels)
        self._ask({"cmd": "levels", "levels": list(levels)}, ("switched", "stopped"), timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take the last sample and end the agent; safe to call twice, and before :meth:`start`."""
        self.ask_stop()
        if self._process is not None and os.getpid() == self._owner:  # a fork of the parent has no say
            self._process.end(timeout_s)

    def ask_stop(self) -> None:
        """Have the agent take the last sample and end, without waiting for it."""
        if self._process is None or self._stopping or os.getpid() != self._owner:
            return
        self._stopping = True
        self._process.send({"cmd": "stop"}, 0.1)
        self._process.hang_up()
        self.running = False

    def kill(self) -> None:
        """End it now."""
        self._stopping, self.running = True, False
        if self._process is not None and os.getpid() == self._owner:
            self._process.end(0.0)

    def _said(self) -> list[str]:
        return list(self._process.errors) if self._process is not None else []

    def _ask(self, message: Mapping[str, Any], wanted: Collection[str], timeout_s: float) -> dict[str, Any] | None:
        """Send a numbered question and return its answer; None without one."""
        if not self.running or self._process is None:
            return None
        self._asked += 1
        self._process.send({**message, "number": self._asked})
        answer = self._answer((*wanted, "gone"), timeout_s, self._asked)
        return answer if answer is not None and answer["status"] in wanted else None

    def _answer(self, wanted: Collection[str], timeout_s: float, number: int | None = None) -> dict[str, Any] | None:
        """Return the next answer of these; one to an earlier question, that came too late, is none."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if answer.get("status") in wanted and answer.get("number", number) == number:
                return answer

    def _hear(self, message: dict[str, Any]) -> None:
        if "row" in message:
            if self._stream is not None:
                self._stream(message["stream"], message["row"])
        elif "event" in message:
            if self._note is not None:
                self._note(message["event"])
        elif message.get("status") == "clock":
            number, asked_ns = self._clock_asked
            if message["number"] == number:
                self.clock.take(asked_ns, int(message["mono_ns"]), time.monotonic_ns())
        elif "status" in message:
            self._farewell = message.get("reason") or self._farewell
            self._answers.put(message)

    def _gone(self) -> None:
        if self.running and not self._stopping:
            self.running = False
            self.reason = self._farewell or "the agent ended: " + ("; ".join(self._said()) or "no reason given")
            if self.on_end is not None:
                self.on_end(self.reason)
        self._answers.put({"status": "gone"})
