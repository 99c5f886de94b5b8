"""What stays when workers die, and workers that have not the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import distributed
import psutil
import pytest

import jumper_dask
from tests.dask.farm import without_package


def test_a_worker_killed_in_the_middle_leaves_its_attempt_and_its_curve(kit: Any, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with kit.cluster() as client:
        future = client.submit(kit.wait_for, gate, 60, key="victim")
        pid = int(until(lambda: Path(gate + ".runs").read_text()))
        spent, begin = sum(psutil.Process(pid).cpu_times()[:2]), time.monotonic()
        until(lambda: sum(psutil.Process(pid).cpu_times()[:2]) > spent + 1.0)
        os.unlink(gate + ".runs")
        took = time.monotonic() - begin
        os.kill(pid, signal.SIGKILL)
        until(lambda: Path(gate + ".runs").read_text())
        Path(gate).touch()
        future.result()
        run = jumper_dask.collect(client, tmp_path / "run")
    first, second = run.tasks.to_dict("records")
    assert (first["state"], second["state"]) == ("lost", "done")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["pid"] == pid != second["pid"]
    assert first["cpu_s"] > 0.5
    assert first["wall_s"] == pytest.approx(took, abs=1.0)
    samples = run.samples("process")
    assert (samples[samples.pid == pid].time_ns > first["start_ns"]).sum() >= 3


def test_a_killed_worker_s_attempt_has_what_its_sub_processes_had_used(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=1) as client:
        (pid,) = client.run(os.getpid).values()
        future = client.submit(kit.children, 1, 60, key="victim", retries=0)
        child = until(lambda: next(iter(psutil.Process(pid).children()), None))
        until(lambda: sum(child.cpu_times()[:2]) > 1.5)
        child.suspend()
        truth = sum(child.cpu_times()[:2])
        spool = Path(os.environ["JUMPER_SPOOL"])
        before = kit.ticks(spool, pid)
        until(lambda: kit.ticks(spool, pid) > before + 1)  # one that began after it stood still
        os.kill(pid, signal.SIGKILL)
        child.kill()
        future.cancel()
        until(lambda: pid not in client.run(os.getpid).values() and client.scheduler_info()["workers"])
        run = jumper_dask.collect(client, tmp_path / "run")
    row = run.tasks.to_dict("records")[0]
    assert (row["state"], "estimated" in row["flags"]) == ("lost", True)
    assert row["cpu_s"] == pytest.approx(truth, abs=0.2)


def test_a_worker_without_the_package_lives_on(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client, lone_worker(client.scheduler.address, tmp_path):
        client.wait_for_workers(2, timeout=30)
        alone = next(a for a, w in client.scheduler_info(n_workers=-1)["workers"].items() if w["id"] == "alone")
        assert client.submit(sum, [1, 2], key="there", workers=[alone]).result(timeout=30) == 3
        run = jumper_dask.collect(client, tmp_path / "run")
    row = kit.by_key(run).loc["there"]
    assert row["state"] == "done"
    assert "unmonitored" in row["flags"]
    assert run.info["coverage"]["expected"] == 2
    assert run.info["coverage"]["came"] == 1
    (missing,) = run.info["coverage"]["missing"]
    assert missing["worker"] == alone
    assert "jumper_dask" in missing["reason"]


def test_workers_as_threads_of_the_client_are_measured_and_their_marks_left_alone(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=2, threads=1, processes=False) as client:
        spent = client.gather([client.submit(kit.burn, 0.3, key=f"b{i}", pure=False) for i in range(2)])
        run = jumper_dask.collect(client, tmp_path / "run")
    tasks = kit.by_key(run)
    for index in range(2):
        assert abs(tasks.cpu_s[f"b{index}"] - spent[index]) < 0.02
    assert "hwm" not in set(tasks.memory_peak_source.dropna())
    assert run.samples("process").pid.unique().tolist() == [os.getpid()]


class lone_worker:
    """A `dask worker` of its own, in whose interpreter jumper and jumper_dask cannot be imported."""

    def __init__(self, scheduler: str, folder: Path) -> None:
        self.command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--name", "alone", "--no-nanny",
                        "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)]  # fmt: skip
        self.environment = without_package(folder)

    def __enter__(self) -> None:
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(20)


def until(look: Any, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := look():
                return value
        except OSError:
            pass
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


assert distributed
