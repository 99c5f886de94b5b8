"""What a Snakemake process has once: as many jobs at a time as there are, and one warning."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest

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
