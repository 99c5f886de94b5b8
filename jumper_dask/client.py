"""The client's side: fetch the run that the scheduler holds, whole or for a region of the computation."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.schema.errors import RunError
from jumper.store.rundir import RunDirectory
from jumper_dask.plugin import CollectorPlugin, JumperPlugin

if TYPE_CHECKING:
    from jumper.core.run import Run

__all__ = ["Monitor", "collect", "monitor"]

CHUNK_BYTES = 1 << 20


def collect(client: Any, path: str | Path | None = None, *, timeout: float = 10.0) -> Any:
    """Fetch the run of a cluster and open it; the cluster goes on and may be collected again.

    Parameters
    ----------
    client : distributed.Client
        With an asynchronous client, await the result.
    path : path, optional
        Folder of the run; default ``./jumper-runs/<run id>``.
    timeout : float, optional
        Seconds that each worker has to bring in what it holds; who is late is in the run's events and coverage.

    Returns
    -------
    jumper.core.run.Run

    Raises
    ------
    RunError
        Where the client is not connected, the scheduler has no collector, or ``path`` holds something else.

    Examples
    --------
    >>> run = collect(client)  # doctest: +SKIP
    """
    if _connected(client).asynchronous:
        return _collect_async(client, path, timeout)
    folder = client.sync(_fetch, client, path, timeout)
    return _open(folder)


def _connected(client: Any) -> Any:
    status = getattr(client, "status", None)
    if status != "running":
        found = f"this one is {status}" if status is not None else f"not {client!r}"
        raise RunError(f"expected a distributed.Client that is connected, {found}; collect before it is closed")
    return client


async def _collect_async(client: Any, path: str | Path | None, timeout: float) -> Run:
    folder = await _fetch(client, path, timeout)
    return await asyncio.to_thread(_open, folder)


def _open(folder: Path) -> Run:
    import jumper

    return jumper.open_run(folder)


async def _ensure_collector(client: Any) -> None:
    plugin = CollectorPlugin()
    await client.scheduler.register_scheduler_plugin(plugin=pickle.dumps(plugin), name=plugin.name, idempotent=True)


async def _fetch(client: Any, path: str | Path | None, timeout: float) -> Path:
    """Flush the workers, then bring what this folder has not yet of the run; return the folder."""
    await _ensure_collector(client)
    answer = await client.scheduler.jumper_collect(budget_s=timeout)
    if not isinstance(answer, dict) or "run" not in answer:
        raise RunError("the scheduler has no collector: install jumper-workflows in its environment, then restart it")
    folder = await asyncio.to_thread(_prepare, path, answer["run"])
    sizes: dict[str, int] = answer["files"]
    with _progress(sum(sizes.values())) as advance:
        for name, size in sizes.items():
            await _fetch_file(client, folder / name, name, size, advance)
    await asyncio.to_thread(_write_info, folder, answer["info"])
    await client.scheduler.jumper_collected(run=answer["run"])
    return folder


async def _fetch_file(client: Any, target: Path, name: str, size: int, advance: Callable[[int], None]) -> None:
    have = target.stat().st_size if target.exists() else 0
    advance(min(have, size))
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while have < size:
            data = await client.scheduler.jumper_read(name=name, offset=have, size=min(CHUNK_BYTES, size - have))
            if not isinstance(data, bytes) or not data:
                said = data.get("error") if isinstance(data, dict) else "it sent nothing"
                raise RunError(f"the scheduler could not hand out {name} of the run: {said}; collect again")
            have += await asyncio.to_thread(os.pwrite, descriptor, data, have)
            advance(len(data))
    finally:
        os.close(descriptor)


def _prepare(path: str | Path | None, run: str) -> Path:
    """Return the folder of a run, made where it is not there yet."""
    folder = Path(path) if path is not None else Path("jumper-runs") / run
    if folder.is_file():
        raise RunError(f"{folder} is a file, and a run is a folder; give another path")
    if (folder / "run.json").exists():
        other = RunDirectory(folder).read_info().get("run")
        if other != run:
            raise RunError(f"{folder} holds run {other}, not {run}; give another path")
    elif folder.exists() and any(entry.name != "spool" for entry in folder.iterdir()):
        raise RunError(f"{folder} is not empty and no run; give another path")
    try:
        (folder / "spool").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the run {folder}: {error.strerror}; give another path") from error
    return folder


def _prepare_region(path: str | Path | None, run: str) -> Path:
    """Return the folder of a region, in which no run is yet: its tables would be replaced."""
    if path is None:
        numbered = (Path("jumper-runs") / f"{run}-{number}" for number in itertools.count(1))
        path = next(folder for folder in numbered if not folder.exists())
    folder = _prepare(path, run)
    if (folder / "run.json").exists():
        raise RunError(f"{folder} holds run {run} already, and a region is a run of its own; give another path")
    return folder


def _write_info(folder: Path, info: dict[str, Any]) -> None:
    run = RunDirectory(folder)
    before = run.read_info() if (folder / "run.json").exists() else {}
    coverage = {**before.get("coverage", {}), **info["coverage"]}
    run.write_info({**before, **info, "coverage": coverage})


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show how much has come, on a terminal; give nothing to a pipe."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("collecting"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("collecting", total=total)
        yield lambda amount: progress.advance(task, amount)


class Monitor:
    """A region of a computation that is measured; see :func:`monitor`.

    Attributes
    ----------
    run : Run or None
        The region's run, after its end.
    """

    def __init__(self, client: Any, path: str | Path | None, plugin: JumperPlugin, timeout: float) -> None:
        self.run: Run | None = None
        self._client = client
        self._path = path
        self._folder: Path | None = None
        self._plugin = plugin
        self._timeout = timeout
        self._start_ns = 0
        self._ours = False

    def __enter__(self) -> Monitor:
        if _connected(self._client).asynchronous:
            raise TypeError("this client is asynchronous; write `async with jumper_dask.monitor(client)`")
        self._client.sync(self._begin)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with _noted_on(error):
            folder, region = _connected(self._client).sync(self._end)
            self.run = _open_region(folder, region)

    async def __aenter__(self) -> Monitor:
        if not _connected(self._client).asynchronous:
            raise TypeError("this client is synchronous; write plain `with jumper_dask.monitor(client)`")
        await self._begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with _noted_on(error):
            _connected(self._client)
            folder, region = await self._end()
            self.run = await asyncio.to_thread(_open_region, folder, region)

    async def _begin(self) -> None:
        await _ensure_collector(self._client)
        before = await self._client.scheduler.jumper_time()
        if not isinstance(before, dict):
            raise RunError("the scheduler has no collector: install jumper-workflows in its environment")
        self._folder = await asyncio.to_thread(_prepare_region, self._path, before["run"])
        self._ours = not before["monitored"]
        if self._ours:
            await self._client.register_plugin(self._plugin)
        self._start_ns = (await self._client.scheduler.jumper_time())["time_ns"]

    async def _end(self) -> tuple[Path, tuple[int, int]]:
        stop_ns = (await self._client.scheduler.jumper_time())["time_ns"]
        if self._ours:
            await self._client.unregister_worker_plugin(self._plugin.name)
        folder = await _fetch(self._client, self._folder, self._timeout)
        return folder, (self._start_ns, stop_ns)


@contextlib.contextmanager
def _noted_on(error: BaseException | None) -> Iterator[None]:
    """Let an error of the user's code pass as it is: that its run could not be collected is a note on it."""
    try:
        yield
    except Exception as problem:
        if error is None:
            raise
        error.add_note(f"jumper could not collect the run of this region: {problem}")


def monitor(
    client: Any,
    path: str | Path | None = None,
    *,
    interval: float | None = None,
    collectors: str | Path | None = None,
    timeout: float = 10.0,
) -> Monitor:
    """Measure a region: ``with monitor(client, path="runs/today") as m: ...``, afterwards ``m.run``.

    Where no worker is monitored yet, the plugin is registered for the region and taken back at its end.
    The run's tasks are those that overlap the region; ``async with`` on an asynchronous client.

    Parameters
    ----------
    client : distributed.Client
    path : path, optional
        Folder of the region's run, in which none is yet; default ``./jumper-runs/<run id>-<number>``.
    interval, collectors
        As for :class:`JumperPlugin`; without effect where the plugin is registered already.
    timeout : float, optional
        Seconds that each worker has to bring in what it holds at the end.

    Raises
    ------
    RunError
        As for :func:`collect`, before the region's work begins; an error of that work itself is not touched.

    Examples
    --------
    >>> with monitor(client) as m:  # doctest: +SKIP
    ...     client.submit(sum, [1, 2]).result()
    >>> m.run.tasks  # doctest: +SKIP
    """
    return Monitor(client, path, JumperPlugin(interval, collectors), timeout)


def _open_region(folder: Path, region: tuple[int, int]) -> Run:
    """Merge the run and keep, in its tables, the attempts that overlap the region (ns by the scheduler's clock)."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from jumper.store.merge import write_parquet

    _open(folder)
    start_ns, stop_ns = region
    for name in ("tasks.parquet", "parts.parquet"):
        table = pq.read_table(folder / name)
        begun = pc.less_equal(table["start_ns"], stop_ns)
        ended = pc.fill_null(pc.less(table["stop_ns"], start_ns), False)
        write_parquet(table.filter(pc.and_not(begun, ended)), folder / name)
    RunDirectory(folder).update_info(region={"start_ns": start_ns, "stop_ns": stop_ns})
    return _open(folder)
