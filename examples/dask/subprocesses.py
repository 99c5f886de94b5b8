"""Compress pages in programs that tasks start: their CPU time is in the tasks that started them."""

from __future__ import annotations

import subprocess
import sys

from distributed import Client, LocalCluster

import jumper_dask

PROGRAM = "import sys, lzma; print(len(lzma.compress(sys.stdin.buffer.read(), preset=6)))"


def compress(number: int) -> int:
    page = " ".join(str(n * number) for n in range(60_000)).encode()
    return int(
        subprocess.run([sys.executable, "-S", "-c", PROGRAM], input=page, capture_output=True, check=True).stdout
    )


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        sizes = client.gather(client.map(compress, range(1, 9)))
        print(sum(sizes), "bytes")
        run = jumper_dask.collect(client)

    tasks = run.tasks
    print(tasks[["key", "wall_s", "cpu_s", "processes"]].to_string(index=False))
    print(f"{tasks.cpu_s.sum():.2f} s of CPU in {tasks.wall_s.sum():.2f} s of tasks")
