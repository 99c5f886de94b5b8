"""Public issues about measuring: each by what went wrong there, and the right value here.

More of them have their case beside others like it: #851, #2147, #831, #3781 and failed attempts
(test_truth.py), retries inside a job process, #284 (test_kinds.py), job ids, #226 (test_cluster.py),
what jobs cost in a report, #3416 (test_report_plugin.py).
"""

from __future__ import annotations

import csv

import pytest

from tests.snakemake.conftest import Workflow

ISSUES = """
rule all:
    input: "cached.txt", "slept.txt", "away.txt"
rule cached:
    output: "cached.txt"
    cache: True
    shell: "python -S burn.py 0.3; touch {output}"
rule slept:
    output: "slept.txt"
    run:
        import time
        time.sleep(1.5)
        open(output[0], "w").close()
rule away:
    output: "away.txt"
    shell:
        "echo $$ > away.pid; setsid -f python -S burn.py 1.2 away.done;"
        " until test -e away.done; do sleep 0.05; done; sleep 1; touch {output}"
"""
BURN = """import sys, time
while time.process_time() < float(sys.argv[1]):
    pass
for name in sys.argv[2:]:
    open(name, "w").close()
"""


@pytest.fixture(scope="module")
def issues(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    folder = tmp_path_factory.mktemp("issues")
    (folder / "Snakefile").write_text(ISSUES)
    (folder / "burn.py").write_text(BURN)
    (folder / "cache").mkdir()
    made = Workflow(folder)
    made.done("--cache", SNAKEMAKE_OUTPUT_CACHE=str(folder / "cache"))
    return made


def test_50_561_764_all_rules_are_in_one_table_without_a_directive(issues: Workflow) -> None:
    with (issues.runs()[0] / "benchmarks.tsv").open() as file:
        rows = {row["rule"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert set(rows) == {"cached", "slept", "away"}
    assert all(float(row["s"]) > 0 and float(row["max_rss"]) > 0 for row in rows.values())


def test_517_3999_the_runtime_of_python_of_a_rule_is_how_long_it_ran(issues: Workflow) -> None:
    task = issues.task("slept")
    assert 1.5 <= task["wall_s"] < 3  # type: ignore[operator]
    assert task["cpu_s"] < 0.3  # type: ignore[operator]


def test_1267_work_outside_of_the_jobs_own_processes_is_seen(issues: Workflow) -> None:
    task = issues.task("away")
    # its parent is gone, so nobody waits for it: what the samples saw
    assert task["cpu_s"] >= 1.2 * 0.97  # type: ignore[operator]
    assert "estimated" in task["flags"]  # type: ignore[operator]


def test_3620_the_process_of_a_job_is_known(issues: Workflow) -> None:
    pid = int((issues.folder / "away.pid").read_text())
    assert pid in set(issues.run().samples("process")["pid"])


def test_2238_a_rule_that_is_cached_is_measured_and_one_from_the_cache_did_not_run(issues: Workflow) -> None:
    assert issues.task("cached")["cpu_s"] >= 0.3  # type: ignore[operator]
    before = issues.runs()
    (issues.folder / "cached.txt").unlink()
    issues.done("--cache", SNAKEMAKE_OUTPUT_CACHE=str(issues.folder / "cache"))
    assert (issues.folder / "cached.txt").exists()
    assert issues.runs() == before
