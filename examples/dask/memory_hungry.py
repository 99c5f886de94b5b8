"""One group of tasks needs most of the memory: who it is, how near to the limit, and what to give a worker."""

from __future__ import annotations

import random

from distributed import Client, LocalCluster

import jumper_dask


def load(number: int) -> list[float]:
    chance = random.Random(number)
    return [chance.random() for _ in range(20_000)]


def pairs(rows: list[float]) -> float:
    """Need about 500 MiB for a moment: all pairs at once, where one row after the other would do."""
    everything = bytearray(500 << 20)
    everything[:: 1 << 12] = b"x" * (len(everything) >> 12)
    return sum(rows)


def mean(sums: list[float]) -> float:
    return sum(sums) / len(sums)


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="700MiB", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        sums = client.map(pairs, client.map(load, range(6)))
        print(client.submit(mean, sums).result())
        run = jumper_dask.collect(client)

    print(run.summary()[["attempts", "memory_peak_bytes", "memory_limit_bytes"]])
    for found in run.findings():
        print(found.severity, found.subject, found.text, found.action, found.snippet, sep="\n  ")
