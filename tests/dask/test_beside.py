"""What is beside the tasks in a worker's process: our own threads, and what Python collectors write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import jumper_dask
from jumper.monitor.backends import native_built
from jumper.store.segments import read_segment

distributed = pytest.importorskip("distributed")
DEADLINE_S = 60.0


def threads() -> set[int]:
    import os

    return {int(name) for name in os.listdir("/proc/self/task")}


def nobodys(before: set[int]) -> dict[int, str]:
    """Return the threads of this process that came since and are not known to be anybody's, with their names."""
    import threading

    from jumper_dask import boundaries

    assert boundaries._LEDGER is not None
    boundaries._LEDGER.account()
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    whose = boundaries._LEDGER.balance._whose
    return {tid: names.get(tid, "?") for tid in threads() - before if tid not in whose}


def without_native() -> None:
    from jumper_dask import site

    site.native_built = lambda: False


def is_apart(until: str) -> str:
    """Have a child in a network namespace of its own until a file is there; return what it says of that."""
    import os

    command = ["unshare", "--user", "--net", sys.executable, "-c", "import sys; print('there', flush=True); input()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin and child.stdout and child.stderr
        said = child.stdout.readline() or child.stderr.read()
        deadline = time.monotonic() + DEADLINE_S
        while said == "there\n" and not os.path.exists(until) and time.monotonic() < deadline:
            time.sleep(0.02)
        child.kill()
    return said


cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("engine", ["native", "agent"] if native_built() else ["agent"])
def test_each_thread_that_we_start_in_a_worker_is_known_as_ours(kit: Any, tmp_path: Path, engine: str) -> None:
    with kit.cluster(threads=1, plugin=False) as client:
        client.submit(kit.burn, 0.01).result()
        ((worker, before),) = client.run(threads).items()
        if engine == "agent":
            client.run(without_native)
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.1))
        client.submit(kit.children, 1, 0.5).result()
        jumper_dask.collect(client, tmp_path / "run")
        assert len(client.run(threads)[worker] - before) > 1
        assert client.run(nobodys, before)[worker] == {}


@pytest.mark.skipif(not native_built(), reason="the other engine has one segment for all")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (util-linux)")
def test_a_segment_that_begins_late_comes_home_as_it_grows(kit: Any, tmp_path: Path) -> None:
    """The traffic of network namespaces is first written when a process is in one."""
    until = tmp_path / "until"
    with kit.cluster(threads=1, interval=0.1) as client:
        task = client.submit(is_apart, str(until), key="apart")
        rows: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(rows) < 2 and task.status == "pending":
            assert time.monotonic() < deadline, rows
            run = jumper_dask.collect(client, tmp_path / "run")
            samples = run.samples("process")
            found = int(samples.netns_sent_bytes.notna().sum()) if "netns_sent_bytes" in samples else 0
            if found > (rows[-1] if rows else 0):
                rows.append(found)
        until.touch()
        if "there" not in task.result():
            pytest.skip(f"the kernel gives users no namespaces here: {task.result()}")
        client.unregister_worker_plugin(jumper_dask.JumperPlugin.name)
        run = jumper_dask.collect(client, tmp_path / "run")
    segments = [read_segment(path) for path in (run.path / "spool").glob("*.seg")]
    ends = {s.header.get("kind", "samples"): s.records[-1]["type"] for s in segments if "worker" in s.header}
    assert ends == {"tasks": "end", "samples": "end", "collectors": "end"}
