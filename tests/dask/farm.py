"""A Dask cluster on hosts of its own, driven from outside: who can be killed in every way that there is."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cluster.beds import Hosts

WORK = """
import os, time
from pathlib import Path
import distributed, jumper_dask

def hold(gate, seconds=60):
    "Run until a file is there; say by its neighbour which process runs."
    Path(gate + ".runs").write_text(str(os.getpid()))
    deadline = time.monotonic() + seconds
    while not os.path.exists(gate) and time.monotonic() < deadline:
        time.sleep(0.02)

def grow(mark, mebibytes):
    "Fill the memory step by step, and hold it; the second time, do nothing."
    if os.path.exists(mark):
        return "replaced"
    Path(mark).touch()
    blocks = []
    for _ in range(mebibytes // 10):
        blocks.append(bytearray(10 << 20))
        for at in range(0, 10 << 20, 4096):
            blocks[-1][at] = 1
        time.sleep(0.02)
    time.sleep(30)

client = distributed.Client(address, timeout=60)
"""


class Farm:
    """A scheduler and a client on the first host, workers wherever they are asked for.

    Parameters
    ----------
    bed : Hosts
    folder : path
        Which all hosts share.
    """

    def __init__(self, bed: Hosts, folder: Path, **environment: str) -> None:
        self.bed, self.folder = bed, folder
        # the shortest that distributed allows: how long a dead host is waited for
        self.environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s", **environment}
        self.address = f"tcp://{bed.address[bed.names[0]]}:8786"
        self._log = (folder / "log").open("wb")
        self.start(bed.names[0], "distributed.cli.dask_scheduler", "--port", 8786, "--no-dashboard")
        self.client = bed.console(bed.names[0])
        self.client(WORK, address=self.address)
        self.kept = Kept(Path(os.environ["JUMPER_SPOOL"]), folder / "kept")

    def start(self, host: str, module: str, *words: object) -> Any:
        command = (sys.executable, "-m", module, *words)
        return self.bed.start(host, *command, env=self.environment, stdout=self._log, stderr=self._log)

    def worker(self, host: str, name: str, *words: object, nanny: bool = True) -> Any:
        """Start a worker of one thread."""
        # a task asks for its worker by a resource: by a name it would wait for the address that is gone
        where = ["--name", name, "--resources", f"{name}=1", "--local-directory", self.folder / "local"]
        words = (self.address, "--nthreads", 1, "--no-dashboard", "--nanny" if nanny else "--no-nanny", *where, *words)
        return self.start(host, "distributed.cli.dask_worker", *words)

    def wait(self, workers: int) -> None:
        self.client("client.wait_for_workers(workers, timeout=90)", workers=workers)

    def submit(self, name: str, function: str, *arguments: object) -> None:
        """Submit a task whose key is the worker's name."""
        code = f"{name} = client.submit({function}, *arguments, key={name!r}, resources={{{name!r}: 1}}, pure=False)"
        self.client(code, arguments=list(map(str, arguments)) if function == "hold" else list(arguments))

    def collect(self) -> Path:
        """Collect the run."""
        self.client("str(jumper_dask.collect(client, path, timeout=20).path)", path=str(self.folder / "run"))
        return self.folder / "run"

    def close(self) -> None:
        self.kept.close()
        self._log.close()


class Kept:
    """Every segment that was ever spooled, copied as it grows: what is removed, or freed, can still be compared.

    A second name of each file lets it be read to its end after its worker has removed it.
    """

    def __init__(self, spool: Path, folder: Path) -> None:
        self.spool, self.folder = spool, folder
        self._data: dict[str, bytearray] = {}
        folder.mkdir()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _keep(self) -> None:
        while not self._over.wait(0.02):
            for path in self.spool.glob("jumper-*/*.seg"):
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(path, self.folder / path.name)
            self._read()

    def _read(self) -> None:
        for path in self.folder.glob("*.seg"):
            data = self._data.setdefault(path.stem, bytearray())
            if path.stat().st_size > len(data):
                with path.open("rb") as file:
                    file.seek(len(data))
                    data += file.read()

    def bytes(self) -> dict[str, bytes]:
        """Return what each segment held when it was looked at last; all of it once its writer has ended."""
        self.close()
        self._read()
        return {name: bytes(data) for name, data in self._data.items()}

    def names(self) -> set[str]:
        """Return the segments that there have been so far."""
        return set(self._data)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def until(look: Callable[[], Any], seconds: float = 60, what: str = "it") -> Any:
    """Return what a look gives once it gives something."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if value := look():
                return value
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


def without_package(folder: Path) -> dict[str, str]:
    """Return an environment in which jumper and jumper_dask cannot be imported."""
    hide = folder / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import sys
        class Hide:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("jumper", "jumper_dask"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Hide())
        """)
    )
    return {**os.environ, "PYTHONPATH": str(hide)}
