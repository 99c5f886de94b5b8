"""Run a workload under `jumper run`, as whoever runs the tests and, from root, as an ordinary user too."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import jumper
from jumper.monitor.backends import native_built

WORKLOADS = Path(__file__).with_name("workloads.py")
#: what `jumper run` imports, to be laid where an ordinary user can read it
NEEDED = ("jumper", "psutil", "yaml", "_yaml", "msgspec", "click", "rich", "pygments", "markdown_it", "mdurl")
ORDINARY_UID = 23456


def can_run(program: str, uid: int) -> bool:
    """Whether a user can start this interpreter with the version that runs the tests."""
    code = f"import sys; raise SystemExit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    try:
        return subprocess.run([program, "-c", code], user=uid, group=uid, extra_groups=[], cwd="/").returncode == 0
    except OSError:
        return False


@dataclass
class Runner:
    """Starts workloads under `jumper run`."""

    folder: Path
    python: str
    path: str
    uid: int | None
    backend: str = "default"

    def popen(self, arguments: list[str], **more: Any) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": self.path, "HOME": str(self.folder), "JUMPER_SPOOL": str(self.folder)}
        if self.uid is not None:
            more.update(user=self.uid, group=self.uid, extra_groups=[])
        return subprocess.Popen(arguments, env=env, cwd=self.folder, **more)

    def jumper(self, *arguments: str) -> list[str]:
        code = "import sys; from jumper.cli import main; sys.exit(main())"
        return [self.python, "-c", code, *arguments]

    def workload(self, name: str, *arguments: str) -> list[str]:
        truth = self.folder / f"{name}.json"
        return [self.python, "-S", "-E", "-B", str(self.folder / "workloads.py"), name, *arguments, str(truth)]

    def measure(self, name: str, *arguments: object) -> tuple[dict[str, Any], dict[str, Any], jumper.Run]:
        """Return (row of the tasks table, truth, run) of one workload."""
        out = self.folder / f"run-{name}"
        command = self.workload(name, *map(str, arguments))
        measure = self.jumper("run", "--backend", self.backend, "-o", str(out), "--", *command)
        process = self.popen(measure, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        run = jumper.open_run(out)
        (row,) = run.tasks.to_dict("records")
        return row, json.loads((self.folder / f"{name}.json").read_text()), run


def _runner(uid: int | None) -> Iterator[Runner]:
    folder = Path(tempfile.mkdtemp(prefix="jumper-truth-", dir="/tmp"))
    path, python = os.pathsep.join(sys.path), sys.executable
    try:
        shutil.copy(WORKLOADS, folder)
        if uid is not None:
            packages = folder / "packages"
            for name in NEEDED:
                spec = importlib.util.find_spec(name)
                assert spec is not None and spec.origin is not None, name
                shutil.copytree(Path(spec.origin).parent, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
            path = str(packages)
            usable = (p for p in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3") if can_run(p, uid))
            python = next(usable, "")
            if not python:
                pytest.skip("no interpreter of this version that another user may start")
            os.chown(folder, uid, uid)
        folder.chmod(0o755)
        yield Runner(folder, python, path, uid)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["me-native", "ordinary-native", "ordinary-python"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Starts workloads under each engine: as whoever runs the tests and, from root, as an ordinary user."""
    who, engine = request.param.split("-")
    if engine == "native" and not native_built():
        pytest.skip("the native engine is not built (no compiler)")
    if who == "ordinary" and os.getuid() != 0 and engine == "native":
        pytest.skip("the tests run as an ordinary user already: the case `me` is this one")
    ordinary = who == "ordinary" and os.getuid() == 0
    for started in _runner(ORDINARY_UID if ordinary else None):
        started.backend = "native" if engine == "native" else "thread"
        yield started


@pytest.fixture
def me() -> Iterator[Runner]:
    """Starts workloads as whoever runs the tests."""
    yield from _runner(None)
