"""Beds for tests on several hosts: namespaces as machines, a real Slurm; see README.md beside this file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).resolve().parent
NETNS = HERE / "netns" / "hosts.sh"
SLURM = HERE / "slurm"
#: Exit status of the scripts where the kernel does not allow such namespaces.
NOT_HERE = 77


@cache
def machine_could() -> str | None:
    """Return why this machine cannot be several hosts, or None where it can: root, and namespaces that are allowed."""
    if os.geteuid() != 0:
        return "several hosts need root"
    if shutil.which("unshare") is None:
        return "several hosts need unshare (util-linux)"
    command = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "true"]
    tried = subprocess.run(command, capture_output=True, text=True)
    return f"this kernel allows no namespaces: {tried.stderr.strip()}" if tried.returncode else None


def without(reason: str) -> NoReturn:
    """Skip the test; fail it where continuous integration runs on a machine that could make the bed."""
    if os.environ.get("CI") == "true" and machine_could() is None:
        pytest.fail(f"this machine could make the hosts of this test: {reason}")
    pytest.skip(reason)


class Hosts:
    """Hosts made of namespaces, the first of which is the hub.

    Parameters
    ----------
    folder : path
        What they keep; not below /run, /dev or /var/tmp, which each host has for itself.
    names : str
        Their names.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        if (reason := machine_could()) is not None:
            without(reason)
        missing = [tool for tool in ("ip", "nsenter", "setpriv") if shutil.which(tool) is None]
        if missing:
            without(f"{', '.join(missing)} not found; on Debian: apt install iproute2 util-linux")
        self.folder = folder
        self.names = names
        self.address = {name: f"10.77.0.{index}" for index, name in enumerate(names, 1)}
        self._running: list[subprocess.Popen[Any]] = []
        done = subprocess.run(["bash", NETNS, "up", folder, *names], capture_output=True, text=True)
        if done.returncode:
            self.down()
            without(f"the hosts could not be made: {done.stderr.strip()}")

    def command(self, verb: str, *words: object) -> str:
        """Run a command of hosts.sh, such as ``kill``, ``link`` or ``clock``; return what it said."""
        done = subprocess.run(["bash", NETNS, verb, self.folder, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, f"hosts.sh {verb}: {done.stderr}"
        return done.stdout

    def start(self, host: str, *command: object, **more: Any) -> subprocess.Popen[Any]:
        """Start a process on a host; it ends with the bed."""
        process = subprocess.Popen([self.folder / "run-in", host, *map(str, command)], **more)
        self._running.append(process)
        return process

    def run(self, host: str, *command: object, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end."""
        more = {"capture_output": True, "text": True, **more}
        return subprocess.run([self.folder / "run-in", host, *map(str, command)], **more)

    def console(self, host: str) -> Console:
        """Start a Python on a host."""
        return Console(self.start(host, sys.executable, HERE / "console.py", stdin=-1, stdout=-1, text=True))

    def down(self) -> None:
        """End all hosts."""
        subprocess.run(["bash", NETNS, "down", self.folder], capture_output=True)
        for process in self._running:
            process.kill()
            process.wait()


class Console:
    """A Python on a host: ``console("1 + one", one=1)`` runs there and gives the last value, as JSON carries it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, code: str, **names: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([textwrap.dedent(code), names]) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the console ended: {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Any]:
    """``hosts("hub", "one", "two")`` makes hosts of these names; they are gone after the test."""
    made: list[Hosts] = []

    def make(*names: str) -> Hosts:
        made.append(Hosts(tmp_path / f"bed{len(made)}", *names))
        return made[-1]

    yield make
    for bed in made:
        bed.down()


class Slurm:
    """A Slurm cluster; ``run`` works on its login host, which is called ``head``."""

    def __init__(self, folder: Path, nodes: int = 3, **settings: object) -> None:
        if (reason := machine_could()) is not None:
            without(reason)
        self.folder = folder
        environment = {**os.environ, "ACCOUNTING": "0", **{name: str(value) for name, value in settings.items()}}
        command = ["bash", SLURM / "up.sh", str(nodes), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            self.down()
            without(f"Slurm did not start: {(done.stderr or done.stdout).strip()}")

    def run(self, *command: object, host: str = "head", **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end."""
        more = {"capture_output": True, "text": True, **more}
        return subprocess.run([self.folder / "run-in", host, *map(str, command)], **more)

    def down(self) -> None:
        """End the cluster."""
        subprocess.run(["bash", SLURM / "down.sh", self.folder, "--purge"], capture_output=True)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Three nodes of Slurm, `node1` to `node3`, without accounting, for the whole session of tests."""
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.down()
