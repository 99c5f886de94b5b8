"""The rows of the linked timeline, in their order. A new view is one function and one line in :data:`VIEWS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jumper.report import elements
from jumper.report.data import RunRows
from jumper.report.theme import Theme


@dataclass(frozen=True, slots=True)
class Row:
    """One drawn row: the name of its view, and its HoloViews element."""

    name: str
    element: Any


#: name -> function of (rows, theme) that returns an element, a list of elements, or None where there is no data
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


def rows_of(rows: RunRows, theme: Theme) -> Iterator[Row]:
    """Yield the rows that have data."""
    for name, view in VIEWS.items():
        drawn = view(rows, theme)
        for element in drawn if isinstance(drawn, list) else [drawn]:
            if element is not None:
                yield Row(name, element)
