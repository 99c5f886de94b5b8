"""The collector as a process of its own: samples a target, writes its segment, answers its parent.

Started as ``python -P -m jumper.monitor.agent``. Its parent sends one JSON line of
configuration and then commands; it answers in JSON lines. It ends when the target
or the parent is gone, with what it has on disk.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jumper.monitor.nodefacts import process_table
from jumper.monitor.pipeline import CollectorConfig
from jumper.monitor.sampling import Sampling, sampling
from jumper.schema.errors import JumperError


class Agent:
    """One target, one segment, one parent.

    Parameters
    ----------
    config : mapping
        ``target_pid``, ``interval``, ``levels``, ``collectors`` (see
        :meth:`jumper.monitor.pipeline.CollectorConfig.to_json`), ``spool`` (a folder or
        None), ``header``, ``root``, ``threads``, ``node_lock``, ``stream``, ``engine``,
        ``tag``, ``job``; ``exclude`` and ``here``, see
        :meth:`jumper.monitor.agent_process.AgentProcess.configure`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        collectors = config.get("collectors")
        self.sampling: Sampling = sampling(
            config.get("engine", "default"),
            int(config["target_pid"]),
            float(config["interval"]),
            config["levels"],
            CollectorConfig.from_json(collectors) if collectors else None,
            config.get("spool"),
            config.get("header"),
            config.get("root"),
            threads=bool(config.get("threads")),
            node_lock=bool(config.get("node_lock")),
            stream=(lambda stream, row: self.say({"stream": stream, "row": row})) if config.get("stream") else None,
            note=lambda record: self.say({"event": record}),
            flush_s=float(config.get("flush_s", 0.0)),
            tag=config.get("tag"),
            exclude=_of_this_host(config),
            job=config.get("job"),
        )

    def say(self, message: Mapping[str, Any]) -> None:
        """Send one line to the parent; a parent that is gone is noticed at its pipe's end."""
        data = (json.dumps(message, default=str) + "\n").encode()
        with self._lock:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except OSError:
                return

    def ready(self) -> None:
        """Start, and tell the parent what is measured here."""
        self.say(self.sampling.start())

    def obey(self, line: str) -> bool:
        """Do one command; False where it was to stop."""
        message = json.loads(line)
        command = message.get("cmd")
        if command == "flush":
            self.say({"status": "flushed", "number": message["number"], "size": self.sampling.flush()})
        elif command == "levels":
            self.sampling.set_levels(message["levels"])
            self.say({"status": "switched", "number": message["number"]})
        elif command == "exclude":
            self.sampling.exclude(_of_this_host(message))
        elif command == "clock":
            self.say({"status": "clock", "number": message["number"], "mono_ns": time.monotonic_ns()})
        return bool(command != "stop")

    def finish(self) -> None:
        """Take the last sample, close the segment, say so."""
        reason = self.sampling.reason
        self.sampling.stop()
        self.say({"status": "stopped", "size": 0, "reason": reason})


def _of_this_host(message: Mapping[str, Any]) -> Sequence[int]:
    """Return the processes that are to be excluded, where they are of this host."""
    return message.get("exclude", ()) if message.get("here") in (None, process_table()) else ()


def main() -> int:
    """Run an agent on stdin and stdout; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = sys.stdin
    try:
        agent = Agent(json.loads(lines.readline()))
        agent.ready()
    except (JumperError, OSError, ValueError, KeyError) as error:
        os.write(1, json.dumps({"status": "error", "pid": os.getpid(), "error": str(error) or repr(error)}).encode())
        return 1
    ended = threading.Event()

    def listen() -> None:
        for line in lines:
            if not agent.obey(line):
                break
        ended.set()

    def on_sigterm(signum: int, frame: object) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, on_sigterm)
    threading.Thread(target=listen, name="jumper-listen", daemon=True).start()
    while not ended.wait(0.5):
        if not agent.sampling.running:
            break
    agent.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
