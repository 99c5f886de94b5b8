"""Measure from a worker's or scheduler's first moment: ``dask worker … --preload jumper_dask.preload``.

On a scheduler it holds for all workers, of which each one needs nothing; on a worker for that worker.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import click
from dask.utils import parse_timedelta
from distributed import Scheduler, Worker

from jumper.utilities import parse_interval
from jumper_dask import _boot
from jumper_dask.plugin import CollectorPlugin, JumperPlugin

__all__ = ["dask_setup"]

#: How long a worker waits before it tries again to reach a scheduler that is not there yet, in seconds.
AGAIN_S = 0.5


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_interval(parse_timedelta(value))
    except (ValueError, KeyError):
        raise click.BadParameter(f"{value!r} is no time of at least 1 ms, like 500ms") from None


@click.command()
@click.option("--interval", callback=_seconds, help="Time between samples, like 500ms.")
@click.option("--collectors", type=click.Path(dir_okay=False), help="A collectors.yaml of your own.")
@click.option("--reset-peak/--no-reset-peak", default=None, help="Reset high-water marks at task boundaries.")
@click.option("--dashboard/--no-dashboard", "page", default=None, help="Add the page /jumper to the dashboard.")
async def dask_setup(
    server: Any, interval: float | None, collectors: str | None, reset_peak: bool | None, page: bool | None
) -> None:
    """Begin to measure a worker, or all workers of a scheduler; what is not given, Dask's configuration says."""
    if not isinstance(server, Scheduler | Worker):
        raise click.UsageError(
            f"jumper_dask.preload is for workers and schedulers, not for a {type(server).__name__}: "
            "use --preload, not --preload-nanny"
        )
    plugin = JumperPlugin(interval, collectors, reset_peak=reset_peak)
    if isinstance(server, Worker):
        await _on_worker(server, plugin)
    else:
        await _on_scheduler(server, plugin, page)


class _Begun(_boot.SchedulerBoot):
    """A scheduler's side that has begun: the scheduler, which is about to start, starts its plugins once more."""

    def start(self, scheduler: Any) -> Any:
        if self.side is None:
            super().start(scheduler)
        return asyncio.sleep(0)


async def _on_scheduler(scheduler: Any, plugin: JumperPlugin, page: bool | None) -> None:
    side = CollectorPlugin(plugin.config["interval"], dashboard=page)
    begun = _Begun(side.config)
    begun.start(scheduler)
    scheduler.add_plugin(begun, name=side.name, idempotent=True)
    await scheduler.register_worker_plugin(None, plugin=pickle.dumps(plugin), name=plugin.name, idempotent=True)


async def _on_worker(worker: Any, plugin: JumperPlugin) -> None:
    """Set the plugin up before the worker joins; like it, wait for a scheduler that is still to come."""
    while True:
        try:
            await worker.scheduler.echo(data="")
            break
        except OSError:
            await asyncio.sleep(AGAIN_S)
    await worker.plugin_add(plugin=pickle.dumps(plugin), name=plugin.name)
