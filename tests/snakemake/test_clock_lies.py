"""Jobs on nodes whose wall clock is wrong, or is stepped meanwhile: all that is told is right, within what is told.

The job processes have a wrong wall clock by a library that is preloaded into them, and their node's name as Slurm
gives it. What is true comes from the kernel, which no library stands before: times of files, and the monotonic clock.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from jumper.core.run import Run
from jumper.monitor.filesystems import filesystem_of
from tests.snakemake.conftest import CASES, PLAIN, REPOSITORY, Workflow, row

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler, which makes the library with the wrong clock"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is for Linux"),
]

SHIM = REPOSITORY / "tests/cluster/netns/clockshim.c"
S = 1_000_000_000
#: node -> seconds that its wall clock is ahead, before and after the middle of a job
AHEAD = {
    "ahead": (3600, 3600),
    "behind": (-1800, -1800),
    "stepped": (0, 600),
    "served": (3600, 3600),
}
#: rule -> node; the file server's clock is read on `served` and by the main process
RULES = {"one": "ahead", "two": "behind", "three": "stepped", "four": "served"}
INTERVAL_S = 0.1
SNAKEFILE = f"""
localrules: all
rule all:
    input: expand("{{name}}.txt", name={list(RULES)})
for name in {list(RULES)}:
    rule:
        name: name
        output: f"{{name}}.txt"
        benchmark: f"{{name}}.tsv"
        resources: runtime=3
        shell:
            ': > {{rule}}.began; date +%s > {{rule}}.before; sleep 0.5;'
            ' dd if=$CLOCK_FILE.after of=$CLOCK_FILE conv=notrunc status=none; date +%s > {{rule}}.after;'
            ' : > {{rule}}.busy; python -S {CASES}/burn.py 0.5; : > {{rule}}.idle;'
            ' sleep 0.3; touch {{output}}; : > {{rule}}.ended'
"""
SUBMIT = f"""#!/bin/sh
: > "$1.given"
case $1 in
{"".join(f"{rule}) node={node} ;;" for rule, node in RULES.items())}
esac
(
    : > "$1.entered"
    SLURMD_NODENAME=$node CLOCK_FILE=$PWD/$node.clock LD_PRELOAD=$PWD/clock.so sh "$2"
    : > "$1.left"
) > "$1.out" 2>&1 < /dev/null &
echo "batch-$1"
"""
#: of this file system a server sets the times, as far as two nodes know
CUSTOMIZE = """
import os
from jumper.monitor import serverclock
if os.environ.get("SLURMD_NODENAME", "served") == "served":
    serverclock.STAMPED = {{{!r}}}
"""


@dataclass
class Made:
    """A run, and the folder where the kernel says when its jobs did what."""

    folder: Path
    run: Run

    def at(self, name: str) -> int:
        """When the kernel saw a file being written, UTC ns."""
        return (self.folder / name).stat().st_mtime_ns

    def error_ns(self, node: str) -> int:
        """The largest bound that is told of a node's clock."""
        errors = [clock["error_ns"] for name, clock in self.run.info["clocks"].items() if name.startswith(f"{node}.")]
        assert errors and None not in errors, self.run.info["clocks"]
        return int(max(errors))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The workflow, run once."""
    workflow = Workflow(tmp_path_factory.mktemp("lies"))
    folder = workflow.folder
    subprocess.run(
        [str(COMPILER), "-O2", "-shared", "-fPIC", "-o", folder / "clock.so", SHIM, "-ldl", "-lm"], check=True
    )
    for node, offsets in AHEAD.items():
        for name, offset in zip((f"{node}.clock", f"{node}.clock.after"), offsets, strict=True):
            (folder / name).write_bytes(struct.pack("3d", offset, 0, 0))
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(CUSTOMIZE.format(filesystem_of(folder)))
    script = folder / "submit.sh"
    script.write_text(SUBMIT)
    script.chmod(0o755)
    path = os.pathsep.join([str(folder / "site"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    said = workflow.done(
        "-j6", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", f"{script} {{rule}}",
        "--latency-wait", "60", "--seconds-between-status-checks", "1",
        logger=(*PLAIN, "--logger-jumper-interval", str(INTERVAL_S)), PYTHONPATH=path.rstrip(os.pathsep),
    )  # fmt: skip
    assert "jumper: 4 jobs measured" in said
    return Made(folder, workflow.run())


def true_offset_ns() -> int:
    """Wall clock - monotonic clock, which all nodes share, as this process with a right clock sees it."""
    return min(time.time_ns() - time.monotonic_ns() for _ in range(9))


@pytest.mark.parametrize("rule", RULES)
def test_the_clock_of_a_job_is_wrong(made: Made, rule: str) -> None:
    for name, ahead in zip(("before", "after"), AHEAD[RULES[rule]], strict=True):
        said = int((made.folder / f"{rule}.{name}").read_text())
        assert abs(said - ahead - made.at(f"{rule}.{name}") / S) < 60


@pytest.mark.parametrize("rule", RULES)
def test_a_job_began_and_ended_when_the_kernel_says_within_the_bound_that_is_told(made: Made, rule: str) -> None:
    task, node = row(made.run, rule), RULES[rule]
    error = made.error_ns(node) + 20_000_000  # a file's time is late by a tick of the kernel
    assert task["node"] == node
    assert made.at(f"{rule}.entered") - error <= task["start_ns"] <= made.at(f"{rule}.began") + error
    assert made.at(f"{rule}.ended") - error <= task["stop_ns"] <= made.at(f"{rule}.left") + error
    longest = (made.at(f"{rule}.left") - made.at(f"{rule}.given")) / 1e9
    assert error < (50_000_000 if node == "served" else (longest + 10) * S)


@pytest.mark.parametrize("node", AHEAD)
def test_the_bound_that_is_told_holds_the_true_error(made: Made, node: str) -> None:
    clocks = {name: clock for name, clock in made.run.info["clocks"].items() if name.startswith(f"{node}.")}
    assert clocks
    for clock in clocks.values():
        for name in ("offset_ns", "offset_end_ns"):
            assert abs(clock[name] - true_offset_ns()) <= clock["error_ns"] + 1_000_000
