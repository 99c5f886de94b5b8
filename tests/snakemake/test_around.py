"""What a job of a batch system holds beside the task, on a /proc whose every number is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumper_snakemake.around import memory_beside
from tests.fakeproc import MIB, FakeProc

REMOTE = "python\0-m\0snakemake\0--mode\0remote\0"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    """A node on which job 7 of Slurm runs one Snakemake (10) by srun (8) and another (20) in a step."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    proc, mine = FakeProc(tmp_path), "A=b\0SLURM_JOB_ID=7\0"
    proc.put(5, hwm=1000, environ="SLURM_JOB_ID=77\0")  # another job
    proc.put(6, hwm=2000)
    proc.put(10, ppid=6, hwm=160, environ=mine, cmdline=REMOTE)
    proc.put(8, ppid=10, hwm=8, environ=mine)
    proc.put(20, ppid=6, hwm=150, environ=mine, cmdline=REMOTE)
    proc.put(21, ppid=20, hwm=4000, environ=mine)  # what the task runs
    proc.put(22, ppid=1, hwm=4000, environ=mine + "JUMPER_SNAKEMAKE_JOB=1.2.3\0")  # and what of it detached
    proc.put(23, ppid=6, hwm=30, environ=mine + "JUMPER_AGENT=1\0")
    return proc


def test_the_snakemakes_of_a_batch_job_count_and_the_task_does_not(job: FakeProc) -> None:
    assert memory_beside(False, job.fs, 20) == (160 + 8 + 150) * MIB


def test_python_of_a_rule_has_the_memory_of_the_process_that_it_runs_in(job: FakeProc) -> None:
    assert memory_beside(True, job.fs, 20) == (160 + 8) * MIB


def test_a_snakemake_that_somebody_started_in_a_job_of_their_own_asks_for_nothing(job: FakeProc) -> None:
    job.put(20, cmdline="python\0-m\0snakemake\0--mode\0default\0")
    assert memory_beside(False, job.fs, 20) is None
    job.put(20, ppid=10)  # unless another one runs it as a job
    assert memory_beside(False, job.fs, 21) == (160 + 8 + 150 + 4000) * MIB


def test_outside_of_a_batch_system_there_is_none(job: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    assert memory_beside(False, job.fs, 20) is None
