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
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jumper.monitor.nodefacts import node_facts
from jumper.monitor.nodelock import NodeLock
from jumper.monitor.pipeline import CollectorConfig, build_pipeline, load_config
from jumper.monitor.sampler import Sampler, Sink
from jumper.monitor.segment import SegmentWriter
from jumper.monitor.sinks import CallSink, SegmentSink
from jumper.schema.errors import JumperError
from jumper.utilities import slurm_job_id


class Agent:
    """One target, one segment, one parent.

    Parameters
    ----------
    config : mapping
        ``target_pid``, ``interval``, ``levels``, ``collectors`` (see
        :meth:`jumper.monitor.pipeline.CollectorConfig.to_json`), ``spool`` (a folder or
        None), ``header``, ``threads``, ``node_lock``, ``stream``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self.target = int(config["target_pid"])
        levels = list(config["levels"])
        facts = node_facts()
        host = SimpleNamespace(
            pid=self.target,
            process=None,
            uid=os.getuid(),
            slurm_job=slurm_job_id(),
            interval=float(config["interval"]),
            node_info=SimpleNamespace(**facts),
        )
        collectors = config.get("collectors")
        loaded = CollectorConfig.from_json(collectors) if collectors else load_config()
        streaming = bool(config.get("stream"))
        pipeline = build_pipeline(loaded, host, levels, derived=streaming)
        sinks: list[Sink] = []
        self.writer: SegmentWriter | None = None
        if config.get("spool"):
            self.writer = SegmentWriter(
                config["spool"], {"interval_s": host.interval, "kind": "samples", **config.get("header", {})}
            )
            self.writer.text(facts)
            self.writer.text({"type": "root", "pid": self.target, **config.get("root", {})})
            sinks.append(SegmentSink(self.writer, float(config.get("flush_s", 0.0)), derived=streaming))
        if streaming:
            sinks.append(CallSink(lambda stream, row: self.say({"stream": stream, "row": row}), self._note))
        lock = NodeLock(config["spool"]) if config.get("node_lock") and config.get("spool") else None
        self.sampler = Sampler(
            pipeline, levels, host.interval, self.target, sinks, threads=bool(config.get("threads")), node_lock=lock
        )
        self.facts = facts

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
        self.sampler.start()
        writer = self.writer
        message = {"status": "ready", "pid": os.getpid(), "levels": list(self.sampler.levels), **self.facts}
        message["segment"] = writer.segment_id if writer else None
        message["segment_path"] = str(writer.path) if writer else None
        self.say(message)

    def obey(self, line: str) -> bool:
        """Do one command; False where it was to stop."""
        command = json.loads(line).get("cmd")
        if command == "flush":
            if self.writer is not None:
                self.sampler.tick_now()
                self.writer.flush()
            self.say({"status": "flushed", "size": self.writer.size if self.writer else 0})
        return bool(command != "stop")

    def finish(self) -> None:
        """Take the last sample, close the segment, say so."""
        self.sampler.stop()
        if self.writer is not None:
            self.writer.text({"type": "end", "ticks": self.sampler.ticks, "dropped": self.writer.dropped})
            self.writer.close()
        size = self.writer.size if self.writer else 0
        self.say({"status": "stopped", "ticks": self.sampler.ticks, "size": size, "reason": self.sampler.reason})

    def _note(self, record: Mapping[str, Any]) -> None:
        self.say({"event": record})


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
        if not agent.sampler.running:
            break
    agent.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
