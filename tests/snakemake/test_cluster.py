"""Jobs that a cluster runs elsewhere: with and without our environment, and without our file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jumper.core.run import Run
from jumper.monitor.segment import SegmentWriter
from jumper.store.segments import read_segment
from jumper_snakemake.compact import MOST_BYTES, bring_home, lines_of
from tests.snakemake.conftest import CASES, PLAIN, Workflow, row
from tests.snakemake.test_truth import cpu, times

#: each rule's job has another way to its node
SNAKEFILE = f"""
localrules: all
names = ["plain", "cleared", "stripped", "elsewhere", "copied", "lost"]
rule all:
    input: expand("{{name}}.txt", name=names)
for name in names:
    rule:
        name: name
        input: "in.txt"
        output: f"{{name}}.txt"
        threads: 1
        resources: mem_mb=100, runtime=3
        shell: "python -S {CASES}/burn.py 0.6; touch {{output}}; times > {{rule}}.times"
"""
#: How a job gets to its node: `elsewhere` and after it to another working copy, of which only outputs come back.
SUBMIT = """#!/bin/sh
rule=$1 script=$2 home=$(pwd) log="$2.out"
case $rule in
cleared) set -- env -i PATH="$PATH" HOME="$HOME" PYTHONPATH="$PYTHONPATH" ;;
stripped) sed -i "s/export [^&]*JUMPER_SNAKEMAKE[^&]*&&//" "$script"; set -- env -u JUMPER_SNAKEMAKE ;;
*) set -- ;;
esac
case $rule in
elsewhere | copied | lost)
    copy=$home.$rule
    mkdir -p "$copy/.snakemake" "$home/.snakemake/batch_logs" "$home/logs here"
    cp in.txt Snakefile "$copy"
    cp -r "${script%/*}" "$copy/.snakemake"
    [ "$rule" != copied ] || cp -r .snakemake/jumper "$copy/.snakemake"
    sed "s|$home|$copy|g" "$script" > "$copy/job.sh"
    script=$copy/job.sh
    case $rule in
    elsewhere) log=$home/.snakemake/batch_logs/job.log ;;
    copied) log="$home/logs here/job.log" ;;
    lost) log=$copy/job.log ;;
    esac
    ;;
esac
(
    "$@" sh "$script"
    if [ -n "$copy" ]; then
        cd "$copy" && cp "$rule.txt" "$rule.times" "$home"
        find .snakemake -name "*.jobf*" -exec cp {} "$home/{}" ";"
    fi
) > "$log" 2>&1 < /dev/null &
echo "batch-$rule"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The workflow, run once by a cluster that is this machine."""
    workflow = Workflow(tmp_path_factory.mktemp("cluster"))
    (workflow.folder / "Snakefile").write_text(SNAKEFILE)
    (workflow.folder / "in.txt").write_text("twelve bytes")
    script = workflow.folder / "submit.sh"
    script.write_text(SUBMIT)
    script.chmod(0o755)
    said = workflow.done(
        "-j6", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", f"{script} {{rule}}",
        "--latency-wait", "60", "--seconds-between-status-checks", "1", "--precommand",
        f"python -S {CASES}/burn.py 0.3",
        logger=(*PLAIN, "--logger-jumper-logs", "logs here"),
    )  # fmt: skip
    assert "jumper: 4 of 6 jobs measured" in said
    return workflow


@pytest.fixture(scope="module")
def run(made: Workflow) -> Run:
    """What was measured."""
    return made.run()


@pytest.mark.parametrize("rule", ["plain", "cleared", "elsewhere", "copied"])
def test_a_job_has_its_cost_whatever_way_it_got_there(made: Workflow, run: Run, rule: str) -> None:
    task = row(run, rule)
    # the precommand's 0.3 s are not in it
    assert cpu(task["cpu_s"], times(made.folder / f"{rule}.times"))
    assert (task["state"], task["exit_code"], task["node"]) == ("done", 0, os.uname().nodename)
    assert task["memory_peak_bytes"] > 5e6  # type: ignore[operator]
    assert task["samples"] >= 1  # type: ignore[operator]


@pytest.mark.parametrize("rule", ["plain", "cleared", "elsewhere", "copied"])
def test_what_was_asked_for_is_known_and_the_id_of_the_batch_system(run: Run, rule: str) -> None:
    task = row(run, rule)
    asked = ("threads_asked", "memory_asked_bytes", "runtime_asked_s", "input_bytes")
    assert [task[name] for name in asked] == [1, 100 * 10**6, 180, 12]
    assert task["external_id"] == f"batch-{rule}"


@pytest.mark.parametrize("rule", ["plain", "cleared", "elsewhere", "copied"])
def test_a_job_waited_from_its_submission_until_it_began(run: Run, rule: str) -> None:
    task = row(run, rule)
    began = run.info["created_ns"]
    # the precommand uses 0.3 s of CPU before the job begins
    assert 0.3 < task["queued_s"] < (task["start_ns"] - began) / 1e9 + 1  # type: ignore[operator]


def test_jobs_of_which_nothing_came_are_named(run: Run) -> None:
    missing = {entry["key"]: entry["reason"] for entry in run.info["coverage"]["missing"]}
    assert missing.keys() == {"stripped", "lost"}
    assert "nor in a log" in missing["lost"]
    for rule in missing:
        task = row(run, rule)
        assert (task["state"], task["external_id"]) == ("done", f"batch-{rule}")


def spool(folder: Path, rows: int) -> tuple[Path, int]:
    """Write a segment of one target; return it and its highest peak."""
    peaks = [(7919 * i) % 100003 for i in range(rows)]
    with SegmentWriter(folder, {"run": "r", "kind": "snakemake", "interval_s": 0.5}, node="n1") as writer:
        writer.text({"type": "task", "event": "start", "key": "k", "attempt_id": "1.1.1", "mono_ns": 5})
        for i, peak in enumerate(peaks):
            used = (15485863 * i * i) % 999983
            writer.row("process", {"mono_ns": i, "pid": 1, "cpu_ns": i * 10, "rss_bytes": used, "rss_peak_bytes": peak})
            writer.row("process", {"mono_ns": i, "pid": 2, "cpu_ns": None, "rss_bytes": used})
    return writer.path, max(peaks)


@pytest.mark.parametrize("rows", [10, 8_000])
def test_a_record_of_a_log_keeps_the_peaks_and_the_last_of_each_counter(tmp_path: Path, rows: int) -> None:
    path, peak = spool(tmp_path, rows)
    lines = lines_of(path)
    assert sum(map(len, lines)) < 1.1 * MOST_BYTES
    log, home = tmp_path / "job.log", tmp_path / "home"
    log.write_text("before\n" + "".join(f"2026-01-01T00:00:00Z stderr F {line}\nother\n" for line in lines))
    (name,) = bring_home([log, tmp_path / "none.log"], home, "r")
    segment = read_segment(home / f"{name}.seg")
    assert (segment.node, segment.header["run"], segment.torn, segment.missing) == ("n1", "r", 0, 0)
    assert [record["key"] for record in segment.records if record["type"] == "task"] == ["k"]
    first = [row for stream, row in segment.rows() if stream == "process" and row["pid"] == 1]
    assert max(row["rss_peak_bytes"] for row in first) == peak  # type: ignore[type-var]
    assert (first[-1]["mono_ns"], first[-1]["cpu_ns"]) == (rows - 1, (rows - 1) * 10)
    assert {row["cpu_ns"] for _, row in segment.rows() if row["pid"] == 2} == {None}
    assert bring_home([log], home, "r") == []


@pytest.mark.parametrize("change", ["another run", "cut", "torn"])
def test_a_record_that_is_not_whole_or_not_ours_stays_out(tmp_path: Path, change: str) -> None:
    path, _ = spool(tmp_path, 3000)
    lines = lines_of(path)
    if change == "cut":
        lines = lines[:-1]
    if change == "torn":
        lines = [lines[0][:-40], *lines[1:]]
    (tmp_path / "job.log").write_text("\n".join(lines))
    assert bring_home([tmp_path / "job.log"], tmp_path / "home", "other" if change == "another run" else "r") == []
