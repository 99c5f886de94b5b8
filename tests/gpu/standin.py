"""A stand-in of NVIDIA's library for a process of its own: built with cc, loaded by the real bindings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
GIB = 1 << 30
A100 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER = "GPU-45cbf7b3-f919-7228-7a26-b06628ebefa1"
SLICES = ("MIG-3f1b2c5a-0000-5c4e-9a10-000000000001", "MIG-3f1b2c5a-0000-5c4e-9a10-000000000002")

#: what the code of a test finds: collectors as a monitor has them, and one tick of theirs
PRELUDE = """
import json, os, sys
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.gpu import GpuCollector, GpuUtilizationCollector
from jumper.monitor.metrics.handlers import PerDeviceMultiAggregateHandler

class Looks:
    def __init__(self, pid=None):
        self.counters, self.documents = GpuCollector(pid or os.getpid()), GpuUtilizationCollector()
        self.handler = PerDeviceMultiAggregateHandler("gpu_", ["util", "band", "mem"])
        self.counters.setup()

    def at(self, second, **pids):
        context = new_context(round(second * 1e9), 0)
        for level, members in pids.items():
            context[level + "_pids"] = set(members)
        rows = {}
        for level in [*pids, "system"]:
            row = self.counters.collect(level, context)
            rows[level] = {**row, **self.handler.transform(self.documents.collect(level, context), level)}
        return rows

def state(text):
    with open(os.environ["JUMPER_NVML_STATE"] + ".new", "w") as file:
        file.write(text)
    os.replace(file.name, os.environ["JUMPER_NVML_STATE"])
"""


def device(uuid: str = A100, *, used: int = 0, busy: int = 0, band: int = 0, mw: int = 0, mj: int = 0,
           celsius: int = 40, mig: int = 0, total: int = 80 * GIB) -> str:  # fmt: skip
    """A line of the stand-in's state; -1: the device does not support it."""
    return f"device {uuid} NVIDIA-A100 {total} {used} {busy} {band} {mw} {mj} {celsius} {mig}\n"


def process(pid: int, size: int, place: str = "d0", kind: str = "C") -> str:
    return f"process {place} {kind} {pid} {size}\n"


def sample(pid: int, sm: int, mem: int, at_us: int, number: int = 0) -> str:
    return f"sample {number} {at_us} {pid} {sm} {mem}\n"


def build(folder: Path, abi: int = 3) -> Path:
    """Compile the library; return its folder."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, of which the stand-in of NVML is made")
    folder = folder / f"abi{abi}"
    folder.mkdir(exist_ok=True)
    source = Path(__file__).with_name("nvml_standin.c")
    library = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-DABI={abi}", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
    return folder


class Node:
    """A node that has these devices."""

    def __init__(self, library: Path, folder: Path, state: str) -> None:
        self.state_file = folder / "state"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.endswith("VISIBLE_DEVICES")},
            "LD_LIBRARY_PATH": str(library),
            "JUMPER_NVML_STATE": str(self.state_file),
            "PYTHONPATH": str(REPOSITORY),
        }
        self.say(state)

    def say(self, state: str) -> None:
        """Let the library say this from now on."""
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text(state)
        fresh.replace(self.state_file)

    def run(self, arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program on this node."""
        done = subprocess.run(
            arguments, env={**self.environment, **environment}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def ask(self, code: str, **environment: str) -> Any:
        """Run Python code after the prelude; return what it printed as JSON on its last line."""
        return json.loads(self.run([sys.executable, "-c", PRELUDE + code], **environment).stdout.splitlines()[-1])
