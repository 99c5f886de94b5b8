"""Runs where the real jumper-extension 0.4.1 is: one of our monitors in its service, or its own for a session.

Arguments: `ours` and backends, or `theirs`. Answers with one line of JSON, the last.
Only its `thread` backend is ever used: its `native_c` lowers the priority of every process of its user.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time

import matplotlib.pyplot as plt
from jumper_extension.core.service import build_perfmonitor_service
from jumper_extension.monitor.common import MonitorProtocol

from jumper.adapters.session import export_session
from jumper.monitor.backends import create_monitor


def shown(call, *arguments, **keywords):
    """What a call prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        call(*arguments, **keywords)
    return text.getvalue()


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def work(service, seconds=0.3):
    """Two cells: one computes, one holds memory."""
    with service.monitored():
        burn(seconds)
    with service.monitored():
        held = bytearray(os.urandom(1 << 20) * 64)
        time.sleep(seconds)
        del held


def ours(backend):
    monitor = create_monitor(backend)
    out = {"isinstance": isinstance(monitor, MonitorProtocol)}
    service = build_perfmonitor_service(visualizer_backend="matplotlib")
    out["check"] = shown(service.start_monitoring, interval=0.1, monitor=monitor, check_sanity=True)
    out["attached"] = service.monitor is monitor and service.reporter.printer.monitor is monitor
    work(service)
    out["resources"] = shown(service.show_resources)
    out["text"] = shown(service.show_perfreport, level="process", text=True)
    out["html"] = shown(service.show_perfreport, level="process")
    service.plot_performance(metrics=["cpu_summary", "memory"], level="process", backend="matplotlib")
    axes = [ax for number in plt.get_fignums() for ax in plt.figure(number).axes]
    out["lines"] = [len(line.get_xdata()) for ax in axes for line in ax.lines]
    plt.close("all")
    service.export_perfdata(file=f"{backend}.csv", level="process")
    service.stop_monitoring()
    service.export_session(f"{backend}.zip")
    again = build_perfmonitor_service()
    again.import_session(f"{backend}.zip")
    out["imported"] = {level: list(again.monitor.nodes.view(level=level).shape) for level in ("process", "system")}
    out["rows"] = {level: len(monitor.data.view(level)) for level in ("process", "system")}
    export_session(f"ours-{backend}.zip", monitor)
    again.import_session(f"ours-{backend}.zip")
    out["ours_imported"] = {level: len(again.monitor.nodes.view(level=level)) for level in ("process", "system")}
    return out


def theirs():
    service = build_perfmonitor_service()
    service.start_monitoring(interval=0.2, monitor_type="thread")
    work(service, 1.0)
    service.stop_monitoring()
    service.export_session("session.zip")
    return {level: len(service.monitor.nodes.view(level=level)) for level in ("process", "user", "system")}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")  # the package prints while it is imported and whenever it likes
    os.dup2(2, 1)
    result = {name: ours(name) for name in sys.argv[2:]} if sys.argv[1] == "ours" else theirs()
    print(json.dumps(result), file=answers, flush=True)
