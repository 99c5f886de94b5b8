"""`--preload jumper_dask.preload` on real `dask scheduler` and `dask worker`: measured from the first task on."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

import jumper_dask

PRELOAD = ("--preload", "jumper_dask.preload")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "dask.md"
#: The page's commands: what follows `dask scheduler`, and what follows `dask worker ADDRESS`.
(COMMANDS,) = (block for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
               if "--preload" in block)  # fmt: skip
SCHEDULER, WORKER = (shlex.split(line)[skip:] for line, skip in zip(COMMANDS.splitlines(), (2, 3), strict=True))


class Processes:
    """`dask scheduler` and `dask worker` at an address of their own; all are ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"

    def start(self, kind: str, *words: str, **environment: str) -> Path:
        log = self.folder / f"{kind}{len(self.running)}.log"
        where = ["--host", "127.0.0.1", "--no-dashboard"]
        if kind == "scheduler":
            where += ["--port", str(self.port)]
        else:
            where = [self.address, *where, "--nthreads", "1", "--local-directory", str(self.folder)]
        command = [sys.executable, "-m", "distributed.cli.dask_" + kind, *where, *words]
        with log.open("wb") as out:
            self.running.append(
                subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment}, cwd=self.folder)
            )
        return log

    def client(self) -> Any:
        return distributed.Client(self.address, timeout=60)

    def end(self) -> None:
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


def test_on_a_scheduler_it_measures_all_workers(processes: Processes, kit: Any, tmp_path: Path) -> None:
    processes.start("scheduler", *SCHEDULER)
    for name in ("first", "second"):
        processes.start("worker", "--name", name)
    with processes.client() as client:
        client.wait_for_workers(2, timeout=60)
        spent = client.gather([client.submit(kit.burn, 0.2, key=name, workers=[name]) for name in ("first", "second")])
        run = jumper_dask.collect(client, tmp_path / "run")
    assert run.info["interval_s"] == 0.2
    assert run.info["coverage"] == {**run.info["coverage"], "expected": 2, "came": 2, "missing": []}
    tasks = kit.by_key(run)
    for name, seconds in zip(("first", "second"), spent, strict=True):
        assert tasks.cpu_s[name] == pytest.approx(seconds, abs=0.02)
    assert "hwm" not in set(tasks.memory_peak_source.dropna())


def test_on_a_worker_it_measures_that_one_which_may_be_there_before_the_scheduler(
    processes: Processes, kit: Any, tmp_path: Path
) -> None:
    log = processes.start("worker", *WORKER, "--name", "measured")
    processes.start("scheduler")
    processes.start("worker", "--name", "plain", "--no-nanny")
    with processes.client() as client:
        client.wait_for_workers(2, timeout=60)
        client.gather([client.submit(kit.burn, 0.1, key=name, workers=[name]) for name in ("measured", "plain")])
        run = jumper_dask.collect(client, tmp_path / "run")
    tasks = kit.by_key(run)
    assert run.info["interval_s"] == 0.2
    assert tasks.cpu_s["measured"] > 0.09, log.read_text()
    assert "unmonitored" in tasks.loc["plain", "flags"]
    assert [each["name"] for each in run.info["coverage"]["missing"]] == ["plain"]


def test_a_wrong_option_is_told_at_once(processes: Processes) -> None:
    log = processes.start("scheduler", *PRELOAD, "--interval", "never")
    assert processes.running[0].wait(60) == 2
    assert "'never' is no time of at least 1 ms" in log.read_text()


def test_mistakes_leave_a_worker_at_work_and_say_what_is_wrong(processes: Processes) -> None:
    processes.start("scheduler", *PRELOAD, DASK_JUMPER__INTERVAL="never")
    log = processes.start("worker", *PRELOAD, "--preload-nanny", PRELOAD[1], DASK_JUMPER__INTERVAL="never")
    with processes.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    said = log.read_text()
    assert "Dask's setting jumper.interval must be a time of at least 1 ms" in said
    assert "use --preload, not --preload-nanny" in said
