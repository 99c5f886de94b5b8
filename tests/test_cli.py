"""The command line as a person and a script meet it: real processes, status, streams, one line an error."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jumper import cli, doctor
from jumper.doctor import engines, kernel, packages
from jumper.schema import TASK_COLUMNS

REPOSITORY = Path(__file__).resolve().parent.parent
COMMANDS = (
    "run", "summary", "findings", "advise", "compare", "report", "export", "merge", "doctor", "demo",
)  # fmt: skip


def jumper(*arguments: str, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "jumper", *arguments],
        capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, **options,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a command that failed as it should."""
    assert done.returncode == cli.ERROR
    assert done.stdout == ""
    assert done.stderr.startswith("jumper: ") and done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: half a second of CPU of one Python program."""
    folder = tmp_path_factory.mktemp("run")
    code = "import time\nwhile time.process_time() < 0.5: pass"
    done = jumper("run", "--interval", "0.1", "-o", str(folder / "r"), "--", sys.executable, "-c", code, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "r"


def test_help_names_the_commands_that_are_there() -> None:
    done = jumper("--help")
    listed = [line.split()[0] for line in done.stdout.split("Commands:")[1].splitlines() if line.startswith("  ")]
    assert done.returncode == 0
    assert set(COMMANDS) == {name for name in listed if name.islower()}
    assert "..." not in done.stdout.split("Commands:")[1]  # no line is cut off in 80 columns


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str) -> None:
    done = jumper(command, "--help")
    assert done.returncode == 0
    assert "--help" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("--no-such",), ("no-such",), ("run",), ("summary",), ("merge", "x")])
def test_wrong_use_is_status_2(arguments: tuple[str, ...]) -> None:
    done = jumper(*arguments)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr != "" and "Traceback" not in done.stderr


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "soon", ""])
def test_an_impossible_interval_is_one_line(interval: str, tmp_path: Path) -> None:
    message = one_line(jumper("run", f"--interval={interval}", "--", "touch", "ran", cwd=tmp_path))
    assert "--interval" in message and repr(interval) in message
    assert not (tmp_path / "ran").exists()


def test_an_unknown_backend_lists_the_known_ones(tmp_path: Path) -> None:
    message = one_line(jumper("run", "--backend", "abacus", "--", "touch", "ran", cwd=tmp_path))
    assert "abacus" in message and "subprocess" in message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["summary", "report"])
@pytest.mark.parametrize("kind", ["absent", "file", "empty"])
def test_a_folder_that_is_no_run_is_one_line(command: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "place"
    if kind == "file":
        path.write_text("no run")
    elif kind == "empty":
        path.mkdir()
    assert str(path) in one_line(jumper(command, str(path)))


@pytest.mark.parametrize("status", [0, 1, 2, 77])
def test_run_has_the_status_of_the_command(status: int, tmp_path: Path) -> None:
    assert jumper("run", "--", "sh", "-c", f"exit {status}", cwd=tmp_path).returncode == status


def test_run_has_the_signal_of_the_command_as_a_shell_would(tmp_path: Path) -> None:
    done = jumper("run", "--", "sh", "-c", "kill -TERM $$", cwd=tmp_path)
    assert done.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)


def test_run_of_no_such_command_is_127(tmp_path: Path) -> None:
    done = jumper("run", "--", "no-such-command-here", cwd=tmp_path)
    assert done.returncode == 127
    assert "no-such-command-here" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("before", [("--",), ()])
def test_arguments_and_streams_of_the_command_are_untouched(before: tuple[str, ...], tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); print('said', file=sys.stderr)"
    given = ["--interval", "x", "--", "-o", "a b", "", "--help"]
    done = jumper("run", "-o", "r", *before, sys.executable, "-c", code, *given, cwd=tmp_path, input="in")
    assert done.stdout == f"{given} in\n"
    assert "said\n" in done.stderr


def test_summary_as_json_by_key_has_the_columns_of_the_tasks_table(run_folder: Path) -> None:
    done = jumper("summary", str(run_folder), "--by", "key", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (task,) = document["tasks"]
    assert "schema" in document
    assert set(task) <= {column.name for column in TASK_COLUMNS}
    assert task["cpu_s"] == pytest.approx(0.5, abs=0.15)
    assert task["exit_code"] == 0


@pytest.mark.parametrize("by", ["group", "node", "key"])
def test_summary_prints_a_table_and_a_document(run_folder: Path, by: str) -> None:
    table = jumper("summary", str(run_folder), "--by", by)
    document = jumper("summary", str(run_folder), "--by", by, "--json")
    assert (table.returncode, document.returncode) == (0, 0), table.stderr + document.stderr
    assert table.stdout.strip() and "schema" in json.loads(document.stdout)


def test_report_prints_where_the_page_is(run_folder: Path, tmp_path: Path) -> None:
    done = jumper("report", str(run_folder), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_merge_of_one_run_has_its_tasks(run_folder: Path, tmp_path: Path) -> None:
    done = jumper("merge", str(run_folder), "-o", str(tmp_path / "merged"))
    assert done.returncode == 0, done.stderr
    again = json.loads(jumper("summary", str(tmp_path / "merged"), "--by", "key", "--json").stdout)
    first = json.loads(jumper("summary", str(run_folder), "--by", "key", "--json").stdout)
    assert again["tasks"] == first["tasks"]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "jumper", "doctor", "--json"],
        stdout=write, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, timeout=120,
    )  # fmt: skip
    os.close(write)
    assert done.stderr == ""


def test_doctor_prints_one_document() -> None:
    done = jumper("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == doctor.SCHEMA
    assert [set(check) for check in document["checks"]] == [
        {field.name for field in dataclasses.fields(doctor.Check)}
    ] * len(doctor.CHECKS)
    assert {check["status"] for check in document["checks"]} <= set(doctor.COLORS)


def test_doctor_prints_a_table() -> None:
    done = jumper("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    for check in doctor.examine():
        assert check.name in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_doctor_works_for_an_ordinary_user() -> None:
    # the interpreter itself may lie where that user cannot read, so he comes after the imports
    code = """
        import os, sys
        import jumper.cli, jumper.doctor
        jumper.doctor.examine()
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        sys.exit(jumper.cli.main(["doctor", "--json"]))
    """
    environment = {"PYTHONPATH": str(REPOSITORY), "JUMPER_SPOOL": "/tmp", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["checks"]


def test_doctor_names_what_is_missing_and_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "SHIM", tmp_path / "_shim")
    assert engines.launcher().status == "limited" and "compiler" in engines.launcher().next_step
    (tmp_path / "_shim").write_bytes(b"\x7fELF, but broken")
    (tmp_path / "_shim").chmod(0o755)
    assert engines.launcher().status == "limited"
    monkeypatch.setitem(sys.modules, "jumper.monitor.backends.native._engine", None)
    assert engines.native_extension().status == "limited" and "gcc" in engines.native_extension().next_step
    monkeypatch.setitem(packages.EXTRAS, "dask", ("dask", "no-such-package-here"))
    lacking = packages.extra("dask")
    assert lacking.status == "missing" and "no-such-package-here" in lacking.found and "[dask]" in lacking.next_step
    monkeypatch.setenv("JUMPER_SPOOL", str(tmp_path / "_shim"))
    assert kernel.spool().status == "missing" and "JUMPER_SPOOL" in kernel.spool().next_step


@pytest.mark.parametrize(
    ("options", "status"),
    [("rw,relatime", "ok"), ("rw,hidepid=0", "ok"), ("rw,hidepid=2", "limited"), ("rw,hidepid=invisible", "limited")],
)
def test_doctor_sees_hidden_processes(options: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(f"/dev/vda / ext4 rw 0 0\nproc /proc proc {options} 0 0\n")
    assert kernel.other_processes(str(tmp_path / "mounts")).status == status
