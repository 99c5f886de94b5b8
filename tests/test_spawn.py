"""The small program that starts jobs: nobody sees a difference, but the high-water mark is the command's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psutil
import pytest

from jumper.monitor import spawn
from jumper.monitor.spawn import SPAWN, OwnPeak
from jumper.monitor.zombie import await_end

pytestmark = pytest.mark.skipif(not Path(SPAWN).exists(), reason="the program is not built (no compiler)")

LOOK = """
import json, os, signal
signals = open("/proc/self/status").read().partition("SigBlk")[2].split("CapInh")[0]
print(json.dumps([os.getpgid(0), os.getsid(0), sorted(os.listdir("/proc/self/fd")), dict(os.environ), signals]))
"""


@pytest.fixture(scope="session")
def with_a_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as other machines than x86-64 have it."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no compiler ({compiler[0]})")
    program = tmp_path_factory.mktemp("spawn") / "_spawn"
    source = Path(__file__).resolve().parents[1] / "ext" / "spawn.c"
    subprocess.run([*compiler, "-O2", "-Wall", "-Werror", "-o", str(program), str(source)], check=True)
    return program


@pytest.fixture(autouse=True, params=["as built", "with a library"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "with a library":
        monkeypatch.setattr(spawn, "SPAWN", request.getfixturevalue("with_a_library"))


def told(kind: type[subprocess.Popen[str]], command: str) -> tuple[int, str]:
    child = kind(command, shell=True, executable="/bin/bash", stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as out:
        text = out.read()
    return child.wait(), text


@pytest.mark.parametrize("command", ["exit 3", "kill -9 $$", "no-such-command-here 2> /dev/null", "exec true"])
def test_the_status_is_the_commands(command: str) -> None:
    assert told(OwnPeak, command) == told(subprocess.Popen, command)


def test_the_command_sees_what_it_would_have_seen(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    command = f"{sys.executable} -S {tmp_path}/look.py; echo $0 $# $PPID"
    assert told(OwnPeak, command) == told(subprocess.Popen, command)


def test_its_peak_is_not_ours() -> None:
    ours = bytearray(200 << 20)
    child = OwnPeak("true; true", shell=True, executable="/bin/bash")
    ended = await_end(child.pid)
    assert child.wait() == 0 and child.own_peak
    assert ended is not None and ended.maxrss_bytes is not None
    assert 1 << 20 < ended.maxrss_bytes < 50 << 20 < len(ours)


def test_the_program_is_not_taken_for_a_process_of_the_job_that_it_has_started() -> None:
    """Its environment is the job's, by whose mark processes are found, and it may be there for a moment more."""
    report, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, bytes(4096))
    os.set_blocking(theirs, True)  # the program waits for room to tell us of the command
    command = [spawn.SPAWN, str(theirs), "--", "/bin/sh", "-c", "read line"]
    begun = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(theirs,), env={"MARK": "it"})
    program = psutil.Process(begun.pid)
    deadline = time.monotonic() + 10
    while program.status() != psutil.STATUS_SLEEPING:
        assert time.monotonic() < deadline
    (job,) = set(psutil.Process().children()) - {program}
    marks = [process.environ().get("MARK") for process in (job, program)]
    os.close(theirs)
    with open(report, "rb") as pipe:
        pipe.read()
    begun.communicate()
    os.waitpid(job.pid, 0)
    assert marks == ["it", None]


def test_an_interrupt_leaves_no_zombie_of_the_program() -> None:
    class Interrupted(OwnPeak):
        def started(self) -> None:
            raise KeyboardInterrupt(self.pid)

    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(KeyboardInterrupt) as raised:
        Interrupted("true", shell=True, executable="/bin/bash")
    os.waitpid(raised.value.args[0], 0)
    assert {child.pid for child in psutil.Process().children()} <= before


def test_a_shell_that_is_not_there_is_the_same_error() -> None:
    for kind in (OwnPeak, subprocess.Popen):
        with pytest.raises(FileNotFoundError) as raised:
            kind("true", shell=True, executable="/no/such/shell")
        assert raised.value.filename == "/no/such/shell"


def test_a_command_line_that_is_too_long_is_the_same_error() -> None:
    for kind in (OwnPeak, subprocess.Popen):
        with pytest.raises(OSError, match="Argument list too long"):
            kind("true " + "x" * (1 << 18), shell=True, executable="/bin/bash")


def test_without_the_program_it_starts_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spawn, "SPAWN", tmp_path / "none")
    child = OwnPeak("exit 4", shell=True, executable="/bin/bash")
    assert (child.wait(), child.own_peak) == (4, False)


def test_a_program_that_does_not_work_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("#!/bin/sh\nexit 1\n", "not a program"):
        (tmp_path / "broken").write_text(text)
        (tmp_path / "broken").chmod(0o755)
        monkeypatch.setattr(spawn, "SPAWN", tmp_path / "broken")
        before = len(os.listdir("/proc/self/fd"))
        child = OwnPeak("exit 4", shell=True, executable="/bin/bash", stdout=subprocess.PIPE)
        assert (child.wait(), child.own_peak) == (4, False)
        assert child.stdout is not None
        child.stdout.close()
        assert len(os.listdir("/proc/self/fd")) == before
