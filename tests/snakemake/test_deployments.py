"""Jobs behind a prefix, of conda or apptainer, and scripts of other languages: each with all that it cost.

Neither conda, apptainer, Julia nor rust-script is asked of a machine that runs these tests: programs stand in for them
that do what Snakemake asks of them, conda's by sourcing a file, apptainer's in a PID namespace of its own, those of the
languages by running what a comment of the script says. The preamble before it is Snakemake's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snakemake.conftest import Workflow
from tests.snakemake.test_truth import times

CONDA = """#!/bin/sh
case "$*" in
"info --json") echo '{{"conda_prefix": "{prefix}", "platform": "linux-64"}}' ;;
*--version) echo "conda 24.9.0" ;;
*"--get channel_priority"*) echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
*"env create"*)
    while [ "$1" != --prefix ]; do shift; done
    mkdir -p "$2/bin" ;;
esac
"""
ACTIVATE = """
export CONDA_PREFIX="$1"
PATH="$1/bin:$PATH"
"""
#: What is behind the image's name is run, by PID 1 of a namespace where the kernel allows one.
APPTAINER = """#!/bin/sh
[ "$1" = --version ] && exec echo "apptainer version 1.3.4"
while [ "${{1%.sif}}" = "$1" ]; do shift; done
shift
exec {apart} "$@"
"""
#: `rust-script -d NAME=VERSION ... FILE -- ...` runs what it has compiled as its child.
RUST_SCRIPT = """#!/bin/sh
while [ "$1" = -d ]; do shift 2; done
[ "$2" = -- ] && grep -q "static ref snakemake: Snakemake" "$1" && sh -c "$(sed -n "s,^// run: ,,p" "$1")"
"""
JULIA = """#!/bin/sh
[ $# = 1 ] && grep -q "struct Snakemake" "$1" && eval "$(sed -n "s,^# run: ,,p" "$1")"
"""
SNAKEFILE = """
rule conda:
    output: "conda.txt"
    conda: "env.yaml"
    benchmark: "conda.tsv"
    shell: 'test -d "$CONDA_PREFIX"; python3 -S burn.py; times > {output}'
rule apptainer:
    output: "apptainer.txt"
    container: "image.sif"
    benchmark: "apptainer.tsv"
    shell: "python3 -S burn.py; times > {output}"
rule both:
    output: "both.txt"
    conda: "env.yaml"
    container: "image.sif"
    shell: 'test -d "$CONDA_PREFIX"; python3 -S burn.py; times > {output}'
rule python:
    output: "python.txt"
    conda: "env.yaml"
    script: "part.py"
rule bash:
    output: "bash.txt"
    conda: "env.yaml"
    script: "part.sh"
rule R:
    output: "R.txt"
    script: "part.R"
rule rust:
    output: "rust.txt"
    script: "part.rs"
rule julia:
    output: "julia.txt"
    script: "part.jl"
"""
NAMES = ("conda", "apptainer", "both", "python", "bash", "R", "rust", "julia")
BURN = """
import time
held = bytearray(90 * 10**6)
while time.process_time() < 0.5:
    pass
"""
PYTHON = """
import os, subprocess
subprocess.run(["python3", "-S", "burn.py"], check=True)
open(snakemake.output[0], "w").write("0m%fs" % sum(os.times()[:4]))
"""
BASH = 'python3 -S burn.py\ntimes > "${snakemake_output[0]}"\n'
R = """
held <- rep(as.raw(1), 90e6)
while (sum(proc.time()[1:2]) < 0.5) {}
writeLines(sprintf("0m%fs", sum(proc.time()[1:2])), snakemake@output[[1]])
"""
SCRIPTS = {
    "part.py": PYTHON,
    "part.sh": BASH,
    "part.R": R,
    "part.rs": "// run: python3 -S burn.py; times > rust.txt\nfn main() {}\n",
    "part.jl": "# run: python3 -S burn.py; times > julia.txt\n",
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A job behind each prefix, and of each language, run once."""
    folder = tmp_path_factory.mktemp("deployed")
    made = {"Snakefile": SNAKEFILE, "env.yaml": "channels: []\n", "image.sif": "", "burn.py": BURN}
    for name, text in {**made, **SCRIPTS}.items():
        (folder / name).write_text(text)
    base = folder / "base"
    (base / "bin").mkdir(parents=True)
    apart = ["unshare", "--pid", "--fork"]
    allowed = shutil.which("unshare") and subprocess.run([*apart, "true"], capture_output=True).returncode == 0
    programs = {"conda": CONDA.format(prefix=base), "activate": ACTIVATE, "rust-script": RUST_SCRIPT, "julia": JULIA}
    programs["apptainer"] = APPTAINER.format(apart=" ".join(apart) if allowed else "")
    programs["singularity"] = programs["apptainer"]  # what releases up to 9.15 ask for
    for name, text in programs.items():
        (base / "bin" / name).write_text(text)
        (base / "bin" / name).chmod(0o755)
    workflow = Workflow(folder)
    path = f"{base / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    targets = [f"{name}.txt" for name in NAMES if name != "R" or shutil.which("Rscript")]
    workflow.done(*targets, "--software-deployment-method", "conda", "apptainer", PATH=path)
    return workflow


@pytest.mark.parametrize("name", NAMES)
def test_all_behind_the_prefix_is_the_job_s(deployed: Workflow, name: str) -> None:
    if name == "R" and not shutil.which("Rscript"):
        pytest.skip("Rscript not found; on Debian: apt install r-base-core")
    task = deployed.task(name)
    said = times(deployed.folder / f"{name}.txt")
    assert said >= 0.5
    # what is around it is the job's too: a shell, the activation, the container's program, an interpreter's start
    assert said - 0.02 <= float(task["cpu_s"]) <= said + 0.3  # type: ignore[arg-type]
    assert 90e6 < task["memory_peak_bytes"] < 250e6  # type: ignore[operator]
    assert "estimated" not in list(task["flags"])  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["conda", "apptainer"])
def test_its_benchmark_file_has_the_same(deployed: Workflow, name: str) -> None:
    header, values = (line.split("\t") for line in (deployed.folder / f"{name}.tsv").read_text().splitlines())
    found = dict(zip(header, values, strict=True))
    task = deployed.task(name)
    assert float(found["cpu_time"]) == pytest.approx(task["cpu_s"], abs=0.01)
    assert float(found["max_rss"]) * 2**20 == pytest.approx(task["rss_peak_bytes"], rel=0.02)
