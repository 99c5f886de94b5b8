"""Collectors that other packages bring, by the entry point group `jumper.collectors`; a broken one stops nobody."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from jumper.config.entries import CollectorEntry, Refused
from jumper.schema.errors import CollectorConfigError

__all__ = ["GROUP", "packaged_entries"]

GROUP = "jumper.collectors"
#: (what a collectors.yaml holds or its path, origin, folder) -> its entries
Reader = Callable[[Any, str, str | None], Mapping[str, CollectorEntry | None]]


def packaged_entries(read: Reader, taken: Mapping[str, object]) -> tuple[dict[str, CollectorEntry], list[Refused]]:
    """Return the entries of all installed packages by name, and what was refused, with its reason.

    Parameters
    ----------
    read : callable
        Turns a mapping or the path of a file into entries; raises CollectorConfigError.
    taken : mapping
        Built-in names, that a package cannot replace.
    """
    found: dict[str, CollectorEntry] = {}
    refused: list[Refused] = []
    points = importlib.metadata.entry_points(group=GROUP)
    for point in sorted(points, key=lambda each: (_package(each), each.name)):
        package = _package(point)
        origin = f"package {package} (entry point {point.name})"
        try:
            for name, entry in _entries(point, origin, read).items():
                owner = found.get(name)
                if entry is None:
                    text = "null; a package cannot remove a collector, only a file of the user's can"
                elif name in taken or owner is not None:
                    by = owner.origin if owner is not None else "jumper itself"
                    text = f"the name is taken by {by}; only a file of the user's can replace a collector"
                else:
                    found[name] = entry._replace(package=package)
                    continue
                refused.append(Refused(name, origin, f"{origin}: collectors.{name}: {text}"))
        except CollectorConfigError as error:
            refused.append(Refused(point.name, origin, str(error)))
    return found, refused


def _package(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _entries(point: importlib.metadata.EntryPoint, origin: str, read: Reader) -> Mapping[str, CollectorEntry | None]:
    try:
        value = point.load()
        if callable(value):
            value = value()
    except Exception as error:  # a package's module may raise anything while it is imported
        raise CollectorConfigError(f"{origin}: {point.value}: {type(error).__name__}: {error}") from error
    module = getattr(sys.modules.get(point.module), "__file__", None)
    folder = os.path.dirname(os.path.abspath(module)) if module else None
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        return read(os.path.join(folder, path) if folder else path, origin, folder)
    if not isinstance(value, Mapping):
        raise CollectorConfigError(
            f"{origin}: {point.value}: expected the path of a collectors.yaml or a mapping like one, "
            f"found {type(value).__name__}"
        )
    return read(value, origin, folder)
