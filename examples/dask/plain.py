"""Count primes in a Dask cluster, and print what the tasks cost."""

from __future__ import annotations

from distributed import Client, LocalCluster

import jumper_dask


def primes(first: int, last: int) -> int:
    return sum(all(number % part for part in range(2, int(number**0.5) + 1)) for number in range(max(first, 2), last))


def total(counts: list[int]) -> int:
    return sum(counts)


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        counts = [client.submit(primes, begin, begin + 10_000) for begin in range(0, 80_000, 10_000)]
        print(client.submit(total, counts).result(), "primes")
        run = jumper_dask.collect(client)

    print(run.summary()[["attempts", "cpu_s", "cores", "memory_peak_bytes"]])
    print(run)
