"""`collect` and `monitor` where something is wrong, and runs that are read where there is no Dask."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import distributed
import pytest

import jumper_dask
from jumper.schema.errors import RunError

READ = """
import sys, json
sys.modules["dask"] = sys.modules["distributed"] = None
import jumper
run = jumper.open_run(sys.argv[1])
print(json.dumps([list(run.tasks.key), run.info["kind"], sorted(run.streams)]))
"""


def test_a_cluster_without_workers_gives_an_empty_run(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=0, plugin=False) as client:
        run = jumper_dask.collect(client, tmp_path / "all")
        with jumper_dask.monitor(client, tmp_path / "region") as region:
            pass
    for empty in (run, region.run):
        assert len(empty.tasks) == 0
        assert empty.info["coverage"] == {**empty.info["coverage"], "expected": 0, "came": 0, "missing": []}


def test_a_closed_client_and_what_is_none_are_refused_in_words(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=0, plugin=False) as client:
        pass
    for other in (client, "tcp://127.0.0.1:8786"):
        with pytest.raises(RunError, match=r"distributed\.Client that is connected"):
            jumper_dask.collect(other, tmp_path / "run")
        with pytest.raises(RunError, match=r"distributed\.Client that is connected"), jumper_dask.monitor(other):
            pass
    assert not (tmp_path / "run").exists()


def test_paths_that_cannot_hold_the_run_are_refused_and_nothing_is_lost(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with kit.cluster() as client:
        client.submit(sum, [1, 2], key="one").result()
        with pytest.raises(RunError, match="cannot make the run"):
            jumper_dask.collect(client, tmp_path / "file" / "run")
        with pytest.raises(RunError, match="is a file"):
            jumper_dask.collect(client, tmp_path / "file")
        run = jumper_dask.collect(client, tmp_path / "run")
        assert list(run.tasks.key) == ["one"]
    with kit.cluster(workers=0) as client:
        with pytest.raises(RunError, match=f"holds run {run.info['run']}, not"):
            jumper_dask.collect(client, tmp_path / "run")
        # a region's mistake is told before its work begins
        refused = pytest.raises(RunError, match=f"holds run {run.info['run']}, not")
        with refused, jumper_dask.monitor(client, tmp_path / "run"):
            pytest.fail("the region began")


def test_an_error_in_a_region_is_the_user_s_and_the_run_is_there(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=1, plugin=False) as client:
        region = jumper_dask.monitor(client, tmp_path / "run", interval=0.2)
        with pytest.raises(ValueError, match="on purpose"), region:
            client.submit(kit.boom, key="bad").result()
        # registered for the region only, also where it ends so
        assert not any(client.run(lambda dask_worker: "jumper" in dask_worker.plugins).values())
    assert region.run is not None
    assert list(region.run.tasks.state) == ["failed"]


def test_a_cluster_that_is_gone_does_not_hide_the_user_s_error(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=0, plugin=False) as client:
        region, refused = jumper_dask.monitor(client, tmp_path / "run"), pytest.raises(KeyError, match="mine")
        with refused as found, region:
            client.close()
            raise KeyError("mine")
    assert "could not collect the run of this region: expected a distributed.Client" in found.value.__notes__[0]


def test_asynchronous_clients_have_the_same_errors(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()

    async def check() -> None:
        local = distributed.LocalCluster(
            n_workers=0, dashboard_address=None, asynchronous=True, silence_logs=50, processes=True
        )
        async with local:
            async with distributed.Client(local, asynchronous=True) as client:
                with pytest.raises(RunError, match="is not empty and no run"):
                    await jumper_dask.collect(client, tmp_path)
                with pytest.raises(RunError, match="is not empty and no run"):
                    async with jumper_dask.monitor(client, tmp_path):
                        pytest.fail("the region began")
                with pytest.raises(TypeError, match="async with"), jumper_dask.monitor(client, tmp_path):
                    pytest.fail("the region began")
                run = await jumper_dask.collect(client, tmp_path / "run")
                assert len(run.tasks) == 0
            with pytest.raises(RunError, match=r"distributed\.Client that is connected"):
                await jumper_dask.collect(client, tmp_path / "late")

    asyncio.run(check())


def test_a_synchronous_client_in_async_with_is_told(kit: Any, tmp_path: Path) -> None:
    async def check(client: Any) -> None:
        async with jumper_dask.monitor(client, tmp_path):
            pytest.fail("the region began")

    with kit.cluster(workers=0, plugin=False) as client, pytest.raises(TypeError, match="plain `with"):
        asyncio.run(check(client))


def test_a_saved_run_opens_where_there_is_no_dask(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client:
        client.submit(sum, [1, 2], key="one").result()
        jumper_dask.collect(client, tmp_path / "run")
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    keys, kind, streams = json.loads(done.stdout)
    assert (keys, kind) == (["one"], "dask")
    assert {"process", "thread", "monitor"} <= set(streams)
