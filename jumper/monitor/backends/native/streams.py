"""The streams of the native engine: their numbers and columns, the schema of its segments, and its rows as Python."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jumper.monitor.backends.native._engine import columns

STREAMS = {"process": 1, "user": 2, "slurm": 3, "system": 4, "thread": 5, "monitor": 6}
_NAMES = {number: name for name, number in STREAMS.items()}
#: what the engine says where nothing is known
NULL = -(2**63)
#: built-in collectors beside the engine are asked at most so often
SLOW_S = 1.0
Row = dict[str, Any]  # int, but float in the columns of C collectors; None: null


def cores() -> int:
    """Return how many cores have a column of their own. Source: sysconf(3), _SC_NPROCESSORS_CONF."""
    return os.sysconf("SC_NPROCESSORS_CONF")


def stream_names(stream: int) -> list[str]:
    """Return the columns of a stream, those of the cores included."""
    names = columns(stream)
    return names + [f"cpu_{core}_ns" for core in range(cores())] if stream == STREAMS["system"] else names


def schema_payload(header: Mapping[str, Any], extra: Mapping[str, list[str]] | None = None) -> bytes:
    """Return the payload of the schema block of a segment that the engine writes; `extra`: columns of C collectors."""
    streams = {
        name: {
            "id": number,
            "columns": [
                *([column, "i8"] for column in stream_names(number)),
                *([column, "f8"] for column in (extra or {}).get(name, ())),
            ],
        }
        for name, number in STREAMS.items()
    }
    return json.dumps({**header, "streams": streams}).encode()


def rows_of(
    drained: bytes,
    names: Mapping[int, list[str]],
    extra: Mapping[str, list[str]] | None = None,
    only: Collection[str] = tuple(STREAMS),
) -> Iterator[tuple[str, Row]]:
    """Yield (stream, row) of what :meth:`Engine.drain` returned; `extra` as in :func:`schema_payload`."""
    values, doubles = memoryview(drained).cast("q"), memoryview(drained).cast("d")
    at = 0
    while at < len(values):
        stream, count = values[at], values[at + 1]
        at += 2
        level, own = _NAMES[stream], at + len(names[stream])
        if level not in only:
            at += count
            continue
        row: Row = dict(zip(names[stream], values[at:own].tolist(), strict=True))
        at += count
        for index, name in enumerate((extra or {}).get(level, ()), own):
            row[name] = NULL if values[index] == NULL else doubles[index]
        yield level, {name: None if value == NULL else value for name, value in row.items()}
