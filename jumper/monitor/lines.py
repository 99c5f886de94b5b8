"""A child process that speaks JSON lines: every stream is drained, every wait has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any


class LineProcess:
    """Start a command and hear what it says.

    Parameters
    ----------
    command : sequence of str
    environment : mapping
    hear : callable
        Called with each message, in the reading thread; other lines are passed over.
    ended : callable, optional
        Called there after the last one.

    Raises
    ------
    OSError
        Where the command cannot be started.

    Attributes
    ----------
    errors : deque of str
        The last lines that it wrote to its stderr.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        hear: Callable[[dict[str, Any]], None],
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.errors: deque[str] = deque(maxlen=20)
        self._hear = hear
        self._ended = ended
        self._lock = threading.Lock()
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._threads = [
            threading.Thread(target=target, args=(pipe,), name="jumper-pipe", daemon=True)
            for target, pipe in ((self._drain, process.stderr), (self._read, process.stdout))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: Mapping[str, Any], timeout_s: float = 1.0) -> bool:
        """Send a message; False where it did not take all of it in time."""
        pipe = self._process.stdin
        data = (json.dumps(message) + "\n").encode()
        until = time.monotonic() + timeout_s
        with self._lock:
            while data and pipe is not None and not pipe.closed:
                try:
                    data = data[os.write(pipe.fileno(), data) :]
                except BlockingIOError:
                    left = until - time.monotonic()
                    if left <= 0 or not select.select([], [pipe], [], left)[1]:
                        break
                except OSError:
                    break
        return not data

    def hang_up(self) -> None:
        """Close its stdin."""
        if self._process.stdin is not None:
            with self._lock, contextlib.suppress(OSError):
                self._process.stdin.close()

    def end(self, timeout_s: float) -> None:
        """Close its stdin and wait; kill it where it has not ended in time. What it said has been heard then."""
        until = time.monotonic() + timeout_s
        self.hang_up()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.1, until - time.monotonic()))

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._hear(message)
        self._threads[0].join(1.0)  # a reason may have come there
        if self._ended is not None:
            self._ended()

    def _drain(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self.errors.append(line.decode("utf-8", "replace").rstrip())
