"""What a Snakemake process has once: as many jobs at a time as there are, and one warning."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

import jumper
from jumper.monitor import serverclock
from jumper.monitor.filesystems import filesystem_of
from jumper.schema import RUN_SCHEMA
from jumper.store.segments import read_segment
from jumper_snakemake.attempt import Attempt
from jumper_snakemake.benchmark import Benchmarks
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


def test_jobs_that_start_together_share_engines(tmp_path: Path) -> None:
    """As many jobs as three engines have room for, each in a thread of its own as Snakemake starts them."""
    (tmp_path / "spool").mkdir()
    site = Site(lambda: Settings(str(tmp_path), interval=60.0))
    count = 150
    together = threading.Barrier(count)

    def start() -> None:
        together.wait()
        site.ready()
        site.watch(os.getpid())

    threads = [threading.Thread(target=start) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    site.close()
    assert len(list((tmp_path / "spool").glob("*.seg"))) <= math.ceil(count / 60)


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


@pytest.mark.parametrize(("inode", "told"), [(0, 2), (1, 0)])
def test_the_server_of_a_copy_of_the_run_tells_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inode: int, told: int
) -> None:
    """It is another one than the main process's, whose clock is not the reference."""
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(serverclock, "STAMPED", {filesystem_of(spool)})
    site = Site(lambda: Settings(str(tmp_path), interval=60.0, inode=inode), is_job=True)
    site.ready()
    site.close()
    (segment,) = (read_segment(path) for path in spool.glob("*.seg"))
    assert [record["type"] for record in segment.records].count("clock") == told


def test_a_clock_that_is_stepped_is_no_time_of_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an attempt without a process, whose cost nobody tells."""
    from snakemake.benchmark import BenchmarkRecord, benchmarked

    (tmp_path / "spool").mkdir()
    site = Site(lambda: Settings(str(tmp_path), interval=60.0))
    attempt = Attempt(site, {"key": "k"}, 1, 1, in_process=False)
    real = time.time
    with Benchmarks(benchmarked, BenchmarkRecord, lambda: attempt).benchmarked() as record:
        monkeypatch.setattr(time, "time", lambda: real() + 600)
    monkeypatch.undo()
    site.close()
    assert not attempt.known
    assert 0 <= record.running_time < 60
