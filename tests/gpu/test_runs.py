"""Whole runs on a node with devices (a stand-in of NVML): tasks, nodes, events, and each device once a node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import jumper
from jumper.monitor.backends import native_built
from jumper.monitor.metrics import here
from jumper.monitor.nodefacts import node_facts
from jumper.store.segments import read_segment
from tests.gpu.standin import A100, GIB, OTHER, Node, device, process

Nodes = Callable[..., Node]
ENGINES = ["python", *(["native"] if native_built() else [])]
#: of the longer tests one engine is enough in a normal run
LONG = [*ENGINES[1:], pytest.param("python", marks=[pytest.mark.slow] if native_built() else [])]
BACKEND = {"python": "thread", "native": "native"}

#: a command that holds 3 GiB of device 1, and computes on it half of the time between two samples of the driver
WORKS = """
import os, time
me = str(os.getpid())
text = open({path!r}).read()
def say(second):
    with open({path!r} + ".own", "w") as file:
        file.write(text.replace("1000000 45", str(1000000 + 200000 * second) + " 45") + "process d1 C " + me
                   + " {size}\\nsample 1 " + str(1000000 * (5 + second)) + " " + me + " 50 10\\n")
    os.replace(file.name, {path!r})
for second in range(4):
    say(second)
    time.sleep(1.0)
"""


def worked(node: Node, folder: Path, engine: str) -> jumper.Run:
    command = [sys.executable, "-c", WORKS.format(path=str(node.state_file), size=3 * GIB)]
    arguments = ["--interval", "0.2", "--backend", BACKEND[engine], "-o", str(folder / "RUN")]
    node.run([sys.executable, "-m", "jumper", "run", *arguments, "--", *command])
    return jumper.open_run(folder / "RUN")


@pytest.mark.parametrize("engine", LONG)
def test_a_command_has_its_gpu_seconds_memory_and_energy(node: Nodes, tmp_path: Path, engine: str) -> None:
    state = device(used=GIB, busy=90, mj=5) + device(OTHER, used=9 * GIB, busy=80, mj=1_000_000, celsius=45)
    run = worked(node(state + process(1, 2 * GIB, "d1")), tmp_path, engine)
    (task,) = run.tasks.to_dict("records")
    assert task["gpu_memory_peak_bytes"] == 3 * GIB
    # a second between two samples, half of it busy; the first one is seen at the first or the second look
    assert 1.0 - 1e-6 <= task["gpu_seconds"] <= 2.0 + 1e-6
    assert 400 - 1e-3 <= task["energy_j"] <= 800 + 1e-3  # 200 J a second, all of it its own: nobody else computes
    system = run.samples("system")
    assert system["gpu_memory_bytes"].max() == 10 * GIB
    assert system["gpu_1_temperature_c"].max() == 45
    busy = system["gpu_0_busy_ns"].dropna()
    mono = system["mono_ns"][busy.index]
    assert (busy.iloc[-1] - busy.iloc[0]) / (mono.iloc[-1] - mono.iloc[0]) == pytest.approx(0.9, rel=1e-3)
    (facts,) = run.nodes.values()
    assert (facts["num_gpus"], facts["gpu_memory"], facts["gpu_name"]) == (2, 80.0, "NVIDIA-A100")
    assert [gpu["uuid"] for gpu in facts["gpus"]] == [A100, OTHER]
    assert not len(run.events[run.events["kind"] == "collector-off"])
    (part,) = run.parts.to_dict("records")
    assert part["gpu_memory_peak_bytes"] == 3 * GIB


@pytest.mark.parametrize("engine", LONG)
def test_a_driver_that_disappears_switches_its_collector_off_alone(node: Nodes, tmp_path: Path, engine: str) -> None:
    there = node(device(used=GIB))
    code = f"""
import os, time
time.sleep(1.5)
with open({str(there.state_file)!r} + ".own", "w") as file:
    file.write("driver gone\\n")
os.replace(file.name, {str(there.state_file)!r})
time.sleep(2.5)
"""
    arguments = ["--interval", "0.2", "--backend", BACKEND[engine], "-o", str(tmp_path / "RUN")]
    there.run([sys.executable, "-m", "jumper", "run", *arguments, "--", sys.executable, "-c", code])
    run = jumper.open_run(tmp_path / "RUN")
    (said,) = run.events[run.events["kind"] == "collector-off"]["text"]
    assert "gpu_counters" in said and "Driver Not Loaded" in said
    system = run.samples("system").sort_values("mono_ns")
    assert system["gpu_memory_bytes"].iloc[0] == GIB and system["gpu_memory_bytes"].isna().iloc[-1]
    assert system["cpu_ns"].notna().all() and len(system) > 10
    (task,) = run.tasks.to_dict("records")
    assert task["state"] == "done" and task["cpu_s"] > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_monitors_have_the_documents_columns(node: Nodes, engine: str) -> None:
    code = f"""
from jumper.monitor.backends import create_monitor
import time
monitor = create_monitor({BACKEND[engine]!r}, levels=["process", "system"])
monitor.start(0.1)
def seen(level):  # a tick that was past when it was followed has no values
    found = monitor.data.view(level)
    return found.dropna(subset=["gpu_util_avg"]) if "gpu_util_avg" in found else found[:0]
deadline = time.monotonic() + 60
while min(len(seen("system")), len(seen("process"))) < 3 and time.monotonic() < deadline:
    time.sleep(0.05)
monitor.stop()
last, mine = seen("system").iloc[-1], seen("process").iloc[-1]
columns = [f"gpu_{{metric}}_{{part}}" for metric in ("util", "band", "mem") for part in ("avg", "min", "max", 0, 1)]
print(json.dumps([monitor.num_gpus, monitor.gpu_name, monitor.nodes.hardware[monitor.node].gpu_memory,
                  *(float(last[column]) for column in columns), float(mine["gpu_mem_max"])]))
"""
    state = device(used=GIB, busy=60, band=20) + device(OTHER, used=3 * GIB, busy=80, band=40)
    found = node(state).ask(code)
    assert found[:3] == [2, "NVIDIA-A100", 80.0]
    assert found[3:] == pytest.approx([70, 60, 80, 60, 80, 30, 20, 40, 20, 40, 2, 1, 3, 1, 3, 0])


@pytest.mark.parametrize("engine", LONG)
def test_each_device_is_counted_once_a_node(node: Nodes, tmp_path: Path, engine: str) -> None:
    """Of several monitors of a node the one that holds its lock takes the devices; each has its own processes'."""
    code = f"""
import os, sys, time
from jumper.monitor.sampling import sampling
name = sys.argv[1]
one = sampling({engine!r}, os.getpid(), 0.1, ("process", "system"), spool={str(tmp_path)!r}, header={{"worker": name}},
               node_lock=True)
one.start()
print("ready", flush=True)
sys.stdin.readline()
one.stop()
"""
    there = node(device(used=GIB, busy=50))
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], env=there.environment, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]  # fmt: skip
    try:
        assert all(worker.stdout is not None and worker.stdout.readline() == "ready\n" for worker in workers)
        there.say(device(used=GIB, busy=50) + "".join(process(w.pid, (n + 1) * GIB) for n, w in enumerate(workers)))
        time.sleep(2.2)
    finally:
        for worker in workers:
            worker.communicate("\n")
    holders, memory = set(), {}
    for path in tmp_path.glob("*.seg"):
        segment = read_segment(path)
        for stream, row in segment.rows():
            if row.get("gpu_memory_bytes") is None:
                continue
            if stream == "system":
                holders.add(segment.header["worker"])
            elif row["gpu_memory_bytes"]:
                memory[segment.header["worker"]] = row["gpu_memory_bytes"]
    assert len(holders) == 1
    assert memory == {"0": GIB, "1": 2 * GIB, "2": 3 * GIB}


@pytest.mark.parametrize("engine", LONG)
def test_of_many_trees_each_has_what_it_uses(node: Nodes, tmp_path: Path, engine: str) -> None:
    """As the jobs that a scheduler's process watches with one engine."""
    spool = tmp_path / "spool"
    spool.mkdir()
    there = node(device(used=GIB, busy=50))
    code = f"""
import os, subprocess, time
from jumper.monitor.roots import roots
engine = roots({engine!r}, 0.2, {str(spool)!r}, ("system",))
engine.start()
jobs = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
numbers = [engine.add(job.pid) for job in jobs]
def say(second):
    text = "device {A100} NVIDIA-A100 {80 * GIB} {4 * GIB} 50 20 0 " + str(100000 * second) + " 40 0\\n"
    for size, job in enumerate(jobs, 1):
        text += f"process d0 C {{job.pid}} {{size * {GIB}}}\\n"
        text += f"sample 0 {{(5 + second) * 1000000}} {{job.pid}} {{size * 10}} 0\\n"
    with open(os.environ["JUMPER_NVML_STATE"] + ".new", "w") as file:
        file.write(text)
    os.replace(file.name, os.environ["JUMPER_NVML_STATE"])
for second in range(4):
    say(second)
    time.sleep(1.2)
for job, number in zip(jobs, numbers):
    engine.finish(number)
    job.kill()
    job.wait()
engine.stop()
print([job.pid for job in jobs])
"""
    pids = json.loads(there.run([sys.executable, "-c", code]).stdout)
    there.run([sys.executable, "-m", "jumper", "merge", str(spool), "-o", str(tmp_path / "RUN")])
    run = jumper.open_run(tmp_path / "RUN")
    rows = run.samples("process").sort_values("mono_ns")
    seconds = {}
    for size, pid in enumerate(pids, 1):
        mine = rows[rows["pid"] == pid].dropna(subset=["gpu_memory_bytes"])
        assert mine["gpu_memory_bytes"].max() == size * GIB
        assert mine["cpu_ns"].notna().all(), "they stand in the engine's own rows"
        seconds[pid] = [(mine[name].iloc[-1] - mine[name].iloc[0]) / 1e9 for name in ("gpu_busy_ns", "gpu_energy_uj")]
    one, two = (seconds[pid] for pid in pids)
    # 10 % and 20 % of each second between samples, of which two to five were seen; energy by these parts
    assert 0.2 - 1e-6 <= one[0] <= 0.5 + 1e-6 and two[0] == pytest.approx(2 * one[0])
    assert one[1] > 0 and two[1] == pytest.approx(2 * one[1], rel=1e-6)
    assert run.samples("system")["gpu_memory_bytes"].max() == 4 * GIB


def test_without_a_device_there_is_nothing(tmp_path: Path) -> None:
    if here.gpu(1) is None:
        pytest.skip("this machine has a GPU: tests/gpu/real.py looks at it")
    facts = node_facts()
    assert (facts["num_gpus"], facts["gpu_name"]) == (0, "") and "gpus" not in facts


def test_the_doctor_says_which_devices_there_are_and_which_are_ours(node: Nodes) -> None:
    there = node(device() + device(OTHER))
    arguments = [sys.executable, "-m", "jumper", "doctor", "--json"]

    def said(**environment: str) -> tuple[str, str, str]:
        checks = json.loads(there.run(arguments, **environment).stdout)["checks"]
        (check,) = [check for check in checks if check["name"] == "GPU"]
        return check["status"], check["found"], check["next_step"]

    assert said(CUDA_VISIBLE_DEVICES="1") == (
        "ok", f"0: NVIDIA-A100 ({A100}), not for us; 1: NVIDIA-A100 ({OTHER})", ""
    )  # fmt: skip
    there.say("driver gone\n")
    status, found, step = said()
    assert status == "missing" and "Driver Not Loaded" in found and "nvidia-smi" in step
