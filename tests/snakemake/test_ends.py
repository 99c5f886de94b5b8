"""Why a job ended: the kernel's OOM killer in a real control group, and what logs and control groups say of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumper_snakemake.ends import memory_line, oom_kills
from tests.snakemake.conftest import PLAIN, REPOSITORY, Workflow

LIMIT = 400 << 20
HUNGRY = f"""
rule hungry:
    output: "hungry.txt"
    # it is struck, not Snakemake, which may hold as much when the limit is reached
    shell: "echo 1000 > /proc/self/oom_score_adj; {sys.executable} -Sc 'held = bytearray(8 * 10**8)'; touch {{output}}"
rule wrong:
    output: "wrong.txt"
    shell: "kill -9 $$"
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit on memory, below the one that this process is in."""
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    path = next((path for _, names, path in lines if "memory" in names.split(",")), None)
    first = path is not None
    root = Path("/sys/fs/cgroup", *(["memory"] if first else []))
    made = root / (path or lines[-1][2]).lstrip("/") / f"jumper-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            made.rmdir()
        pytest.skip(f"no control group with a limit can be made here: {error.strerror}")
    yield made
    made.rmdir()


def test_a_job_that_the_oom_killer_struck_says_so(group: Path, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(HUNGRY)
    inside = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m snakemake -c1 -k hungry.txt wrong.txt"
    done = subprocess.run(
        ["sh", "-c", f"{inside} {' '.join(PLAIN)}"], cwd=tmp_path, capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    made = Workflow(tmp_path)
    struck, wrong = made.task("hungry"), made.task("wrong")
    assert "the kernel's OOM killer struck" in str(struck["reason"])
    assert "oom" in struck["flags"]  # type: ignore[operator]
    assert (wrong["reason"], list(wrong["flags"])) == ("ended by signal 9", [])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("groups", "file", "text"),
    [
        ("0::/job\n", "job/memory.events", "low 0\noom 2\noom_kill 3\n"),
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
    ],
)
def test_both_kinds_of_control_groups_count_kills(tmp_path: Path, groups: str, file: str, text: str) -> None:
    roots = [tmp_path / name for name in ("bare", "without", "with")]
    for root in roots[1:]:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(groups)
    counts = roots[2] / "sys/fs/cgroup" / file
    counts.parent.mkdir(parents=True)
    counts.write_text(text)
    assert [oom_kills(str(root)) for root in roots] == [None, None, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slurmstepd-n1: error: Exceeded job memory limit\n", "Exceeded job memory limit"),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch. Some of your processes may have been "
            "killed by the cgroup out-of-memory handler.\nbye\n",
            "Detected 1 oom-kill event(s) in StepId=7.batch. Some of your processes may have been killed by the "
            "cgroup out-of-memory handler.",
        ),
        ("my program: out of memory limits\n", None),
    ],
)
def test_the_end_of_a_log_tells_of_a_limit_on_memory(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / "log").write_bytes(b"\xff" * 100_000 + b"\n" + text.encode())
    assert memory_line(str(tmp_path / "log")) == said
