"""20,000 trivial tasks of a real cluster with the plugin and without, in turn: the ratios with their intervals."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import dask
from distributed import Client, LocalCluster

import jumper_dask
from benchmarks.measuring import Row, Size, interval_of, spread
from jumper_dask.plugin import CollectorPlugin

#: So many tasks with and without, in all; each pair takes the plugin to the worker and back.
TASKS = 20_000
#: Seconds from the end of a round until its CPU is read, more than the plugin's interval: what it put off counts, too.
AFTER_S = 1.2


def trivial(number: int) -> int:
    return number + 1


def used(client: Any) -> tuple[float, float]:
    """Return the CPU of the workers, and of this process with the scheduler and the client in it, in seconds."""
    return sum(client.run(time.process_time).values()), time.process_time()


def once(client: Any, number: int, with_plugin: bool) -> list[float]:
    """Return wall, CPU of the worker, CPU of scheduler and client, in us a task."""
    if with_plugin:
        client.register_plugin(jumper_dask.JumperPlugin())
    before, begin = used(client), time.perf_counter()
    client.gather(client.map(trivial, range(number), pure=False))
    wall = time.perf_counter() - begin
    time.sleep(AFTER_S)
    cpu = [now - then for now, then in zip(used(client), before, strict=True)]
    if with_plugin:
        client.unregister_worker_plugin(jumper_dask.JumperPlugin.name)
        client.run_on_scheduler(take_back)
    return [seconds / number * 1e6 for seconds in (wall, *cpu)]


async def take_back(dask_scheduler: Any) -> None:
    """Take the scheduler's part back too, which stays where only the workers' is unregistered."""
    await dask_scheduler.plugins.pop(CollectorPlugin.name).close()


def paired(size: Size) -> Iterator[Row | str]:
    """Yield what is done, then the ratios of wall time and CPU; each is first in every other pair."""
    number = max(10, round(TASKS * size.work / size.pairs))
    found: dict[bool, list[list[float]]] = {True: [], False: []}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"jumper.directory": folder}),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        for with_plugin in (True, False):  # what both do once is in neither
            once(client, number // 5, with_plugin)
        for pair in range(size.pairs):
            yield f"Dask, pair {pair + 1} of {size.pairs}"
            for with_plugin in (pair % 2 == 0, pair % 2 != 0):
                found[with_plugin].append(once(client, number, with_plugin))
    for index, what in enumerate(("wall time", "CPU of the worker", "CPU of scheduler and client")):
        ours, bare = ([round_[index] for round_ in found[told]] for told in (True, False))
        middle, low, high = interval_of([a / b for a, b in zip(ours, bare, strict=True)])
        figure = f"Dask, {number * size.pairs:,} trivial tasks with and without the plugin, {what} a task"
        ratio = f"{middle:.3f} (95 %: {low:.3f} to {high:.3f})"
        yield Row(figure, spread(ours, 0, " us"), spread(bare, 0, " us"), ratio, "")
