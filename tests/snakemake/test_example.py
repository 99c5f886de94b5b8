"""The lines of examples/snakemake/README.md: a profile that measures, and the advice given back to Snakemake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jumper
from tests.snakemake.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "snakemake"
#: test_demo.py and test_docs.py show the same of other workflows in the normal run
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the lines; return where, and their output."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "here")
    (folder / "bin").mkdir()
    for name in ("snakemake", "jumper"):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    (lines,) = re.findall(r"^```sh\n(.*?)^```", (EXAMPLE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUMPER_")}
    environment |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["bash", "-ec", lines], cwd=folder / "here", env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "here", done.stdout + done.stderr


def test_the_profile_measures(said: tuple[Path, str]) -> None:
    (run,) = (said[0] / ".snakemake/jumper/runs").iterdir()
    tasks = jumper.open_run(run).tasks
    assert tasks.groupby("group").size().to_dict() == {"shuffle": 6, "sort": 6}
    assert (tasks["cpu_s"] > 0).all()
    assert (run / "report.html").exists()


def test_what_it_advises_is_what_the_jobs_then_ask_for(said: tuple[Path, str]) -> None:
    advised = (said[0] / "advised/config.yaml").read_text()
    found = re.search(r'"sort":\n(?:.*\n)*?\s+mem_mb: (\d+)', advised)
    assert found is not None and int(found[1]) < 1000, advised
    assert f"mem_mb={found[1]}" in said[1]
