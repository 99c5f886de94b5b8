"""20,000 trivial tasks of a real cluster with the plugin and without, in turn: the ratios with their intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from distributed import Client, LocalCluster

import jumper_dask
from benchmarks.measuring import Row, Size, interval_of, spread

#: So many tasks with and without, in all; each pair takes the plugin to the worker and back.
TASKS = 20_000
#: Seconds from the end of a round until its CPU is read, more than the plugin's interval: what it put off counts, too.
AFTER_S = 1.2


def trivial(number: int) -> int:
    return number + 1


def used(client: Any) -> float:
    """Return the CPU of the workers in seconds."""
    return sum(client.run(time.process_time).values())


def once(client: Any, number: int, with_plugin: bool) -> tuple[float, float]:
    """Return (wall, CPU of the worker) in us a task."""
    if with_plugin:
        client.register_plugin(jumper_dask.JumperPlugin())
    before, begin = used(client), time.perf_counter()
    client.gather(client.map(trivial, range(number), pure=False))
    wall = time.perf_counter() - begin
    time.sleep(AFTER_S)
    cpu = used(client) - before
    if with_plugin:
        client.unregister_worker_plugin(jumper_dask.JumperPlugin.name)
    return wall / number * 1e6, cpu / number * 1e6


def paired(size: Size) -> Iterator[Row | str]:
    """Yield what is done, then the ratios of wall time and of the worker's CPU; each is first in every other pair."""
    number = max(10, round(TASKS * size.work / size.pairs))
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50)
    with cluster, Client(cluster) as client:
        for with_plugin in (True, False):  # what both do once is in neither
            once(client, number // 5, with_plugin)
        for pair in range(size.pairs):
            yield f"Dask, pair {pair + 1} of {size.pairs}"
            for with_plugin in (pair % 2 == 0, pair % 2 != 0):
                found[with_plugin].append(once(client, number, with_plugin))
    for index, what in enumerate(("wall time", "CPU of the worker")):
        ours, bare = ([round_[index] for round_ in found[told]] for told in (True, False))
        middle, low, high = interval_of([a / b for a, b in zip(ours, bare, strict=True)])
        figure = f"Dask, {number * size.pairs:,} trivial tasks with and without the plugin, {what} a task"
        ratio = f"{middle:.3f} (95 %: {low:.3f} to {high:.3f})"
        yield Row(figure, spread(ours, 0, " us"), spread(bare, 0, " us"), ratio, "")
