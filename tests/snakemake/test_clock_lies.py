"""Jobs on nodes whose wall clock is wrong and is stepped meanwhile: all that is told is right, within what is told.

The job processes have a wrong wall clock by a library that is preloaded into them, and their node's name as Slurm
gives it. What is true comes from the kernel, which no library stands before: times of files, and the monotonic clock.
"""

from __future__ import annotations

import csv
import os
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import jumper
from jumper.core.run import Run
from jumper.monitor.filesystems import filesystem_of
from jumper.monitor.segment import SegmentWriter
from tests.snakemake.conftest import CASES, PLAIN, REPOSITORY, Workflow, row

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler, which makes the library with the wrong clock"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is for Linux"),
]

SHIM = REPOSITORY / "tests/cluster/netns/clockshim.c"
S = 1_000_000_000
#: a file's time is late by a tick of the kernel, what is read of its clocks by a moment
CLOSE_NS = 20_000_000
INTERVAL_S = 0.1
#: node -> seconds that its wall clock is ahead, before and after the middle of its jobs
AHEAD = {
    "ahead": (3600, 3600),
    "away": (-1800, -1800),
    "grouped": (-1800, -1200),
    "failing": (3600, 4200),
    "served": (3600, -1800),
}
#: rule -> node. `away` has another file system; on `served`, and for the main process, a server sets the times of files
NODES = {"one": "ahead", "two": "away", "three": "grouped", "four": "grouped", "five": "failing", "six": "served"}
SNAKEFILE = f"""
localrules: all
rule all:
    input: expand("{{name}}.txt", name={list(NODES)})
for name, node in {NODES}.items():
    rule:
        name: name
        input: ["three.txt"] if name == "four" else []
        output: f"{{name}}.txt"
        benchmark: f"{{name}}.tsv"
        group: "group" if node == "grouped" else None
        params: step="" if name == "four" else f"dd if={{node}}.after of=$CLOCK_FILE conv=notrunc status=none;"
        shell:
            ': > {{rule}}.began; date +%s > {{rule}}.before; sleep 0.4;'
            ' {{params.step}} date +%s > {{rule}}.after;'
            ' : > {{rule}}.busy; python -S {CASES}/burn.py 0.4; : > {{rule}}.idle; sleep 0.3;'
            ' : > {{rule}}.ended; [ {{rule}} != five ] && touch {{output}}'
"""
SUBMIT = f"""#!/bin/sh
rule=$1 script=$2 home=$(pwd) log=$2.out
: > "$rule.given"
case $rule in
{"".join(f"{rule}) node={node} ;;" for rule, node in NODES.items())}
*) node=grouped ;;
esac
if [ $node = away ]; then
    copy=$home.away log=$home/.snakemake/batch_logs/job.log
    mkdir -p "$copy/.snakemake" "${{log%/*}}"
    cp Snakefile away.after "$copy"
    cp -r "${{script%/*}}" "$copy/.snakemake"
    sed "s|$home|$copy|g" "$script" > "$copy/job.sh"
    script=$copy/job.sh
fi
export SLURMD_NODENAME=$node CLOCK_FILE=$home/$node.clock
(
    : > "$rule.entered"
    LD_PRELOAD=$home/clock.so sh "$script"
    : > "$rule.left"
    if [ $node = away ]; then
        touch -d "@$(LD_PRELOAD=$home/clock.so date +%s)" "$log"
        cp -p "$copy/$rule".* "$home"
        cd "$copy" && find .snakemake -name "*.jobf*" -exec cp {{}} "$home/{{}}" ";"
    fi
) > "$log" 2>&1 < /dev/null &
echo "batch-$rule"
"""
CUSTOMIZE = """
import os
from jumper.monitor import serverclock
serverclock.STAMPED = {{{!r}}} if os.environ.get("SLURMD_NODENAME", "served") == "served" else set()
"""


@dataclass
class Made:
    """A run, and the folder where the kernel says when its jobs did what."""

    folder: Path
    run: Run

    def at(self, name: str) -> int:
        """When the kernel saw a file being written, UTC ns."""
        return (self.folder / name).stat().st_mtime_ns

    def error_ns(self, rule: str) -> int:
        """The largest bound that is told of the clock of its node."""
        errors = [clock["error_ns"] for clock in clocks_of(self.run, NODES[rule])]
        assert None not in errors
        return int(max(errors))


def clocks_of(run: Run, node: str) -> list[dict[str, int]]:
    """What is told of a node's clock, by segment."""
    found = [clock for name, clock in run.info["clocks"].items() if name.startswith(f"{node}.")]
    assert found, run.info["clocks"]
    return found


def true_offset_ns() -> int:
    """Wall clock - monotonic clock, which all nodes share, as this process sees it, whose clocks are right."""
    return min(time.time_ns() - time.monotonic_ns() for _ in range(9))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The workflow, run once."""
    workflow = Workflow(tmp_path_factory.mktemp("lies"))
    folder = workflow.folder
    library = folder / "clock.so"
    subprocess.run([str(COMPILER), "-O2", "-shared", "-fPIC", "-o", library, SHIM, "-ldl", "-lm"], check=True)
    for node, offsets in AHEAD.items():
        for name, offset in zip(("clock", "after"), offsets, strict=True):
            (folder / f"{node}.{name}").write_bytes(struct.pack("3d", offset, 0, 0))
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(CUSTOMIZE.format(filesystem_of(folder)))
    script = folder / "submit.sh"
    script.write_text(SUBMIT)
    script.chmod(0o755)
    path = os.pathsep.join([str(folder / "site"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    done = workflow.call(
        "-j6", "--keep-going", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", f"{script} {{rule}}",
        "--latency-wait", "60", "--seconds-between-status-checks", "1",
        logger=(*PLAIN, "--logger-jumper-interval", str(INTERVAL_S)), PYTHONPATH=path.rstrip(os.pathsep),
    )  # fmt: skip
    assert "jumper: 6 jobs measured" in done.stderr, done.stderr
    until = time.monotonic() + 60
    while len(list(folder.glob("*.left"))) < len(AHEAD) and time.monotonic() < until:
        time.sleep(0.05)
    return Made(folder, workflow.run())


def test_the_clocks_are_wrong(made: Made) -> None:
    for rule, node in NODES.items():
        before, after = AHEAD[node] if rule != "four" else AHEAD[node][1:] * 2
        for name, ahead in (("before", before), ("after", after)):
            said = int((made.folder / f"{rule}.{name}").read_text())
            assert abs(said - ahead - made.at(f"{rule}.{name}") / S) < 60, rule


@pytest.mark.parametrize("rule", NODES)
def test_a_job_began_and_ended_when_the_kernel_says_within_the_bound_that_is_told(made: Made, rule: str) -> None:
    task = row(made.run, rule)
    assert (task["node"], task["state"]) == (NODES[rule], "failed" if rule == "five" else "done")
    batch = rule if NODES[rule] != "grouped" else "GROUP"
    given, entered, left = (made.at(f"{batch}.{name}") for name in ("given", "entered", "left"))
    began, ended, error = made.at(f"{rule}.began"), made.at(f"{rule}.ended"), made.error_ns(rule) + CLOSE_NS
    assert entered - error <= task["start_ns"] <= began + error
    assert ended - error <= task["stop_ns"] <= left + error
    assert (entered - given - error) / 1e9 <= task["queued_s"] <= (began - made.run.info["created_ns"] + error) / 1e9
    assert (ended - began - CLOSE_NS) / 1e9 <= task["wall_s"] <= (left - entered + CLOSE_NS) / 1e9
    (values,) = csv.DictReader((made.folder / f"{rule}.tsv").open(), delimiter="\t") if rule != "five" else [{}]
    assert float(values.get("s", task["wall_s"])) == pytest.approx(task["wall_s"], abs=0.01)


@pytest.mark.parametrize("node", AHEAD)
def test_the_bound_that_is_told_holds_the_true_error_and_is_no_more_than_its_jobs_leave_open(
    made: Made, node: str
) -> None:
    seen = (time.time_ns() - made.run.info["created_ns"]) if node != "served" else S
    for clock in clocks_of(made.run, node):
        for name in ("offset_ns", "offset_end_ns"):
            assert abs(clock[name] - true_offset_ns()) <= clock["error_ns"] + CLOSE_NS
        assert clock["error_ns"] < seen


@pytest.fixture(scope="module")
def told(made: Made) -> Run:
    """The same segments, with one more of each node that tells what its clock is."""
    copy = made.folder / "told"
    shutil.copytree(made.run.path, copy)
    for node in AHEAD:
        with SegmentWriter(copy / "spool", {"run": made.run.info["run"]}, node=node) as writer:
            now = time.monotonic_ns()
            writer.text({"type": "clock", "offset_ns": true_offset_ns(), "error_ns": 1000, "mono_ns": now})
            writer.text({"type": "end", "mono_ns": now, "wall_ns": time.time_ns(), "ticks": 0, "dropped": 0})
    return jumper.open_run(copy)


@pytest.mark.parametrize("rule", NODES)
def test_samples_stand_where_their_job_does_and_show_its_work_when_the_kernel_saw_it(
    made: Made, told: Run, rule: str
) -> None:
    task, samples = row(made.run, rule), made.run.samples("process", NODES[rule])
    curve = samples[samples["pid"] == task["pid"]]
    times, used = curve["mono_ns"] + true_offset_ns(), curve["cpu_ns"] / 1e9
    off = task["start_ns"] - row(told, rule)["start_ns"]  # type: ignore[operator]
    assert (curve["time_ns"] - times - off).abs().max() <= CLOSE_NS
    assert used[times < made.at(f"{rule}.busy") - CLOSE_NS].max() < 0.2
    assert used[times > made.at(f"{rule}.idle") + CLOSE_NS].min() > 0.3


def test_nothing_but_places_in_time_depends_on_the_clocks(made: Made, told: Run) -> None:
    placed = ["start_ns", "stop_ns", "queued_s"]
    by_key = [run.tasks.sort_values("key", ignore_index=True) for run in (made.run, told)]
    pd.testing.assert_frame_equal(*(tasks.drop(columns=[*placed, "attempt"]) for tasks in by_key))
    ours, true = by_key
    for rule, was, says in zip(true["key"], true["start_ns"], ours["start_ns"], strict=True):
        assert abs(was - says) <= made.error_ns(rule) + CLOSE_NS, rule
    assert str(made.run.advise()) == str(told.advise())
    assert str(made.run.findings()) == str(told.findings())
