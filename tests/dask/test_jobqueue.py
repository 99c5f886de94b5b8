"""dask-jobqueue on a real Slurm: one run that has the three nodes by their names."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import jumper
from tests.cluster.beds import slurm

__all__ = ["slurm"]

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "dask.md").read_text()
(CLUSTER,) = (code for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if "SLURM" in code)
#: Runs on the login host after the page's code; each worker is a Slurm job of its own.
MEASURE = """
import socket, sys, time
import jumper_dask

def where(seconds):
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass
    return socket.gethostname(), time.thread_time() - begin

client.wait_for_workers(3, timeout=120)
workers = list(client.scheduler_info(n_workers=-1)["workers"])
futures = [client.submit(where, 0.3, key=f"t{i}", workers=[w], pure=False) for i, w in enumerate(workers)]
for number, (node, spent) in enumerate(client.gather(futures)):
    print(f"t{number}", node, spent)
jumper_dask.collect(client, sys.argv[1])
client.close()
cluster.close()
"""


def test_three_nodes_of_a_slurm_cluster_are_in_one_run_by_name(slurm: Any, tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", CLUSTER + MEASURE, tmp_path / "run"]
    done = slurm.run(*command, env=environment, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert {node for _, node, _ in said} == {"node1", "node2", "node3"}

    run = jumper.open_run(tmp_path / "run")
    tasks = run.tasks.set_index("key")
    for key, node, spent in said:
        assert tasks.node[key] == node
        assert tasks.cpu_s[key] == pytest.approx(float(spent), abs=0.03)
    assert set(run.info["nodes"]) >= {"node1", "node2", "node3"}
    assert run.info["coverage"] == {**run.info["coverage"], "expected": 3, "came": 3, "missing": []}
    samples = run.samples("process")
    assert set(samples.node) == {"node1", "node2", "node3"}
    # the hosts' monotonic clocks are 100,000 s apart; their samples are not
    assert samples.time_ns.max() - samples.time_ns.min() < 200e9
