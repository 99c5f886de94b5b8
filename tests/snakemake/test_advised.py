"""A workflow that runs by its own advice: no job fails that had passed, though each keeps to what it asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import jumper
from tests.snakemake.conftest import REPOSITORY, Workflow

#: Each job holds memory that follows its input, and ends itself where the kernel's mark is above what it asked for.
SNAKEFILE = """
PARTS = range({parts})
rule all:
    input: expand("{{part}}.txt", part=PARTS)
rule hold:
    input: "{{part}}.in"
    output: "{{part}}.txt"
    resources: mem_mb=2000
    threads: 1
    shell: "{python} -S hold.py {{input}} {{resources.mem_mb}} > {{output}}"
"""
#: More than the ten that a rule by input needs: on a busy machine the peak of one or two is not sure.
PARTS = 14
HOLD = """
import os, re, sys
held = b"x" * (5000 * os.path.getsize(sys.argv[1]))
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
sys.exit(0 if peak <= 1e6 * int(sys.argv[2]) else f"{peak} bytes are more than {sys.argv[2]} MB")
"""


def test_no_job_fails_by_the_advice_that_had_passed(workflow: Callable[[str], Workflow]) -> None:
    made = workflow(SNAKEFILE.format(python=sys.executable, parts=PARTS))
    (made.folder / "hold.py").write_text(HOLD)
    for part in range(PARTS):
        (made.folder / f"{part}.in").write_bytes(b"." * (15_000 + 2_000 * part))  # 75 to 205 MB
    made.done()
    (first,) = made.runs()
    advise = [sys.executable, "-m", "jumper", "advise", str(first), "--format", "snakemake-profile"]
    profile = made.folder / "advised"
    profile.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with (profile / "config.yaml").open("w") as file:
        subprocess.run(advise, stdout=file, env=environment, check=True, timeout=100)
    made.done("--workflow-profile", "advised", "--forceall")
    before, after = (jumper.open_run(path).tasks for path in made.runs())
    assert list(before["state"]) == list(after["state"]) == PARTS * ["done"]
    asked, used = (after[name].to_numpy("float64") for name in ("memory_asked_bytes", "memory_peak_bytes"))
    assert (used <= asked).all() and asked.max() < 400e6 < before["memory_asked_bytes"].min()
    # the jobs do keep to it: half of what the largest needs is too little for it
    too_little = made.call("--set-resources", "hold:mem_mb=100", "--force", f"{PARTS - 1}.txt", logger=())
    assert too_little.returncode == 1 and "bytes are more than 100 MB" in too_little.stderr
