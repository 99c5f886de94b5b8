"""`jumper findings`, `advise`, `compare`, `export` as a person and a script meet them; and what docs/ shows of them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import yaml

from jumper import cli, open_run
from tests import made

REPOSITORY = Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Jumper = Callable[..., Done]


@pytest.fixture
def jumper(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Jumper:
    """Run the command line in this process, in the folder of the runs."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        return Done(cli.main(arguments), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: RUN, and `after`, in which attempts of compress take 5 s longer."""
    place = tmp_path_factory.mktemp("runs")
    made.write(made.make(90, threads=1, samples=False, state="done"), place / "RUN")
    after = made.make(90, threads=1, samples=False, state="done")
    after.tasks.loc[after.tasks["group"] == "compress", "stop_ns"] += 5 * made.SECOND
    made.write(after, place / "after")
    return place


def commands(page: str, heading: str = "") -> list[str]:
    """Return the lines of the shell blocks of a page, below a heading of it."""
    text = (REPOSITORY / page).read_text()
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def test_every_command_that_the_documents_show_runs(folder: Path, jumper: Jumper) -> None:
    shown = [commands(f"docs/{page}.md") for page in ("advice", "export", "compare")]
    shown.append(commands("README.md", "What to change"))
    assert [len(lines) for lines in shown] == [6, 6, 3, 4]
    for name in ("solver.run", "before.run", "after.run"):
        if not (folder / name).exists():
            (folder / name).symlink_to("RUN")
    for command in chain(*shown):
        program, *arguments = shlex.split(command)
        done = jumper(*arguments)
        assert (program, done.returncode, done.stderr) == ("jumper", 0, ""), command
        assert done.stdout
        if "-o" in arguments:
            assert (folder / arguments[-1]).stat().st_size > 0


def test_the_python_of_the_document_on_comparing_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/compare.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(block.replace("before.run", "RUN").replace("after.run", "after"), "docs/compare.md", "exec"), {})
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["compress"].endswith("True") and lines["read"].endswith("False") and len(lines) == 5


def test_the_python_of_the_document_on_advice_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/advice.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(block, "docs/advice.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"read", "tokenise", "compress", "aggregate", "write"}
    assert all(float(line.split()[-1]) > 0 for line in lines)


def test_advice_is_the_same_in_python_json_and_what_is_pasted(folder: Path, jumper: Jumper) -> None:
    ours = open_run(folder / "RUN").advise()
    document = json.loads(jumper("advise", "RUN", "--json").stdout)
    profile = yaml.safe_load(jumper("advise", "RUN", "--format", "snakemake-profile").stdout)
    assert document["schema"] == 1 and [group["group"] for group in document["groups"]] == [a.group for a in ours]
    for advice, group in zip(ours, document["groups"], strict=True):
        assert group["attempts"] == advice.attempts and group["highest_bytes"] == advice.highest_bytes
        assert advice.memory is not None
        assert group["memory"]["levels"] == advice.memory.levels.tolist()
        assert str(profile["set-resources"][advice.group]["mem_mb"]) == group["memory"]["mem_mb"]


def test_findings_are_those_of_the_run(folder: Path, jumper: Jumper) -> None:
    from jumper.analysis.findings import findings

    ours = findings(open_run(folder / "RUN"))
    document = json.loads(jumper("findings", "RUN", "--json").stdout)
    assert document["schema"] == 1
    assert [found["subject"] for found in document["findings"]] == [found.subject for found in ours]
    assert ours
    text = " ".join(jumper("findings", "RUN").stdout.split())
    for found in ours:
        assert " ".join(found.text.split()) in text


def test_a_change_beyond_a_limit_is_status_1_and_one_line(folder: Path, jumper: Jumper) -> None:
    command = ["compare", "RUN", "after", "--fail-if", "wall_s > 10%"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "jumper", *command], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("jumper: compress: wall_s +") and "the limit is wall_s > +10%" in line
    assert "compress" in done.stdout and "95 %" in done.stdout
    document = json.loads(jumper(*command, "--json").stdout)
    assert document["schema"] == 1 and document["broken"] == [line.removeprefix("jumper: ")]
    for condition in ("wall_s > 500%", "memory_peak_bytes > 10%"):
        same = jumper("compare", "RUN", "after", "--fail-if", condition)
        assert (same.returncode, same.stderr) == (0, "")


def in_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run the command line in a terminal of 80 columns; return its status and what the terminal was sent."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "CI")}
    environment |= {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "jumper", *arguments]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=cwd, env=environment) as process:
        os.close(its)
        sent = b""
        with contextlib.suppress(OSError):  # EIO: the last one who had it open has closed it
            while piece := os.read(ours, 65536):
                sent += piece
    os.close(ours)
    return process.returncode, sent.decode()


@pytest.mark.parametrize("arguments", [("advise", "RUN"), ("compare", "RUN", "after"), ("summary", "RUN")])
def test_tables_fit_into_a_terminal(arguments: tuple[str, ...], folder: Path) -> None:
    status, sent = in_terminal(*arguments, cwd=folder)
    assert status == 0
    assert ("learning" in sent) == (arguments[0] == "advise")  # a bar, wiped out at its end
    assert "\x1b[" in sent
    left = re.sub(r"[^\n]*(\n[^\n]*\x1b\[1A)?\x1b\[2K", "", sent)  # lines that were wiped out, also one above
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", left).splitlines()
    assert "learning" not in "".join(shown)
    for group in ("aggregate", "compress", "tokenise"):
        assert any(line.startswith(group) for line in shown), shown
    assert max(len(line.rstrip("\r")) for line in shown) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "RUN", "absent"), "absent is not a run"),
        (("compare", "RUN", "after", "--fail-if", "fast"), "memory_peak_bytes > 10%"),
        (("compare", "RUN", "other"), "of kind dask, the second command"),
        (("advise", "absent"), "absent is not a run"),
        (("advise", "RUN", "--may-fail", "99"), "--may-fail"),
        (("advise", "RUN", "--format", "yaml"), "snakemake-profile"),
        (("findings", "absent"), "absent is not a run"),
        (("export", "RUN", "--format", "csv", "-o", "no/such/t.csv"), "cannot write no/such/t.csv: No such file"),
        (("export", "RUN", "-o", "run.pdf"), "'run.pdf' says no format"),
        (("export", "RUN", "--format", "xml", "-o", "t.xml"), "openmetrics"),
        (("export", "RUN", "--format", "csv"), "--output"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: tuple[str, ...], said: str, folder: Path, jumper: Jumper
) -> None:
    if not (folder / "other").exists():
        made.write(made.make_command(), folder / "other")
    done = jumper(*arguments)
    assert (done.returncode, done.stdout) == (cli.ERROR, "")
    assert said in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_runs_with_hardly_anything_in_them_are_read(folder: Path, jumper: Jumper) -> None:
    for name, run in (("none", made.make(0, samples=False)), ("one", made.make(1, samples=False))):
        if not (folder / name).exists():
            made.write(run, folder / name)
        for arguments in (["findings", name], ["advise", name], ["advise", name, "--format", "dask"]):
            assert jumper(*arguments).returncode == 0
        for form in ("perfetto", "openmetrics", "csv", "benchmark-tsv"):
            done = jumper("export", name, "--format", form, "-o", f"{name}.{form}")
            assert (done.returncode, done.stderr) == (0, "")
    assert len(pd.read_csv(folder / "one.csv")) == 1
    done = jumper("compare", "one", "none")
    assert done.returncode == cli.ERROR and "none in the second" in done.stderr
