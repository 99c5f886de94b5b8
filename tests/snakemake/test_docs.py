"""The commands of docs/snakemake.md run as they stand, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import snakemake_logger_plugin_jumper
from jumper_snakemake.hook import PATCHES
from tests.snakemake.conftest import Workflow

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "snakemake.md").read_text()
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
ONE = "rule one:\n    output: 'a.txt'\n    shell: 'touch {output}'\n"


def test_the_page_s_command_leaves_a_run_and_its_report(workflow: Callable[[str], Workflow]) -> None:
    (command,) = [shlex.split(line) for line in COMMANDS if line.startswith("snakemake -j")]
    assert command[0] == "snakemake"
    readme = (REPOSITORY / "README.md").read_text()
    assert f"## Snakemake\n\n```sh\n{shlex.join(command)}\n```" in readme
    made = workflow(ONE)
    said = made.done(logger=tuple(command[1:]))
    (run,) = made.runs()
    assert said.splitlines()[-1] == f"jumper: 1 job measured: {run.relative_to(made.folder)}/report.html"
    assert (run / "report.html").stat().st_size > 10_000
    assert (run / "benchmarks.tsv").exists()
    assert "measured" not in made.done(logger=tuple(command[1:]))
    assert made.runs() == [run]


def test_targets_stand_before_the_flag_and_the_report_is_said_from_where_one_stands(
    workflow: Callable[[str], Workflow],
) -> None:
    (line,) = re.findall(r"`snakemake (results/a.txt .*?)`", PAGE)
    made = workflow(ONE.replace("a.txt", "results/a.txt"))
    (made.folder / "there").mkdir()
    said = made.done("--directory", "there", *shlex.split(line), logger=())
    (report,) = made.folder.glob("there/.snakemake/jumper/runs/*/report.html")
    assert said.splitlines()[-1] == f"jumper: 1 job measured: {report.relative_to(made.folder)}"
    target = line.split()[0]
    for page in (PAGE, (REPOSITORY / "README.md").read_text()):
        (other,) = re.findall(r"or write `(--logger=jumper)`", page)
        made.done("-n", other, target, logger=())
    assert made.call("-n", *other.split("="), target, logger=()).returncode == 2


def test_the_other_command_is_the_program_of_this_package() -> None:
    (command,) = [shlex.split(line) for line in COMMANDS if line.startswith("jumper-snakemake ")]
    assert command[:3] == ["jumper-snakemake", "run", "--"]  # test_kinds.py runs it


def test_the_settings_are_those_of_the_plugin() -> None:
    rows = re.findall(r"^\| `--logger-jumper-(\w+)` \| ([^|]*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (each.name, "" if each.default is None else str(each.default), each.metadata["help"])
        for each in fields(snakemake_logger_plugin_jumper.LogHandlerSettings)  # type: ignore[arg-type]
    ]


def test_the_names_are_those_that_the_hook_stands_in_for() -> None:
    table = PAGE.partition("<!-- from jumper_snakemake/hook.py -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", table, re.MULTILINE)
    assert rows == [(".".join(part for part in (p.module, p.holder, p.name) if part), p.without) for p in PATCHES]
