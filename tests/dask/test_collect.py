"""The run comes to the client whole, may be collected again, and opens in another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import distributed
import pytest

import jumper
import jumper_dask
from jumper.cli import main
from jumper.schema.errors import RunError

READ = """
import sys, json, jumper
run = jumper.open_run(sys.argv[1])
print(json.dumps([run.tasks.to_json(), run.parts.to_json(), {s: len(run.samples(s)) for s in run.streams}]))
"""


def test_collected_run_outlives_the_cluster_and_collecting_again_adds(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=2, threads=1) as client:
        client.gather(client.map(kit.burn, [0.2] * 4, key="first", pure=False))
        run = jumper_dask.collect(client, tmp_path / "run")
        assert len(run.tasks) == 4
        assert run.info["coverage"] == {**run.info["coverage"], "expected": 2, "came": 2, "missing": []}
        client.gather(client.map(kit.burn, [0.1] * 3, key="second", pure=False))
        run = jumper_dask.collect(client, tmp_path / "run")
        assert dict(run.tasks.group.value_counts()) == {"first": 4, "second": 3}
    here = [run.tasks.to_json(), run.parts.to_json(), {s: len(run.samples(s)) for s in run.streams}]
    there = subprocess.run([sys.executable, "-c", READ, str(run.path)], capture_output=True, text=True, check=True)
    assert json.loads(there.stdout) == here
    assert {"process", "thread", "system", "monitor"} <= set(here[2])
    assert all(row["kind"] == "dask-worker" and row["memory_limit_bytes"] for row in run.info["roots"])


def test_a_region_has_its_tasks_only_and_takes_its_plugin_back(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(plugin=False) as client:
        with jumper_dask.monitor(client, path=tmp_path / "one", interval=0.2) as region:
            client.submit(kit.burn, 0.2, key="inside").result()
        assert list(region.run.tasks.key) == ["inside"]
        assert not any(client.run(lambda dask_worker: "jumper" in dask_worker.plugins).values())
        client.submit(kit.burn, 0.1, key="between").result()
        with jumper_dask.monitor(client, path=tmp_path / "two", interval=0.2) as region:
            client.submit(kit.burn, 0.1, key="later").result()
        assert list(region.run.tasks.key) == ["later"]


def test_a_region_never_takes_the_place_of_another(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kit.cluster(workers=1) as client:
        regions = []
        for key in ("first", "second"):
            with jumper_dask.monitor(client) as region:
                client.submit(kit.burn, 0.05, key=key).result()
            regions.append(region.run)
        refused = pytest.raises(RunError, match=r"holds run .* already, and a region is a run of its own")
        with refused, jumper_dask.monitor(client, regions[0].path):
            pytest.fail("the region began")
    assert [list(jumper.open_run(run.path).tasks.key) for run in regions] == [["first"], ["second"]]


def test_asynchronous_clients_await(kit: Any, tmp_path: Path) -> None:
    async def compute() -> tuple[list[str], list[str]]:
        local = distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, asynchronous=True, silence_logs=50
        )
        async with local, distributed.Client(local, asynchronous=True) as client:
            async with jumper_dask.monitor(client, path=tmp_path / "region", interval=0.2) as region:
                await client.submit(kit.burn, 0.1, key="a")
            run = await jumper_dask.collect(client, tmp_path / "all")
            return list(region.run.tasks.key), list(run.tasks.key)

    assert asyncio.run(compute()) == (["a"], ["a"])


def test_a_folder_that_is_taken_is_refused_in_words(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with kit.cluster(plugin=False) as client, pytest.raises(RunError, match="is not empty and no run"):
        jumper_dask.collect(client, tmp_path)


def test_spools_are_empty_once_all_has_come_home(kit: Any, tmp_path: Path) -> None:
    import os

    with kit.cluster() as client:
        client.submit(kit.burn, 0.1).result()
        jumper_dask.collect(client, tmp_path / "run")
    left = list(Path(os.environ["JUMPER_SPOOL"]).rglob("*.seg"))
    assert left == []


def test_a_demo_whose_place_cannot_be_written_says_so_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", "/proc/jumper-demo"]) == 2
    said = capsys.readouterr()
    assert said.err == "jumper: cannot write /proc/jumper-demo: No such file or directory; choose another place\n"
    assert said.out == ""
