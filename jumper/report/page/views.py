"""The rows of the linked timeline, in their order. A new view is one function and one line in :data:`VIEWS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jumper.report import elements
from jumper.report.canvas import Picture
from jumper.report.data import RunRows
from jumper.report.theme import Theme

#: name -> function of (rows, theme) that returns a picture, a list of pictures, or None where there is no data
VIEWS: dict[str, Callable[[RunRows, Theme], Any]] = {
    "tasks": elements.tasks,
    "cpu": elements.cpu,
    "memory": elements.memory,
    "storage": elements.io,
    "calls": elements.calls,
    "network": elements.network,
    "gpu": elements.gpu,
    "custom": lambda rows, theme: [elements.metric(rows, theme, found) for found in rows.custom],
    "nodes": elements.nodes,
}


def rows_of(rows: RunRows, theme: Theme) -> Iterator[Picture]:
    """Yield the rows that have data."""
    for view in VIEWS.values():
        drawn = view(rows, theme)
        yield from (picture for picture in (drawn if isinstance(drawn, list) else [drawn]) if picture is not None)
