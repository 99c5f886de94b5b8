"""Runs the thread monitor of jumper-extension in its own environment: ticks on command, CPU us a tick as answer.

Arguments: its site-packages, the spawner, the number of processes, the uid to become.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import time
import types
from typing import Any

PR_SET_DUMPABLE = 4


def monitor(site_packages: str) -> Any:
    """Return its class, without what its package's import starts (IPython, log files)."""
    sys.path.insert(0, site_packages)
    package = types.ModuleType("jumper_extension")
    package.__path__ = [os.path.join(site_packages, "jumper_extension")]
    sys.modules["jumper_extension"] = package
    return importlib.import_module("jumper_extension.monitor.backends.thread.monitor").PerformanceMonitor


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # it prints while it is imported
    site_packages, spawn, count, uid = sys.argv[1:]
    watching = monitor(site_packages)
    watching()  # imports the rest, which the other user may not be able to
    os.setgroups([])
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own /proc is root's from now on
    tree = subprocess.Popen([spawn, count, "0", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert tree.stdin is not None and tree.stdout is not None
    tree.stdout.readline()
    taken = watching()
    taken.levels = ["process"]
    taken._collect_metrics()
    print(json.dumps({"tree": tree.pid}), file=answers, flush=True)
    for line in sys.stdin:
        passes = int(line)
        began = time.thread_time_ns()
        for _ in range(passes):
            for level, row in zip(taken.levels, taken._collect_metrics(), strict=True):
                taken.nodes.add_sample("local", level, row)
        print((time.thread_time_ns() - began) / passes / 1e3, file=answers, flush=True)
    tree.stdin.close()
    tree.wait()


if __name__ == "__main__":
    main()
