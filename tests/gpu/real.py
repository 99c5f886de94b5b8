"""What jumper reads of a real NVIDIA GPU beside what `nvidia-smi` says: `python -m tests.gpu.real`.

Prints one line a figure; ends with 1 where one lies further apart than the two can by being read one after the
other, and with 0 and one line where there is no GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from jumper.monitor.metrics import here
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.gpu import GpuCollector
from jumper.monitor.metrics.gpu.sources import gpu_facts

MIB = 1 << 20
#: figure -> (our column, its unit in that of nvidia-smi, how far apart the two may be: part, and units)
FIGURES: dict[str, tuple[str, float, float, float]] = {
    "memory.used": ("memory_bytes", MIB, 0.02, 64),
    "temperature.gpu": ("temperature_c", 1, 0.0, 5),
    "power.draw": ("power_uw", 1e6, 0.3, 15),
}


def query(what: str, of: str = "gpu") -> list[list[str]]:
    """Return the rows that nvidia-smi prints."""
    command = ["nvidia-smi", f"--query-{of}={what}", "--format=csv,noheader,nounits"]
    lines = subprocess.check_output(command, text=True).splitlines()
    return [[word.strip() for word in line.split(",")] for line in lines if line.strip()]


def look(collector: GpuCollector, pids: set[int]) -> dict[str, dict[str, Any]]:
    context = new_context(time.monotonic_ns(), time.time_ns())
    context["process_pids"] = context["user_pids"] = pids
    return {level: collector.collect(level, context) or {} for level in ("user", "system")}


def compared() -> Iterator[tuple[str, float | None, float | None, bool]]:
    """Yield (figure, nvidia-smi's, ours, whether they agree)."""
    facts = gpu_facts()
    whole = [gpu for gpu in facts.get("gpus", ()) if gpu["parent"] is None]
    count = len(query("uuid"))
    yield "devices", count, len(whole), count == len(whole)
    applications = query("pid,gpu_uuid,used_memory", "compute-apps")
    collector = GpuCollector(os.getpid())
    collector.setup()
    pids = {int(pid) for pid, *_ in applications}
    look(collector, pids)
    time.sleep(2.0)
    seen = look(collector, pids)
    names = ("uuid", "memory.total", *FIGURES)
    for row in query(",".join(names)):
        theirs = dict(zip(names, row, strict=True))
        number = next((gpu["number"] for gpu in whole if gpu["uuid"] == theirs["uuid"]), None)
        yield f"{theirs['uuid']} is known", 1, int(number is not None), number is not None
        if number is None:
            continue
        has, total = float(theirs["memory.total"]), float(whole[number]["memory_bytes"] or 0) / MIB
        yield f"{number} memory.total", has, total, abs(total - has) <= 1
        for figure, (column, unit, part, units) in FIGURES.items():
            value = seen["system"].get(f"gpu_{number}_{column}")
            ours = None if value is None else value / unit
            known = theirs[figure].replace(".", "").isdigit()
            their = float(theirs[figure]) if known else None
            near = ours is their is None or (
                ours is not None and their is not None and abs(ours - their) <= units + part * their
            )
            yield f"{number} {figure}", their, ours, near
        mine = sum(float(used) for _, uuid, used in applications if uuid == theirs["uuid"] and used.isdigit())
        held = seen["user"].get(f"gpu_{number}_memory_bytes")
        yield (
            f"{number} memory of processes",
            mine,
            None if held is None else held / MIB,
            (held is None or abs(held / MIB - mine) <= 64 + 0.02 * mine),
        )
    collector.close()


def main() -> int:
    reason = here.gpu(os.getpid())
    if reason is None and shutil.which("nvidia-smi") is None:
        reason = "no nvidia-smi to compare with"
    if reason is not None:
        print(f"not compared: {reason}")
        return 0
    apart = 0
    print(f"{'figure':48} {'nvidia-smi':>14} {'jumper':>14}")
    for figure, theirs, ours, agree in compared():
        apart += not agree
        shown = ["-" if value is None else f"{value:,.1f}" for value in (theirs, ours)]
        print(f"{figure:48} {shown[0]:>14} {shown[1]:>14}  {'' if agree else 'APART'}")
    return int(apart > 0)


if __name__ == "__main__":
    sys.exit(main())
