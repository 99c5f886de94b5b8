"""Collectors that other packages bring, by the entry point group `jumper.collectors`; a broken one stops nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from typing import TYPE_CHECKING, Any

from jumper.config.entries import CollectorEntry, Refused
from jumper.schema.errors import CollectorConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
    for point in sorted(_points(), key=lambda each: (_package(each), each.name)):
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


def _points() -> Collection[EntryPoint]:
    if not _may_bring_some():
        return ()
    import importlib.metadata  # costs a fifth of the CPU time of `jumper run -- true`

    return importlib.metadata.entry_points(group=GROUP)


def _may_bring_some() -> bool:
    """Return whether a package may have a point of our group; False only where importlib.metadata finds none.

    It asks each finder that has ``find_distributions``; Python's own looks for ``*.dist-info`` and ``*.egg-info`` in
    the folders of ``sys.path``, and in archives and eggs, which only it shall open.
    Source: the Python library reference, importlib.metadata, "Extending the search algorithm".
    """
    ours = (BuiltinImporter, FrozenImporter, PathFinder)
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder not in ours):
        return True
    for folder in map(str, sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:
            if os.path.isfile(folder):
                return True
            continue
        if folder.lower().endswith(".egg"):
            return True
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        if GROUP.encode() in file.read():
                            return True
                except OSError:  # most packages have no entry points
                    continue
    return False


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _entries(point: EntryPoint, origin: str, read: Reader) -> Mapping[str, CollectorEntry | None]:
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
