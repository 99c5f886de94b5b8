"""Group jobs of a cluster, and attempts within attempts: each job and each attempt has a row of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumper.core.run import Run
from tests.snakemake.conftest import CASES, Workflow, row
from tests.snakemake.test_truth import cpu, times

SNAKEFILE = f"""
localrules: all
rule all:
    input: "last.txt", "again.txt"
rule first:
    output: "first.txt"
    group: "both"
    shell: "python -S {CASES}/burn.py 0.5; touch {{output}}; times > first.times"
rule second:
    output: "second.txt"
    group: "both"
    run:
        import time
        began = time.process_time()
        while time.process_time() - began < 0.4:
            pass
        open(output[0], "w").close()
rule last:
    input: "first.txt", "second.txt"
    output: "last.txt"
    group: "both"
    shell: "python -S {CASES}/burn.py 0.3; touch {{output}}; times > last.times"
rule again:  # the cluster job tries twice, and then Snakemake gives it to the cluster again
    output: "again.txt"
    retries: 1
    resources: mem_mb=lambda wildcards, attempt: 100 * attempt
    shell: "python -S {CASES}/burn.py 0.2; times > again.{{resources.mem_mb}}.times; "
        "echo >> tries; test $(wc -l < tries) -ge 3; touch {{output}}"
"""
SUBMIT = """#!/bin/sh
sh "$1" > "$1.out" 2>&1 < /dev/null &
echo batch-$!
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workflow ran."""
    made = Workflow(tmp_path_factory.mktemp("groups"))
    (made.folder / "Snakefile").write_text(SNAKEFILE)
    script = made.folder / "submit.sh"
    script.write_text(SUBMIT)
    script.chmod(0o755)
    made.done(
        "-j4", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", str(script),
        "--latency-wait", "60", "--seconds-between-status-checks", "1",
    )  # fmt: skip
    return made.folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    """What was measured."""
    return Workflow(folder).run()


def test_each_job_of_a_group_has_its_own_cost(folder: Path, run: Run) -> None:
    for rule in ("first", "last"):
        assert cpu(row(run, rule)["cpu_s"], times(folder / f"{rule}.times"))
    assert cpu(row(run, "second")["cpu_s"], 0.4)
    assert run.info["coverage"]["missing"] == []


def test_jobs_of_a_group_have_one_id_in_the_batch_system(run: Run) -> None:
    ids = {str(row(run, rule)["external_id"]) for rule in ("first", "second", "last")}
    assert len(ids) == 1
    assert ids.pop().startswith("batch-")


def test_a_try_inside_a_cluster_job_is_no_try_of_the_cluster_job(folder: Path, run: Run) -> None:
    tries = run.tasks[run.tasks["key"] == "again"].sort_values("attempt")
    assert tries["attempt_id"].tolist() == ["1.1.1", "1.2.1", "2.1.1"]
    assert tries["state"].tolist() == ["failed", "failed", "done"]
    assert tries["memory_asked_bytes"].tolist() == [100 * 10**6, 200 * 10**6, 200 * 10**6]
    assert tries["external_id"].iloc[[0, 2]].nunique() == 2
    assert cpu(tries["cpu_s"].iloc[0], times(folder / "again.100.times"))
    assert cpu(tries["cpu_s"].iloc[2], times(folder / "again.200.times"))


def test_jobs_of_a_cluster_ask_for_nothing_where_nobody_asks(folder: Path) -> None:
    """The Snakemake of each job finds 1000 MB, which neither its rule nor the main process told the cluster."""
    asked = Workflow(folder).run().tasks.set_index("key")["memory_asked_bytes"]
    assert asked[["first", "second", "last"]].isna().all()
    assert sorted(set(asked["again"])) == [100e6, 200e6]
