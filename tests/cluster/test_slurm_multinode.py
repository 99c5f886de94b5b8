"""The monitor of all nodes of a job on a real Slurm: whom it sees and holds up, and what it says of nodes that go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.cluster.beds import HERE, NETNS, Console, Slurm, slurm

__all__ = ["slurm"]

REPOSITORY = HERE.parent.parent
NODES = ["node1", "node2", "node3"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
#: A rank: waits for a file, holds 100 MB times the number of its node, uses CPU time, says how much, and ends.
RANK = """
import os, sys, time
node = os.environ["SLURMD_NODENAME"]
held = bytearray(b"x") * (int(node[-1]) * 100 * 10**6)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
before = time.process_time()
while time.process_time() < before + 0.6:
    pass
used = time.process_time()
time.sleep(1.0)
print(node, used)
"""
BEGIN = """
import os, subprocess, sys, time
from jumper.monitor.backends.slurm_multinode import SlurmMultinodeMonitor
def table(level="process", node=None):
    return monitor.nodes.view(level, node).to_json()
def start(*words):  # without our stdin, which srun would read to its end
    return subprocess.Popen(["srun", *words], stdin=-3, stdout=-1, text=True)
def ask(*words):
    return start(*words).communicate(timeout=60)[0]
monitor = SlurmMultinodeMonitor(ready_s=60)
"""


@contextmanager
def allocation(slurm: Slurm) -> Iterator[Console]:
    """A Python in an allocation of three nodes, on the login host."""
    allocate = ["salloc", "-Q", "--no-kill", "-N3", "--ntasks-per-node=3"]
    command = [slurm.folder / "run-in", "head", *allocate, sys.executable, HERE / "console.py"]
    process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=ENVIRONMENT)
    try:
        console = Console(process)
        console(BEGIN)
        yield console
    finally:
        process.communicate(timeout=60)


@pytest.fixture
def console(slurm: Slurm) -> Iterator[Console]:
    """A Python in an allocation, for one test."""
    with allocation(slurm) as made:
        yield made


def frame(console: Console, node: str | None = None) -> pd.DataFrame:
    return pd.DataFrame(json.loads(console("table(node=node)", node=node)))


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something; return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.1)
    return found


def ranks(console: Console, folder: Path) -> dict[str, float]:
    """Run a rank on each node at the same time; return the CPU seconds that each says it used."""
    (folder / "rank.py").write_text(RANK)
    go = folder / "go"
    console('step = start("-N3", "-n3", sys.executable, "-S", rank, go)', rank=str(folder / "rank.py"), go=str(go))
    time.sleep(1.0)
    go.touch()
    return {node: float(used) for node, used in map(str.split, console("step.communicate()[0]").splitlines())}


@pytest.fixture(scope="module")
def measured(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a monitor measured of ranks on three nodes, one of which has a clock that is 120 s ahead."""
    with allocation(slurm) as console:
        try:
            subprocess.run(["bash", NETNS, "clock", slurm.folder, "node2", "120"], check=True, capture_output=True)
            ahead = float(console('ask("-N1", "-n1", "--nodelist=node2", "date", "+%s")')) - time.time()
            assert 100 < ahead < 140
            console('sleeper = start("-N3", "-n3", "sleep", "600")')
            steps = 'subprocess.run(["squeue", "-hs"], capture_output=True, text=True).stdout'
            until(lambda: "sleep" in console(steps))
            console("monitor.start(0.2)")  # it does not wait for a step that has all of the job
            assert console("monitor.nodes.node_names()") == NODES
            assert console("sleeper.poll(), sleeper.terminate(), sleeper.wait() != 0")[::2] == [None, True]
            names = console('ask("-N3", "-n3", "hostname")').split()
            assert sorted(names) == NODES, "nor does a step that wants all of it"
            used = ranks(console, tmp_path_factory.mktemp("ranks"))
            console("monitor.stop()")
        finally:
            subprocess.run(["bash", NETNS, "clock", slurm.folder, "node2", "0"], check=True, capture_output=True)
        told = ("coverage", "num_cpus", "num_system_cpus", "memory_limits", "start_time", "stop_time")
        return {
            "used": used,
            "frames": {node: frame(console, node) for node in NODES},
            "joined": frame(console),
            "same": console("monitor.data.view('process').equals(monitor.nodes.view('process'))"),
            **{name: console(f"monitor.{name}") for name in told},
        }


def test_three_nodes_are_measured_beside_the_steps_of_the_job(measured: dict[str, Any]) -> None:
    assert sorted(measured["used"]) == NODES
    for number, node in enumerate(NODES, 1):
        samples, used = measured["frames"][node], measured["used"][node]
        assert number * 0.1e9 < samples["memory"].max() * 2**30 < number * 0.1e9 + 40e6, "of the ranks on this node"
        assert used <= samples["cpu_ns"].max() / 1e9 < used + 0.5
        assert samples["processes"].iloc[-1] == 0, "the agents are there, but not counted"
    assert measured["joined"]["memory"].max() * 2**30 == pytest.approx(0.6e9, abs=0.1e9)
    assert measured["same"]
    assert measured["coverage"]["missing"] == []
    cpus = os.cpu_count() or 1
    assert (measured["num_cpus"], measured["num_system_cpus"]) == (3 * min(3, cpus), 3 * cpus)
    assert measured["memory_limits"]["slurm"] == pytest.approx(3 * 600 / 1024)


def test_a_clock_that_is_120_s_ahead_changes_nothing(measured: dict[str, Any]) -> None:
    busy = {}
    for node, samples in measured["frames"].items():
        assert samples["time"].between(measured["start_time"], measured["stop_time"]).all()
        busy[node] = samples["time"][samples["cpu_ns"] > 3e8].iloc[0]
    assert max(busy.values()) - min(busy.values()) < 10, "all ranks began at the same moment"
    errors = [node["clock_error_ns"] for node in measured["coverage"]["nodes"].values()]
    assert all(0 < error < 2e9 for error in errors)


def test_a_monitor_on_a_node_of_the_job_is_not_in_its_numbers(console: Console, tmp_path: Path) -> None:
    script = tmp_path / "inside.py"
    script.write_text(
        BEGIN
        + "monitor.start(0.2)\n"
        + "while len(monitor.data) < 8: time.sleep(0.1)\n"
        + "monitor.stop()\n"
        + "import json\n"
        + "print(json.dumps([[node, float(monitor.nodes.view('process', node)['processes'].max())] "
        + "for node in monitor.nodes.node_names()]))\n"
    )
    said = console('ask("-N1", "-n1", "--nodelist=node2", sys.executable, script)', script=str(script))
    assert json.loads(said) == [["node1", 0], ["node2", 1], ["node3", 0]], "itself, neither agents nor who starts them"


def test_a_node_without_power_is_told_within_three_intervals_and_comes_back(slurm: Slurm, console: Console) -> None:
    interval = 1.5
    console("monitor.start(interval)", interval=interval)
    try:
        until(lambda: console("len(monitor.data)") >= 2)
        subprocess.run(["bash", NETNS, "kill", slurm.folder, "node3"], check=True, capture_output=True)
        event = until(lambda: console("monitor.events"))[0]
        assert (event["kind"], event["node"]) == ("node-lost", "node3")
        after = event["mono_ns"] / 1e9 - frame(console, "node3")["time"].max()
        assert after < 3 * interval
        assert "node3" in console("monitor.coverage")["missing"][0]
        others = console("len(monitor.nodes.view('process', 'node1'))")
        until(lambda: console("len(monitor.nodes.view('process', 'node1'))") > others + 1)
    finally:
        restart = ["bash", HERE / "slurm" / "up.sh", "3", slurm.folder]
        subprocess.run(restart, env={**os.environ, "ACCOUNTING": "0"}, check=True, capture_output=True)
    until(lambda: [event["kind"] for event in console("monitor.events")] == ["node-lost", "node-back"])
    samples = console("len(monitor.nodes.view('process', 'node3'))")
    until(lambda: console("len(monitor.nodes.view('process', 'node3'))") > samples)
    console("monitor.stop()")
    assert console("monitor.coverage")["missing"] == []
    assert console("monitor.coverage")["nodes"]["node3"]["gap_s"] > 0
    assert frame(console, "node3")["time"].is_monotonic_increasing, "though its monotonic clock began anew"


def run_block(slurm: Slurm, folder: Path, code: str) -> str:
    """Run a block of a document in an allocation of three nodes; return what it printed."""
    (folder / "block.py").write_text(code)
    command = ["salloc", "-Q", "-N3", "--ntasks-per-node=2", sys.executable, "block.py"]
    done = slurm.run(*command, cwd=folder, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_the_documents_block_runs_as_it_stands(slurm: Slurm, tmp_path: Path) -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "tests/documents/slurm_monitor.md").read_text(), re.DOTALL
    )
    drive = "# Drive a distributed workload"
    assert drive in code
    workload = "import subprocess\nsubprocess.run(['srun', '-N3', '-n3', 'sleep', '1.5'], check=True)\n"
    run_block(
        slurm, tmp_path, code.replace("/opt/conda/envs/hpc/bin/python", sys.executable).replace(drive, workload + drive)
    )
    table = pd.read_csv(tmp_path / "runs/2026-04-21/perf.csv")
    assert len(table) >= 2
    assert table["processes"].max() >= 1
    lines = [json.loads(line) for line in (tmp_path / "runs/2026-04-21/jumper_multinode.jsonl").open()]
    assert {line["node"] for line in lines if line["type"] == "sample"} == set(NODES)


def test_the_page_s_block_runs_as_it_stands(slurm: Slurm, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs/slurm.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "solver").write_text("#!/bin/sh\nsleep 1.5\n")
    (tmp_path / "solver").chmod(0o755)
    said = run_block(slurm, tmp_path, code)
    assert "'expected': 3, 'came': 3, 'missing': []" in said
    assert (tmp_path / "nodes.jsonl").exists()
