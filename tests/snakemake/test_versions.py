"""The oldest Snakemake, the first with logger plugins, and the newest, each in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.snakemake.conftest import PLAIN, REPOSITORY

VERSIONS = {"8.30.0": "run", "9.0.1": "logger", "9": "logger"}
WORKFLOW = """
rule all:
    input: "a.txt", "b.txt", "c.txt"
rule a:
    output: "a.txt"
    benchmark: "a.tsv"
    shell: "python3 -S -c 'sum(range(20000000))'; touch {output}"
rule b:
    output: "b.txt"
    benchmark: "b.tsv"
    run:
        open(output[0], "w").close()
rule c:
    output: "c.txt"
    retries: 1
    shell: "test -e tried || {{ touch tried; exit 1; }}; touch {output}"
"""
SUBMIT = '#!/bin/sh\nsh "$1" > "$1.log" 2>&1 < /dev/null &\necho $!\n'


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A Python with that Snakemake, and with what reads a run."""
    folder = tmp_path_factory.mktemp("version")
    venv.create(folder, with_pip=True)
    found = folder / "bin/python"
    wanted = [f"snakemake=={request.param}.*" if request.param == "9" else f"snakemake=={request.param}"]
    wanted += ["snakemake-executor-plugin-cluster-generic", "click", "msgspec", "psutil", "pyyaml", "rich", "pandas",
               "pyarrow"]  # fmt: skip
    got = subprocess.run([found, "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"it cannot be installed: {got.stderr[-300:]}")
    return request.param, found


def call(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUMPER_")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    return subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("executor", ["local", "cluster-generic"])
def test_jobs_are_measured_in_the_way_that_the_doctor_names(
    python: tuple[str, Path], executor: str, tmp_path: Path
) -> None:
    version, program = python
    way = VERSIONS[version]
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    (tmp_path / "submit.sh").write_text(SUBMIT)
    said = json.loads(call(program, tmp_path, "-m", "jumper", "doctor", "--json").stdout)
    found = {check["name"]: check for check in said["checks"] if check["area"] == "snakemake"}
    assert {name: check["status"] for name, check in found.items()} == {"way": "ok", "plugins": "ok", "hook": "ok"}
    assert ("--logger jumper" if way == "logger" else "jumper-snakemake run") in found["way"]["found"]

    snakemake = ["-m", "snakemake", "-j2"]
    if executor != "local":
        snakemake += ["--executor", executor, "--cluster-generic-submit-cmd", "sh submit.sh", "--latency-wait", "60"]
    if way == "logger":
        done = call(program, tmp_path, *snakemake, *PLAIN)
    else:
        done = call(
            program, tmp_path, "-m", "jumper_snakemake", "run", "--report", "none", "--", str(program), *snakemake
        )
    assert done.returncode == 0, done.stderr
    assert "jumper: 3 jobs measured, in 4 attempts" in done.stderr
    assert "jumper: this" not in done.stderr
    (run,) = (tmp_path / ".snakemake/jumper/runs").iterdir()
    summary = json.loads(call(program, tmp_path, "-m", "jumper", "summary", "--by", "key", "--json", str(run)).stdout)
    tasks = {(task["key"], task["attempt_id"]): task for task in summary["tasks"]}
    again = "2.1.1" if executor == "local" else "1.2.1"  # a job process applies a rule's retries itself
    assert {key: task["state"] for key, task in tasks.items()} == {
        ("a", "1.1.1"): "done",
        ("b", "1.1.1"): "done",
        ("c", "1.1.1"): "failed",
        ("c", again): "done",
    }
    assert tasks["a", "1.1.1"]["cpu_s"] > 0.1
    # nobody asked for memory; some versions do for each job of a cluster, and say so
    asked = 10**9 if executor != "local" and "mem_mb=1000" in done.stderr else None
    assert tasks["a", "1.1.1"]["memory_asked_bytes"] == tasks["b", "1.1.1"]["memory_asked_bytes"] == asked
    row = (tmp_path / "a.tsv").read_text().splitlines()[1].split("\t")
    assert float(row[-1]) == pytest.approx(tasks["a", "1.1.1"]["cpu_s"], abs=0.02)
