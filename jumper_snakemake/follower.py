"""What runs on each other node of a job: follows its processes there until the job's own node says that it is over.

Started by `srun` as ``python -P -m jumper_snakemake.follower``. Its stdin, the same
on all nodes, brings a line of configuration and then commands, in JSON; it answers
in JSON lines. Without a stdin it ends: who started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from jumper.monitor.filesystems import is_shared
from jumper.monitor.roots import roots
from jumper.utilities import node_name
from jumper_snakemake.site import SHARED_FLUSH_S, tell_time
from jumper_snakemake.steps import Parts


def say(message: Mapping[str, Any]) -> None:
    """Answer with one line, which `srun` carries home."""
    data = (json.dumps({"node": node_name(), **message}) + "\n").encode()
    try:
        os.write(1, data)
    except OSError:
        return


def main() -> int:
    """Follow parts of jobs as stdin says; return the exit status."""
    config = json.loads(sys.stdin.readline())
    engine = roots(
        config["backend"],
        config["interval"],
        config["spool"],
        [level for level in config["levels"].split("+") if level],
        {"kind": "snakemake", "run": config["run"]},
        flush_s=SHARED_FLUSH_S if is_shared(config["spool"]) else 0.0,
    )
    engine.start()
    tell_time(engine, config["spool"])
    parts = Parts(lambda: engine, engine.text, config["interval"])
    threading.Thread(target=parts.run, name="jumper-parts", daemon=True).start()
    say({"status": "ready"})
    for line in sys.stdin:
        message = json.loads(line)
        if message["cmd"] == "begin":
            parts.begin(message["number"], message["key"], message["attempt_id"], message["tag"])
        else:
            costs = parts.end(message["number"])
            say({"status": "ended", "number": message["number"], "costs": costs})
    parts.close()
    tell_time(engine, config["spool"])
    engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
