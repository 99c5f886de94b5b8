"""Real Snakemake processes in a folder of their own, and the run that they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import jumper
from jumper.core.run import Run

pytest.importorskip("snakemake")

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = Path(__file__).parent / "cases"
#: programs of the workflow, no modules
collect_ignore_glob = ["cases/*"]
PLAIN = ("--logger", "jumper", "--logger-jumper-report", "none")


@dataclass
class Workflow:
    """A workflow in a folder of its own."""

    folder: Path

    def call(
        self, *arguments: str, logger: tuple[str, ...] = PLAIN, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake on it; its output is text."""
        before = {name: value for name, value in os.environ.items() if not name.startswith("JUMPER_SNAKEMAKE")}
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments, *logger]
        return subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
            env={
                **before,
                "PYTHONPATH": path,
                "PATH": f"{Path(sys.executable).parent}:{before['PATH']}",
                **environment,
            },
        )

    def done(self, *arguments: str, logger: tuple[str, ...] = PLAIN, **environment: str) -> str:
        """Run Snakemake on it, successfully; return its stderr."""
        done = self.call(*arguments, logger=logger, **environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def runs(self) -> list[Path]:
        """Return the runs, by their start."""
        return sorted((self.folder / ".snakemake" / "jumper" / "runs").glob("*"))

    def run(self) -> Run:
        """Return the only run."""
        (path,) = self.runs()
        return jumper.open_run(path)

    def task(self, key: str, attempt_id: str = "1.1.1") -> dict[str, object]:
        """Return a row of the tasks of the only run."""
        return row(self.run(), key, attempt_id)


def row(run: Run, key: str, attempt_id: str = "1.1.1") -> dict[str, object]:
    """Return a row of the tasks."""
    tasks = run.tasks
    chosen = tasks[(tasks["key"] == key) & (tasks["attempt_id"] == attempt_id)]
    assert len(chosen) == 1, tasks[["key", "attempt_id", "state"]].to_string()
    found: dict[str, object] = chosen.iloc[0].to_dict()
    return found


@pytest.fixture
def workflow(tmp_path: Path) -> Callable[[str], Workflow]:
    """Make a workflow from the text of a Snakefile."""

    def make(text: str) -> Workflow:
        (tmp_path / "Snakefile").write_text(text)
        return Workflow(tmp_path)

    return make
