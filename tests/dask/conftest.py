"""Real clusters of worker processes, and the tasks with known answers that they run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import jumper_dask

distributed = pytest.importorskip("distributed")


@contextmanager
def cluster(
    workers: int = 1, threads: int = 2, *, interval: float = 0.2, plugin: bool = True, **more: Any
) -> Iterator[Any]:
    """A LocalCluster with the plugin; gives its client."""
    more = {"processes": True, "dashboard_address": None, "silence_logs": 50, **more}
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=threads, **more) as local,
        distributed.Client(local) as client,
    ):
        if plugin:
            client.register_plugin(jumper_dask.JumperPlugin(interval=interval))
        yield client


def burn(seconds: float) -> float:
    """Use CPU time of this thread; return how much it was."""
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass
    return time.thread_time() - begin


def write(path: str, size: int) -> None:
    with open(path, "wb", buffering=0) as file:
        while size:
            size -= file.write(b"x" * min(size, 1_000_000))


def children(number: int, cpu_s: float) -> None:
    """Run sub-processes one after the other, each using this much CPU time in its loop."""
    program = f"import time\nwhile time.process_time() < {cpu_s}: pass"
    for _ in range(number):
        subprocess.run([sys.executable, "-S", "-E", "-c", program], check=True)


def child_writes(path: str, size: int) -> None:
    subprocess.run([sys.executable, "-S", "-E", "-c", f"open({path!r}, 'wb', 0).write(b'x' * {size})"], check=True)


def allocate(mebibytes: int) -> int:
    block = bytearray(mebibytes << 20)
    block[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(block[:: os.sysconf("SC_PAGE_SIZE")])
    return len(block)


def boom() -> None:
    raise ValueError("on purpose")


class ReadsItself:
    """What reads 32 MiB when somebody asks how large it is."""

    def __sizeof__(self) -> int:
        with open("/dev/zero", "rb") as file:
            return len(file.read(32 << 20))


def burn_again(seconds: float, mark: str) -> None:
    """Use CPU time, and ask to be run again unless a file says that this is the second time."""
    burn(seconds)
    if not os.path.exists(mark):
        Path(mark).touch()
        raise distributed.Reschedule


def wait_for(path: str, seconds: float) -> None:
    """Run until a file is there, with its CPU; say that it runs by the file's neighbour."""
    Path(path + ".runs").write_text(str(os.getpid()))
    deadline = time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < deadline:
        burn(0.05)


def ticks(spool: Path, pid: int) -> int:
    """How many samples of a process are on disk."""
    from jumper.store.segments import read_segment

    paths = spool.glob(f"jumper-*/*.{pid}.*.seg")
    return sum(len(read_segment(path).table("process").get("cpu_ns", ([], []))[0]) for path in paths)


def rusage_children() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def by_key(run: Any) -> Any:
    """The tasks table of a run by key; of the last attempt where there are several."""
    return run.tasks.drop_duplicates("key", keep="last").set_index("key")


# workers do not find the tests' modules by name
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="session")
def kit_module() -> Any:
    """This module, for fixtures that live longer than a test."""
    return sys.modules[__name__]


@pytest.fixture
def kit() -> Any:
    """This module: `kit.cluster`, `kit.burn`, ...; tests cannot import a conftest by name."""
    return sys.modules[__name__]
