"""A task that fails shows its user the same traceback with the plugin and without."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import Any

import cloudpickle
import pytest

import jumper_dask

distributed = pytest.importorskip("distributed")


def has_a_cause(key: str) -> None:
    try:
        {}[key]
    except KeyError as error:
        raise ValueError("on purpose") from error


def has_a_context(key: str) -> None:
    try:
        has_a_cause(key)
    except ValueError:
        {}[key]


async def awaits(key: str) -> None:
    await asyncio.sleep(0)
    await asyncio.gather(asyncio.create_task(part(key)))


async def part(key: str) -> None:
    await asyncio.sleep(0)
    has_a_cause(key)


async def is_cancelled(key: str) -> None:
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)
    except TimeoutError as error:
        raise ValueError(key) from error


class Actor:
    def fails(self, key: str) -> None:
        has_a_cause(key)

    async def awaits(self, key: str) -> None:
        await part(key)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def of(error: BaseException) -> list[str]:
    """Return a traceback with those of its causes and contexts, line by line."""
    return "".join(traceback.format_exception(error)).splitlines()


def seen(client: Any) -> dict[str, list[str]]:
    """Return what a user sees of each kind of failure."""
    found = {}
    for function in (has_a_cause, has_a_context, awaits, is_cancelled, int):
        future = client.submit(function, "missing", pure=False)
        found[function.__name__] = of(future.exception())
        found[function.__name__ + ", frames"] = traceback.format_tb(future.traceback())
        with pytest.raises(ValueError if function is not has_a_context else KeyError) as raised:
            future.result()
        found[function.__name__ + ", raised"] = of(raised.value)
    retried = client.submit(has_a_cause, "missing", retries=1, pure=False)
    found["retried"] = of(retried.exception())
    after = client.submit(len, retried, pure=False)
    found["of what it depends on"] = of(after.exception())
    with pytest.raises(ValueError, match="on purpose") as raised:
        client.recreate_error_locally(after)
    found["recreated"] = of(raised.value)
    actor = client.submit(Actor, actor=True, pure=False).result()
    for method in ("fails", "awaits"):
        with pytest.raises(ValueError, match="on purpose") as raised:
            getattr(actor, method)("missing").result()
        found["Actor." + method] = of(raised.value)
    return found


def test_a_task_that_fails_shows_the_same_traceback_with_the_plugin_and_without(kit: Any) -> None:
    with kit.cluster(threads=1, plugin=False) as client:
        bare = seen(client)
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        ours = seen(client)
    assert any("has_a_cause" in line for line in bare["awaits, frames"]), bare["awaits, frames"]
    for kind, lines in bare.items():
        assert ours[kind] == lines, kind
