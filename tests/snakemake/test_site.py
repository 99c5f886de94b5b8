"""What a Snakemake process has once: as many jobs at a time as there are, and one warning."""

from __future__ import annotations

import json
import logging
import subprocess
import time
from pathlib import Path

import pytest

import jumper
from jumper.monitor import serverclock
from jumper.monitor.filesystems import filesystem_of
from jumper.schema import RUN_SCHEMA
from jumper_snakemake.settings import Settings
from jumper_snakemake.site import Site


def test_more_jobs_at_once_than_one_engine_takes(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    site = Site(lambda: Settings(str(tmp_path), interval=60.0))
    jobs = [subprocess.Popen(["sleep", "600"]) for _ in range(70)]
    watches = [site.watch(job.pid) for job in jobs]
    most = [watch.finish() for watch in watches]
    site.close()
    for job in jobs:
        job.kill()
        job.wait()
    assert all((each.rss or 0) > 100_000 for each in most)


def test_a_failure_of_ours_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def no_place() -> Settings:
        raise OSError("no room on this disk")

    site = Site(no_place)
    with caplog.at_level(logging.WARNING, logger="snakemake.logging"):
        for _ in range(2):
            with site.harmless("a job's start"):
                site.ready()
    (record,) = caplog.records
    assert record.getMessage().startswith("jumper: a job's start: OSError: no room on this disk; jobs run all the same")


@pytest.mark.parametrize("skew_s", [0, 37])
def test_a_node_s_times_are_those_of_the_file_server_whatever_its_own_wall_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    """The server is this kernel, and what the spool is written by has a wall clock that is ahead."""
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(serverclock, "STAMPED", {filesystem_of(spool)})
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + skew_s * 10**9)
    site = Site(lambda: Settings(str(tmp_path), interval=60.0, backend="python"))
    site.ready()
    begun = time.monotonic_ns()
    site.note({"type": "task", "event": "start", "key": "k", "attempt_id": "1.1.1", "mono_ns": begun})
    site.close()
    monkeypatch.undo()
    (tmp_path / "run.json").write_text(json.dumps({"schema": RUN_SCHEMA, "run": "r", "kind": "snakemake"}))
    run = jumper.open_run(tmp_path)
    (clock,) = run.info["clocks"].values()
    truth = begun + time.time_ns() - time.monotonic_ns()
    assert abs(int(run.tasks["start_ns"][0]) - truth) <= clock["error_ns"] + 1_000_000 < 2 * 10**9
    assert clock["exchanges"] >= 1
