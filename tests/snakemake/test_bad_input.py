"""Places that cannot be written, leftovers, and variables of ours that are somebody else's: the workflow goes on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.snakemake.conftest import PLAIN, REPOSITORY, Workflow

Make = Callable[[str], Workflow]
ONE = "rule one:\n    output: 'a.txt'\n    benchmark: 'a.tsv'\n    shell: 'touch {output}'\n"


def apart(made: Workflow, before: str, *arguments: str, logger: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a mount namespace of its own, after shell commands that change what it finds there."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    snakemake = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments, *logger]
    script = f'{before} && exec "$@"'
    return subprocess.run(
        [unshare, "--mount", "sh", "-c", script, "sh", *snakemake], cwd=made.folder, capture_output=True, text=True,
        timeout=240, env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "HOME": str(made.folder.parent)},
    )  # fmt: skip


def test_variables_and_leftovers_that_look_like_ours(workflow: Make) -> None:
    made = workflow("""
import os
os.environ["JUMPER_SNAKEMAKE_JOB"] = os.environ["JUMPER_SPOOL"] = "of the workflow"
rule all:
    input: "a.txt", "b.txt"
rule a:
    output: "a.txt"
    shell: "export JUMPER_SNAKEMAKE=mine JUMPER_SNAKEMAKE_JOB=mine; touch {output}"
rule b:
    output: "b.txt"
    run:
        os.environ["JUMPER_SNAKEMAKE"] = "mine"
        shell("test $JUMPER_SNAKEMAKE = mine; touch {output}")
""")
    leftover = made.folder / ".snakemake/jumper"
    leftover.mkdir(parents=True)
    (leftover / "active.json").write_text('{"run": "/gone", "pid": 1}')
    said = made.done(JUMPER_SNAKEMAKE="garbage")
    assert "jumper: JUMPER_SNAKEMAKE: expected run=<absolute path>" in said
    tasks = made.run().tasks
    assert set(tasks["key"]) == {"a", "b"}
    assert tasks["cpu_s"].notna().all()


def test_a_place_for_runs_that_is_a_file(workflow: Make) -> None:
    made = workflow(ONE)
    (made.folder / ".snakemake").mkdir()
    (made.folder / ".snakemake/jumper").touch()
    said = made.done()
    assert said.count("jumper: ") == 1, said
    assert re.search(
        r"jumper: cannot make the run \S+: .*; choose another place with --logger-jumper-dir; jobs run", said
    )
    assert len((made.folder / "a.tsv").read_text().splitlines()) == 2


def test_a_full_disk_costs_samples_and_no_job(workflow: Make) -> None:
    made = workflow(ONE)
    (made.folder / "small").mkdir()
    fill = "mount -t tmpfs -o size=64k none small && head -c 56k /dev/zero > small/full"
    done = apart(made, fill, logger=(*PLAIN, "--logger-jumper-dir", "small"))
    assert done.returncode == 0, done.stderr
    assert (made.folder / "a.txt").exists()
    assert "Traceback" not in done.stderr
    assert "jumper: " in done.stderr


def test_a_folder_that_cannot_be_written_ends_as_without_us(workflow: Make) -> None:
    made = workflow(ONE)
    readonly = 'mount --bind "$PWD" "$PWD" && mount -o remount,bind,ro "$PWD" && cd "$PWD"'
    with_us, without = (apart(made, readonly, logger=logger) for logger in (PLAIN, ()))
    assert with_us.returncode == without.returncode == 1
    assert "Read-only file system" in without.stderr
    assert "jumper: " not in with_us.stderr
    assert [line for line in with_us.stderr.splitlines() if "rror" in line] == [
        line for line in without.stderr.splitlines() if "rror" in line
    ]
