"""The Dask examples run as their README says, and measure what they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples" / "dask"


def ran(name: str, folder: Path) -> tuple[str, Any]:
    """Run an example in an empty folder; return what it printed, and its run."""
    import jumper

    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUMPER_")}
    environment["PYTHONPATH"] = f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "jumper-runs").iterdir()
    return done.stdout, jumper.open_run(path)


def test_the_readme_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"^python (\S+)$", text, re.MULTILINE)) == {path.name for path in EXAMPLES.glob("*.py")}
    assert set(re.findall(r"^\| `(\S+)` \|", text, re.MULTILINE)) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow  # the first lines of docs/dask.md, which the normal run runs, are the same
def test_the_plain_one_counts_primes(tmp_path: Path) -> None:
    printed, run = ran("plain.py", tmp_path)
    assert printed.startswith("7837 primes")  # the primes below 80,000
    assert run.tasks.groupby("group").size().to_dict() == {"primes": 8, "total": 1}
    assert (run.tasks["cpu_s"] > 0).all() and "<jumper run" in printed


def test_sub_processes_are_in_the_tasks_that_started_them(tmp_path: Path) -> None:
    printed, run = ran("subprocesses.py", tmp_path)
    # a compressor starts a Python, which is more than the 5 ms that a task itself needs
    assert len(run.tasks) == 8 and (run.tasks["cpu_s"] > 0.03).all()
    assert (run.tasks["processes"].fillna(0) >= 2).any() and "s of CPU in" in printed


def test_the_hungry_group_is_named_with_what_a_worker_needs(tmp_path: Path) -> None:
    printed, run = ran("memory_hungry.py", tmp_path)
    peaks = run.tasks.groupby("group")["memory_peak_bytes"].max()
    assert peaks["pairs"] > 500 << 20 > peaks["load"] + (200 << 20)
    found = [one for one in run.findings() if one.name == "memory-near"]
    assert [one.subject for one in found] == ["pairs"]
    wanted = re.search(r"--memory-limit (\d+)MiB", found[0].snippet)
    assert wanted is not None and int(wanted[1]) > 700 and wanted[0] in printed
