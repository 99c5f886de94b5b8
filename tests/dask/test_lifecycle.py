"""Workers come, go and are asked anew in every orderly way: nothing is lost, nothing is left, no cluster breaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import distributed
import pytest

import jumper_dask
from jumper.schema.errors import RunError
from jumper_dask import shipping, site
from tests.dask.farm import Kept, until, without_package


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    kept = Kept(Path(os.environ["JUMPER_SPOOL"]), tmp_path / "kept")
    yield kept
    kept.close()


def arrived(run: Any) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (run.path / "spool").glob("*.seg")}


def all_home(kept: Kept, run: Any) -> None:
    """All that was ever spooled is in the run, byte for byte, and no spool is left."""
    here = arrived(run)
    for name, data in kept.bytes().items():
        assert here.get(name) == data, name
    assert [path for path in kept.spool.glob("jumper-*/*") if path.suffix in (".seg", ".now")] == []


def test_registered_again_its_new_settings_hold_and_a_running_task_is_not_lost(
    kit: Any, tmp_path: Path, kept: Kept
) -> None:
    gate = str(tmp_path / "gate")
    with kit.cluster(workers=1, threads=1, interval=0.5) as client:
        future = client.submit(kit.wait_for, gate, 60, key="across")
        until(lambda: Path(gate + ".runs").read_text())
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.1))
        Path(gate).touch()
        future.result()
        client.submit(kit.burn, 1.0, key="after").result()
        client.unregister_worker_plugin("jumper")
        client.submit(kit.burn, 0.1, key="without").result()
        run = jumper_dask.collect(client, tmp_path / "run")
    tasks = kit.by_key(run)
    assert tasks.state.to_dict() == {"across": "done", "after": "done", "without": "done"}
    assert "unmonitored" in tasks["flags"]["without"]
    assert run.info["interval_s"] == 0.1
    samples = run.samples("process")
    steps = {part.mono_ns.diff().median() / 1e9 for _, part in samples.groupby("segment")}
    assert min(steps) < 0.25 <= tasks.wall_s["after"]
    assert len(kept.bytes()) == 4
    all_home(kept, run)


def test_restart_retire_and_scale_leave_every_row_once(kit: Any, tmp_path: Path, kept: Kept) -> None:
    with kit.cluster(workers=2, threads=1) as client:
        client.gather(client.map(kit.burn, [0.2] * 4, key="before", pure=False))
        client.retire_workers([next(iter(client.scheduler_info()["workers"]))])
        client.gather(client.map(kit.burn, [0.1] * 2, key="retired", pure=False))
        client.restart()
        client.gather(client.map(kit.burn, [0.1] * 2, key="restarted", pure=False))
        client.cluster.scale(3)  # it still counts the retired one
        client.wait_for_workers(2, timeout=60)
        client.gather(client.map(kit.burn, [0.1] * 6, key="scaled", pure=False))
        client.cluster.scale(1)
        until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) < 2)
        run = jumper_dask.collect(client, tmp_path / "run")
        client.unregister_worker_plugin("jumper")
        run = jumper_dask.collect(client, tmp_path / "run")
    counts = {"before": 4, "retired": 2, "restarted": 2, "scaled": 6}
    assert run.tasks.group.value_counts().to_dict() == counts
    assert set(run.tasks.state) == {"done"}
    assert run.info["coverage"]["missing"] == []
    all_home(kept, run)


def test_workers_that_an_adaptive_cluster_adds_and_ends_are_measured_and_leave_every_row_once(
    kit: Any, tmp_path: Path, kept: Kept
) -> None:
    with kit.cluster(workers=1, threads=1) as client:
        client.cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=3, target_duration="500ms")
        gate = str(tmp_path / "gate")
        held = client.submit(kit.wait_for, gate, 60, key="held")
        many = client.map(kit.burn, [0.3] * 16, key="many", pure=False)
        until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 3, what="scaling up")
        client.gather(many)
        Path(gate).touch()
        held.result()
        del held, many  # a worker that holds a result is kept longer
        until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, what="scaling down")
        client.submit(kit.burn, 0.1, key="after").result()
        (pid,) = client.run(os.getpid).values()
        # one that is ended before it has shipped all leaves that to the one that stays
        until(lambda: all(f".{pid}." in path.name for path in kept.spool.glob("jumper-*/*.seg")), what="coming home")
        client.unregister_worker_plugin("jumper")
        run = jumper_dask.collect(client, tmp_path / "run")
    assert run.tasks.group.value_counts().to_dict() == {"held": 1, "many": 16, "after": 1}
    assert set(run.tasks.state) == {"done"}
    assert run.tasks.worker.nunique() >= 2
    assert run.tasks.cpu_s[run.tasks.group == "many"].between(0.3, 0.5).all()
    coverage = run.info["coverage"]
    assert coverage["expected"] == coverage["came"] >= 3 and coverage["missing"] == []
    all_home(kept, run)


def test_workers_that_join_while_the_plugin_is_registered_are_measured_once(
    kit: Any, tmp_path: Path, kept: Kept
) -> None:
    with kit.cluster(workers=0, plugin=False) as client:
        client.cluster.scale(3)
        for _ in range(5):  # one of these is likely to meet a worker that is joining
            client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        client.wait_for_workers(3, timeout=60)
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        workers = list(client.scheduler_info()["workers"])
        client.gather([client.submit(kit.burn, 0.1, key=f"t{i}", workers=[w]) for i, w in enumerate(workers)])
        client.unregister_worker_plugin("jumper")
        run = jumper_dask.collect(client, tmp_path / "run")
        assert run.info["coverage"] == {**run.info["coverage"], "expected": 3, "came": 3, "missing": []}
        left = client.run(lambda: len(sys.modules["jumper_dask.site"].Site._sites))
    assert set(left.values()) == {0}
    assert run.tasks.cpu_s.notna().all()
    all_home(kept, run)


def test_a_scheduler_without_the_package_schedules_on(kit: Any, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
               "--host", "127.0.0.1", "--scheduler-file", str(file)]  # fmt: skip
    scheduler = subprocess.Popen(command, env=without_package(tmp_path), stdout=-3, stderr=-3)
    try:
        until(file.exists)
        with distributed.Client(scheduler_file=str(file), timeout=60) as client:
            client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny",
                      "--no-dashboard", "--nthreads", "1"]  # fmt: skip
            process = subprocess.Popen(worker, stdout=-3, stderr=-3)
            try:
                assert client.submit(sum, [1, 2]).result(timeout=60) == 3
                status = client.run(lambda dask_worker: dask_worker.plugins["jumper"].status)
                assert [said["error"] for said in status.values()] == [
                    "RuntimeError: the scheduler has no collector; install jumper-workflows there too"
                ]
                with pytest.raises(RunError, match="install jumper-workflows"):
                    jumper_dask.collect(client, tmp_path / "run")
            finally:
                process.terminate()
                process.wait(30)
    finally:
        scheduler.terminate()
        scheduler.wait(30)


def test_a_monitor_ends_though_its_cancellation_is_lost(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` may swallow a cancellation (cpython#86296); here it always is swallowed."""

    async def swallow(self: Any) -> None:
        begin = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begin + 0.5:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    monkeypatch.setattr(shipping.Shipper, "push", swallow)
    before = set(site.Site._sites)  # of clusters that earlier tests of this process let go
    with kit.cluster(workers=1, threads=1, processes=False, interval=0.05) as client:
        until(lambda: client.submit(kit.burn, 0.05, pure=False).result() and set(site.Site._sites) - before)
        client.unregister_worker_plugin("jumper")
        until(lambda: not set(site.Site._sites) - before)
        run = jumper_dask.collect(client, tmp_path / "run")
    assert set(run.tasks.state) == {"done"}


def test_starts_are_on_disk_though_the_scheduler_does_not_answer(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = asyncio.Event(), threading.Event()
    drain = shipping.Shipper.drain

    async def silent(self: Any, budget_s: float = 30.0) -> bool:
        asked.set()
        await answer.wait()
        return bool(await drain(self, budget_s))

    monkeypatch.setattr(shipping.Shipper, "drain", silent)
    gate = str(tmp_path / "gate")
    spool = Path(os.environ["JUMPER_SPOOL"])
    with kit.cluster(workers=1, threads=1, processes=False, interval=0.05) as client:
        assert asked.wait(60)
        future = client.submit(kit.wait_for, gate, 60, key="waits")
        until(lambda: any(b'"waits"' in path.read_bytes() for path in spool.glob("jumper-*/*.seg")), 20)
        Path(gate).touch()
        future.result()
        client.loop.add_callback(answer.set)
