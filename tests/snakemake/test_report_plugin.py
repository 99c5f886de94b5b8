"""`--reporter jumper` on a workflow whose outputs came from several runs, with names that a page must not obey."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jumper_snakemake.reporter import newest
from tests.snakemake.conftest import REPOSITORY, Workflow

#: of a rule, and of a wildcard
ODD = "<script>alert('r')</script> \"quoted\" a/b \U0001f40d " + "long" * 60
WILD = "<img src=x onerror=alert('w')>' \"é\U0001f40d"
NAMES = f"""
ODD, WILD = {ODD!r}, {WILD!r}
rule all:
    input: "first.txt", f"out/{{WILD}}.txt", "third.txt"
rule:
    name: ODD
    output: "first.txt"
    shell: "touch {{output}}"
rule wild:
    output: "out/{{name}}.txt"
    benchmark: "out/{{name}}.tsv"
    shell: "touch {{output:q}}"
rule third:
    output: "third.txt"
    shell: "touch {{output}}"
"""
KEYS = {ODD, f'wild[name="{WILD.replace(chr(34), chr(92) + chr(34))}"]', "third"}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A run of the first and the second, one of the first again, and the third unmeasured."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "Snakefile").write_text(NAMES)
    made = Workflow(folder)
    made.done("first.txt", f"out/{WILD}.txt")
    made.done("--force", "first.txt")
    made.done(logger=())
    return made


def test_each_job_is_as_of_the_run_that_made_its_output(several: Workflow) -> None:
    first, second = several.runs()
    (first.parent / "29991231T235959-broken").mkdir()
    chosen, failed, damaged = newest(first.parent, KEYS)
    assert {run.path: keys for run, keys in chosen.items()} == {second: {ODD}, first: KEYS - {"third", ODD}}
    assert (failed, len(damaged)) == (set(), 1)
    page = (REPOSITORY / "docs/snakemake.md").read_text()
    command = re.findall(r"^snakemake (--reporter .*)$", page, re.MULTILINE)[0].split()
    said = several.call(*command, "--report-jumper-path", "cost of it.html", logger=())
    assert said.returncode == 0, said.stderr
    assert "jumper: 2 of 3 jobs, of 2 runs: cost of it.html; 1 was not measured when it ran; left out" in said.stderr
    page = (several.folder / "cost of it.html").read_text()
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "alert('w')" in page.replace("&#39;", "'").replace("\\u0027", "'")
    assert sorted(path.name for path in several.folder.glob("*.html")) == ["cost of it.html"]


def test_a_workflow_that_was_never_measured_is_told_what_to_do(several: Workflow) -> None:
    said = several.call("--reporter", "jumper", "--report-jumper-dir", "elsewhere", logger=())
    assert said.returncode == 1
    assert "no run in elsewhere/runs has a job of this workflow; `snakemake --logger jumper` makes one" in said.stderr
    assert not (several.folder / "jumper-report.html").exists()


def test_a_job_that_failed_is_told_of_as_one_without_a_result(workflow: Callable[[str], Workflow]) -> None:
    made = workflow("""
rule all:
    input: "a.txt", "b.txt"
rule a:
    output: "a.txt"
    shell: "touch {output}"
rule b:
    output: "b.txt"
    shell: "test -e may && touch {output}"
""")
    assert made.call("-k").returncode == 1
    page = made.folder / "jumper-report.html"
    said = made.done("--reporter", "jumper", logger=())
    assert "jumper: 1 of 2 jobs, of 1 run: jumper-report.html; 1 failed and has no result\n" in said
    assert "it failed and has no result" in page.read_text()
    (made.folder / "may").touch()
    made.done(logger=())  # it has a result now, which nobody measured
    said = made.done("--reporter", "jumper", logger=())
    assert "jumper: 1 of 2 jobs, of 1 run: jumper-report.html; 1 was not measured when it ran\n" in said
    (made.folder / "a.txt").unlink()
    (made.folder / "b.txt").unlink()
    (made.folder / "may").unlink()
    made.call("b.txt")
    said = made.call("--reporter", "jumper", "--report-jumper-path", "again.html", "b.txt", logger=()).stderr
    assert "no job has a result: 1 failed" in said


def test_its_import_alone_measures_where_there_are_no_logger_plugins(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['snakemake', '--mode', 'subprocess']; import snakemake_report_plugin_jumper;"
        "import snakemake.executors.local as local; sys.exit(local.run_wrapper.__module__ != 'jumper_snakemake.hook')"
    )
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    for setting, status in ((f"run={tmp_path}", 0), ("", 1)):
        done = subprocess.run([sys.executable, "-c", code], env={**environment, "JUMPER_SNAKEMAKE": setting})
        assert done.returncode == status
