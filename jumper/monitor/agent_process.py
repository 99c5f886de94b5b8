"""The parent's side of an agent: start it, drain its streams, ask it to flush, stop it, all with deadlines."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import IO, Any

from jumper.monitor.pipeline import CollectorConfig
from jumper.schema.errors import MonitorUnavailableError
from jumper.utilities import parse_interval

#: where the package lies, for an interpreter that is started with -P
_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class AgentProcess:
    """An agent that samples a process from outside.

    Parameters
    ----------
    target_pid : int
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

    Attributes
    ----------
    running : bool
    reason : str or None
        Why it does not run, where nobody stopped it.
    on_end : callable or None
        Called with the reason when it ends by itself.
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
        }
        self._stream = stream
        self._note = note
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._owner: int | None = None
        self._asked = 0
        self._farewell: str | None = None
        self.on_end: Callable[[str | None], None] | None = None
        self.ready: dict[str, Any] = {}
        self.running = False
        self.reason: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the agent, or None."""
        return self._process.pid if self._process is not None else None

    def start(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Start the agent and return its ready message.

        Raises
        ------
        MonitorUnavailableError
            Where it does not answer in time, or says why it cannot.
        """
        self._owner = os.getpid()
        path = os.pathsep.join(filter(None, [_PACKAGE_ROOT, *sys.path]))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jumper.monitor.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        except OSError as error:
            raise MonitorUnavailableError(f"cannot start the agent with {sys.executable}: {error}") from error
        assert self._process.stdout is not None and self._process.stderr is not None
        for target, pipe in ((self._read, self._process.stdout), (self._drain, self._process.stderr)):
            threading.Thread(target=target, args=(pipe,), name="jumper-agent-pipe", daemon=True).start()
        self._send(self._message)
        answer = self._answer(("ready", "error"), timeout_s)
        if answer is None or answer["status"] == "error":
            said = answer["error"] if answer else "; ".join(self._errors) or f"no answer within {timeout_s:g} s"
            self._end(1.0)
            raise MonitorUnavailableError(f"the agent did not start: {said}; see `jumper doctor`")
        self.ready = answer
        self.running = True
        return answer

    def flush(self, timeout_s: float = 2.0) -> int:
        """Take a sample and write everything; return the segment's size in bytes (0 without an answer)."""
        answer = self._ask({"cmd": "flush"}, ("flushed", "stopped"), timeout_s)
        return int(answer["size"]) if answer else 0

    def set_levels(self, levels: Collection[str], timeout_s: float = 2.0) -> None:
        """Take these levels from the next sample on; returns when the agent has answered."""
        self._ask({"cmd": "levels", "levels": list(levels)}, ("switched", "stopped"), timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take the last sample and end the agent; safe to call twice, and before :meth:`start`."""
        if self._process is None or self._stopping or os.getpid() != self._owner:  # a fork of the parent has no say
            return
        self._stopping = True
        self._send({"cmd": "stop"})
        self._end(timeout_s)
        self.running = False

    def _send(self, message: Mapping[str, Any]) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is None:
            return
        with contextlib.suppress(OSError, ValueError):
            pipe.write((json.dumps(message) + "\n").encode())
            pipe.flush()

    def _ask(self, message: Mapping[str, Any], wanted: Collection[str], timeout_s: float) -> dict[str, Any] | None:
        """Send a numbered question and return its answer; None without one."""
        if not self.running:
            return None
        self._asked += 1
        self._send({**message, "number": self._asked})
        return self._answer(wanted, timeout_s, self._asked)

    def _answer(self, wanted: Collection[str], timeout_s: float, number: int | None = None) -> dict[str, Any] | None:
        """Return the next answer of these; one to an earlier question, that came too late, is none."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = self._answers.get(timeout=left)
            except queue.Empty:
                return None
            if answer.get("status") in wanted and answer.get("number", number) == number:
                return answer
            if answer.get("status") == "gone":
                return None
        return None

    def _end(self, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "row" in message and self._stream is not None:
                self._stream(message["stream"], message["row"])
            elif "event" in message and self._note is not None:
                self._note(message["event"])
            elif "status" in message:
                self._farewell = message.get("reason") or self._farewell
                self._answers.put(message)
        if self.running and not self._stopping:
            self.running = False
            self.reason = self._farewell or "the agent ended: " + ("; ".join(self._errors) or "no reason given")
            if self.on_end is not None:
                self.on_end(self.reason)
        self._answers.put({"status": "gone"})

    def _drain(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._errors.append(line.decode("utf-8", "replace").rstrip())
