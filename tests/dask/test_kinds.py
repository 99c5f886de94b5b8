"""Every way in which Dask runs something has its own cost: its CPU, against what its own clock said."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import jumper_dask

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
DEADLINE_S = 60.0


def near(value: float, truth: float) -> bool:
    return abs(value - truth) <= max(0.02, 0.02 * truth)


def burn(seconds: float) -> float:
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass
    return time.thread_time() - begin


async def coroutine(seconds: float) -> float:
    """Use CPU between awaits, in itself and in tasks that it makes."""
    used = 0.0

    async def part(share: float) -> None:
        nonlocal used
        used += burn(share)
        await asyncio.sleep(0.01)
        used += burn(share)

    await part(seconds / 8)
    await asyncio.gather(part(seconds / 8), asyncio.create_task(part(seconds / 4)))
    return used


async def waits(seconds: float) -> None:
    await asyncio.sleep(seconds)


def secedes(seconds: float) -> float:
    used = burn(seconds / 2)
    distributed.secede()
    used += burn(seconds / 2)
    return used


def comes_back(seconds: float) -> float:
    used = burn(seconds / 2)
    distributed.secede()
    distributed.rejoin()
    used += burn(seconds / 2)
    return used


def asks_a_client(seconds: float) -> float:
    with distributed.worker_client() as client:
        used: float = client.submit(burn, seconds, key="asked").result()
    return used


def has_helpers(seconds: float) -> None:
    threads = [threading.Thread(target=burn, args=(seconds / 2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Counter:
    def __init__(self) -> None:
        self.used = 0.0

    def add(self, seconds: float) -> float:
        self.used = burn(seconds)
        return self.used

    def fails(self, seconds: float) -> None:
        self.add(seconds)
        raise ValueError("on purpose")


def runs_until(path: str) -> None:
    """Use CPU until a file is there; say so by its neighbour."""
    Path(path + ".runs").touch()
    deadline = time.monotonic() + DEADLINE_S
    while not os.path.exists(path) and time.monotonic() < deadline:
        burn(0.02)
    Path(path + ".cpu").write_text(str(time.thread_time()))


def wait(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.01)


def cpu_of(client: Any) -> float:
    """Return the CPU of the one worker's process; it had no children."""
    (used,) = client.run(time.process_time).values()
    return float(used)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def measured(
    kit_module: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[str, float], tuple[float, float]]:
    """A run with every kind once, what each said itself, and bounds of the CPU of the worker's process meanwhile."""
    folder = tmp_path_factory.mktemp("kinds")
    said: dict[str, float] = {}
    with kit_module.cluster(threads=2, plugin=False) as client:
        started = cpu_of(client)
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        before = cpu_of(client)
        together = {
            "coroutine": client.submit(coroutine, 0.8, key="coroutine"),
            "waits": client.submit(waits, 0.5, key="waits"),
            "beside": client.submit(burn, 0.4, key="beside"),
        }
        said.update({name: future.result() or 0.0 for name, future in together.items()})
        pairs = {"secedes": client.submit(secedes, 0.4, key="secedes"), "next": client.submit(burn, 0.2, key="next")}
        said.update({name: future.result() for name, future in pairs.items()})
        said["comes_back"] = client.submit(comes_back, 0.3, key="comes_back").result()
        said["asked"] = client.submit(asks_a_client, 0.3, key="asks").result()
        client.submit(has_helpers, 0.6, key="helpers").result()
        counter = client.submit(Counter, actor=True, key="Counter-1").result()
        said["add"] = counter.add(0.3).result()
        with pytest.raises(ValueError, match="on purpose"):
            counter.fails(0.1).result()
        said["again"] = counter.add(0.2).result()
        said["after"] = client.submit(burn, 0.1, key="after").result()
        ended = folder / "ended"
        cancelled = client.submit(runs_until, str(ended), key="cancelled")
        wait(ended.with_suffix(".runs"))
        cancelled.cancel()
        ended.touch()
        wait(ended.with_suffix(".cpu"))
        with dask.annotate(color="blue"), distributed.span("colors") as span:
            shorts = client.map(burn, [0.001] * 10, key=[f"mapped-{n}" for n in range(10)])
            said.update(zip((f"mapped-{n}" for n in range(10)), client.gather(shorts), strict=True))
        deadline = time.monotonic() + DEADLINE_S
        while any(client.run(lambda dask_worker: dask_worker.active_threads).values()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        least = cpu_of(client) - before
        run = jumper_dask.collect(client, folder / "run")
        most = cpu_of(client) - started
    said["span"] = span  # type: ignore[assignment]
    return run, said, (least, most)


def row(run: Any, key: str) -> Any:
    rows = run.tasks[run.tasks.key == key]
    assert len(rows) == 1, (key, len(rows))
    return rows.iloc[0]


@pytest.mark.parametrize("key", ["coroutine", "beside", "secedes", "next", "comes_back", "asked", "after"])
def test_a_task_has_the_cpu_that_it_says_it_used(measured: Any, key: str) -> None:
    run, said, _ = measured
    assert near(row(run, key).cpu_s, said[key]), (row(run, key).cpu_s, said[key])


def test_a_coroutine_that_waits_has_used_nothing_and_no_one_s_files_are_its(measured: Any) -> None:
    waiting = row(measured[0], "waits")
    assert waiting.cpu_s < 0.01 and waiting.wall_s > 0.45
    assert waiting[["read_chars", "write_chars", "read_bytes", "write_bytes"]].isna().all()


def test_a_task_that_waits_for_another_one_does_not_have_its_cpu_too(measured: Any) -> None:
    assert row(measured[0], "asks").cpu_s < 0.1


def test_helper_threads_are_of_a_task_that_is_alone_and_it_says_so(measured: Any) -> None:
    alone = row(measured[0], "helpers")
    assert near(alone.cpu_s, 0.6) and "helpers" in alone["flags"]
    assert not any("helpers" in flags for flags in measured[0].tasks.query("key == 'after'")["flags"])


def test_each_call_of_an_actor_s_method_is_a_row_and_one_that_raises_failed(measured: Any) -> None:
    run, said, _ = measured
    calls = run.tasks[run.tasks.group.str.startswith("Counter.")].sort_values("start_ns")
    assert list(calls.group) == ["Counter.add", "Counter.fails", "Counter.add"]
    assert list(calls.state) == ["done", "failed", "done"]
    assert "on purpose" in calls.reason.iloc[1]
    assert near(calls.cpu_s.iloc[0], said["add"]) and near(calls.cpu_s.iloc[1], 0.1)
    assert near(calls.cpu_s.iloc[2], said["again"])
    assert row(run, "after")["flags"].tolist() == []  # the call that raised does not go on beside others


def test_a_cancelled_task_that_goes_on_has_all_that_it_used(measured: Any) -> None:
    cancelled = row(measured[0], "cancelled")
    assert cancelled.state == "cancelled"
    assert 0 < cancelled.cpu_s <= cancelled.wall_s


def test_span_annotations_group_and_layer_are_columns(measured: Any) -> None:
    run, said, _ = measured
    for key in ("mapped-1", "mapped-9"):
        mapped = row(run, key)
        assert mapped.span == said["span"]
        assert '"color":"blue"' in mapped.annotations.replace(" ", "")
        assert mapped.group == "mapped" and mapped.layer


def test_short_tasks_have_no_more_cpu_than_wall_time_and_hardly_more_than_they_used(measured: Any) -> None:
    run, said, _ = measured
    tasks = run.tasks.query("state == 'done' and key != 'helpers'")
    assert (tasks.cpu_s <= tasks.wall_s).all(), tasks[["key", "cpu_s", "wall_s"]]
    around = [row(run, key).cpu_s - said[key] for key in (f"mapped-{n}" for n in range(10))]
    assert min(around) > 0 and sorted(around)[5] < 0.0001, around


def test_the_parts_of_the_process_add_up_to_its_cpu(measured: Any) -> None:
    run, _, (least, most) = measured
    rows = run.samples("worker")
    parts = [c for c in rows if c.startswith("cpu_") and c != "cpu_ns"]
    assert len(parts) == 6
    assert (rows[parts].sum(axis=1) == rows.cpu_ns).all()
    last = rows.iloc[-1]
    assert least <= last.cpu_ns / 1e9 <= most
    assert last.cpu_unattributed_ns < 0.01 * last.cpu_ns, rows[["time_ns", *parts]]
    assert last.cpu_tasks_ns / 1e9 == pytest.approx(run.tasks.cpu_s.sum(), rel=0.01)


def test_the_page_s_shares_of_a_worker(measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "numbers.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(code.replace("RUN", str(measured[0].path)), {})
    assert "cpu_unattributed_ns" in capsys.readouterr().out


def test_helper_threads_beside_other_tasks_are_nobody_s(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=2) as client:
        client.gather([client.submit(has_helpers, 0.6, key="helpers"), client.submit(time.sleep, 1.0, key="beside")])
        run = jumper_dask.collect(client, tmp_path / "run")
    assert run.tasks.cpu_s.sum() < 0.1
    assert near(run.samples("worker").cpu_unattributed_ns.iloc[-1] / 1e9, 0.6)


def test_workers_of_one_process_are_counted_once(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=2, threads=1, processes=False) as client:
        addresses = list(client.scheduler_info()["workers"])
        used = client.gather([client.submit(burn, 0.3, key=a, workers=[a]) for a in addresses])
        run = jumper_dask.collect(client, tmp_path / "run")
    tasks = kit.by_key(run)
    for address, truth in zip(addresses, used, strict=True):
        assert near(tasks.cpu_s[address], truth) and tasks.worker[address] == address
    assert near(run.samples("worker").cpu_tasks_ns.iloc[-1] / 1e9, sum(used))
    assert run.samples("worker").segment.nunique() == 1


def test_what_another_process_runs_has_no_cpu_rather_than_ours(kit: Any, tmp_path: Path) -> None:
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    with kit.cluster(processes=False, threads=1, executor={"processes": pool}) as client, pool:
        with dask.annotate(executor="processes"):
            client.submit(time.sleep, 0.3, key="elsewhere").result()
        run = jumper_dask.collect(client, tmp_path / "run")
    there = row(run, "elsewhere")
    assert there.wall_s >= 0.3 and "elsewhere" in there["flags"]
    assert there[["cpu_s", "read_chars", "memory_peak_bytes"]].isna().all()


def test_where_dask_does_not_call_its_specification_the_table_of_threads_tells(kit: Any, tmp_path: Path) -> None:
    """As before Dask 2024.12; a task that runs when it is measured first is left alone."""
    ended = tmp_path / "ended"
    with kit.cluster(threads=2, plugin=False) as client:
        first = client.submit(runs_until, str(ended), key="first")
        wait(ended.with_suffix(".runs"))
        client.run(table_only)
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        used = [client.submit(burn, 0.2, key=f"burn-{n}").result() for n in range(2)]
        ended.touch()
        first.result()
        deadline = time.monotonic() + DEADLINE_S
        while any(client.run(lambda dask_worker: dask_worker.active_threads).values()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run = jumper_dask.collect(client, tmp_path / "run")
    for number, truth in enumerate(used):
        assert near(row(run, f"burn-{number}").cpu_s, truth) and row(run, f"burn-{number}").thread > 0


def table_only() -> None:
    from jumper_dask import _compat

    _compat.is_coroutine = lambda ts: None  # type: ignore[assignment]


def test_stolen_tasks_have_one_row_where_they_ran(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(workers=2, threads=1) as client:
        first = next(iter(client.scheduler_info()["workers"]))
        futures = [
            client.submit(burn, 0.1, key=f"steal-{n}", workers=[first], allow_other_workers=True) for n in range(12)
        ]
        used = sum(client.gather(futures))
        run = jumper_dask.collect(client, tmp_path / "run")
    assert sorted(run.tasks.key) == sorted(f"steal-{n}" for n in range(12))
    assert near(run.tasks.cpu_s.sum(), used)


def test_a_worker_that_holds_much_and_forks_does_not_have_it_twice(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=1, interval=0.05) as client:
        client.submit(holds_and_forks, 400, key="forks").result()
        run = jumper_dask.collect(client, tmp_path / "run")
    forks = row(run, "forks")
    assert 400 << 20 < forks.memory_peak_bytes < 600 << 20, forks.memory_peak_bytes >> 20


def holds_and_forks(mebibytes: int) -> None:
    """Hold memory while children come and go: some forks that wait, some that another program takes the place of."""
    import subprocess

    block = bytearray(b"x") * (mebibytes << 20)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            time.sleep(0.2)
            os._exit(0)
        subprocess.run(["true"], check=True)
        os.waitpid(child, 0)
    assert len(block) == mebibytes << 20
