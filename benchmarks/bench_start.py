"""What starting costs: an agent until it is ready, and `jumper run` around a command that does nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import NotPossible, Row, Size, spread
from benchmarks.watched import tree
from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends import native_built
from jumper.monitor.metrics.process.procfs import PAGE
from jumper.monitor.pipeline import load_config

CPU_LIMIT_MS, RSS_LIMIT_MIB = 100, 20
TRUE = ["/bin/true"]


def agents(size: Size) -> Iterator[Row]:
    """Yield CPU time until an agent is ready, and what it holds then, with both engines and of a bare Python."""
    bare = [_bare() for _ in range(size.rounds)]
    for engine in ("native", "python"):
        if engine == "native" and not native_built():
            yield Row("agent, native engine", "", "", "not measured: the native engine is not built", "")
            continue
        found = [_agent(engine) for _ in range(size.rounds)]
        cpu, rss = [a for a, _ in found], [b for _, b in found]
        for what, ours, theirs, limit, digits, unit in (
            ("CPU time until it is ready", cpu, [a for a, _ in bare], CPU_LIMIT_MS, 0, " ms"),
            ("resident then", rss, [b for _, b in bare], RSS_LIMIT_MIB, 1, " MiB"),
        ):
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            middle = sorted(ours)[len(ours) // 2]
            yield Row(
                f"agent, {engine} engine, {what}; a Python that does nothing",
                spread(ours, digits, unit),
                spread(theirs, digits, unit),
                spread(ratios),
                f"under {limit}{unit}",
                middle < limit,
            )


def _agent(engine: str) -> tuple[float, float]:
    """Return CPU ms until an agent is ready and MiB that it holds then."""
    with tempfile.TemporaryDirectory() as folder, tree(1) as watched:
        config = load_config()
        agent = AgentProcess(watched.pid, 1.0, ["process", "system"], config, folder, engine=engine)
        agent.start()
        try:
            if agent.pid is None:
                raise NotPossible("the agent has no pid")
            return _used(agent.pid)
        finally:
            agent.stop()


def _bare() -> tuple[float, float]:
    """Return the same of an interpreter that only waits."""
    command = [sys.executable, "-P", "-c", "import os, sys; os.write(1, b'.'); sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.read(1)
    used = _used(process.pid)
    process.stdin.close()
    process.stdout.close()
    process.wait()
    return used


def _used(pid: int) -> tuple[float, float]:
    cpu_ns = time.clock_gettime_ns((~pid << 3) | 2)  # the process's CPU clock, clock_getcpuclockid(3)
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return cpu_ns / 1e6, resident * PAGE / 2**20


def runs(size: Size) -> Iterator[Row]:
    """Yield wall and CPU time of `jumper run` around a command that does nothing."""
    found: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        jumper = [sys.executable, "-m", "jumper", "run", "--interval", "1", "-o"]
        for number in range(size.rounds):
            found["with"].append(_run([*jumper, os.path.join(folder, str(number)), "--", *TRUE]))
            found["without"].append(_run(TRUE))
    for index, what in enumerate(("wall time", "CPU time, its own included")):
        ours, theirs = ([pair[index] for pair in found[which]] for which in ("with", "without"))
        added = spread([a - b for a, b in zip(ours, theirs, strict=True)], 0, " ms more")
        yield Row(f"jumper run -- /bin/true, {what}", spread(ours, 0, " ms"), spread(theirs, 1, " ms"), added, "")


def _run(command: list[str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1e3, cpu * 1e3
