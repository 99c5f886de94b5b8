"""A collector's configuration as data, that travels as JSON to agents and remote workers; standard library only."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from jumper.schema.errors import CollectorConfigError

__all__ = ["BUILT_IN", "BUILT_IN_C", "CollectorConfig", "CollectorEntry", "Refused", "resolve"]

#: Origin of the entries that come with jumper.
BUILT_IN = "built-in collectors.yaml"
#: Origin of those in C that are named in the file beside it.
BUILT_IN_C = "built-in c/collectors.yaml"


class CollectorEntry(NamedTuple):
    """One entry of a collectors.yaml.

    Attributes
    ----------
    name : str
        Key of the entry.
    target, handler : str
        Dotted names of the classes of the collector and of its handler.
    inject : tuple of str
        Attributes of the monitor that are passed to the collector by name.
    kwargs, handler_kwargs : dict
        The other keys, passed to the constructors.
    origin : str
        The file that it comes from, for messages.
    folder : str or None
        Folder of that file; modules beside it can be targets.
    library : str or None
        Path of the shared library of a collector in C, which has no target and no handler.
    config : str
        The text that such a library is set up with.
    package : str or None
        The installed package that brought the entry.
    """

    name: str
    target: str
    handler: str
    inject: tuple[str, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 -- a default of a named tuple, that nobody changes
    handler_kwargs: dict[str, Any] = {}  # noqa: RUF012
    origin: str = BUILT_IN
    folder: str | None = None
    library: str | None = None
    config: str = ""
    package: str | None = None

    def error(self, key: str, text: str) -> CollectorConfigError:
        """Return an error that names the file, the entry and the key in it (empty: the entry itself)."""
        return CollectorConfigError(f"{self.origin}: collectors.{self.name}{'.' if key else ''}{key}: {text}")


class Refused(NamedTuple):
    """A collector that does not run while the others do, and the line that says why."""

    name: str
    origin: str
    text: str

    def event(self) -> dict[str, Any]:
        """Return it as a record for the run's events."""
        return {
            "type": "event",
            "kind": "collector-off",
            "collector": self.name,
            "origin": self.origin,
            "text": self.text,
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
        }


class CollectorConfig(NamedTuple):
    """The collectors of a monitor, in the order in which they run; ``process`` is first.

    Attributes
    ----------
    entries : tuple of CollectorEntry
    search : tuple of str
        Where modules of the user's own targets are looked for after everything
        else: the search paths of the processes that the configuration came through.
    refused : tuple of Refused
        What packages brought that cannot run here.

    Examples
    --------
    >>> from jumper.config.load import load_config_text
    >>> config = load_config_text("collectors: {network: null}", "example")
    >>> [entry.name for entry in config.entries]
    ['process', 'node', 'cpu', 'memory', 'io', 'gpu_counters', 'gpu', 'energy', 'cgroup', 'network_namespaces']
    >>> CollectorConfig.from_json(config.to_json()).entries == config.entries
    True
    """

    entries: tuple[CollectorEntry, ...]
    search: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain JSON data.

        What can be imported here is to be found there too: where an entry is the
        user's own, the search path of this process travels along.
        """
        own = any(entry.origin != BUILT_IN for entry in self.entries)
        search = dict.fromkeys((*self.search, *(search_path() if own else ())))
        return {
            "collectors": [entry._asdict() for entry in self.entries],
            "search": list(search),
            "refused": [each._asdict() for each in self.refused],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CollectorConfig:
        """Return the configuration that :meth:`to_json` gave.

        Raises
        ------
        CollectorConfigError
            Where the data are not such a configuration.
        """
        try:
            entries = tuple(
                CollectorEntry(**{**entry, "inject": tuple(entry["inject"])}) for entry in data["collectors"]
            )
            refused = tuple(Refused(**each) for each in data.get("refused", ()))
            return cls(entries, tuple(data.get("search", ())), refused)
        except (KeyError, TypeError, AttributeError) as error:
            raise CollectorConfigError(f"expected what CollectorConfig.to_json gives, found {data!r:.80}") from error


def search_path() -> tuple[str, ...]:
    """Return the folders of ``sys.path``, the current one by its full name."""
    return tuple(dict.fromkeys(os.path.abspath(p) for p in sys.path if isinstance(p, str) and os.path.isdir(p or ".")))


@contextmanager
def _searching(folders: Sequence[str]) -> Iterator[None]:
    """Let imports look into these folders too, after everything else, for the length of the block."""
    added = [folder for folder in folders if folder not in sys.path]
    sys.path.extend(added)
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)


def resolve(entry: CollectorEntry, key: str, target: str, search: Sequence[str]) -> Any:
    """Return the object that a ``_target_`` names.

    Raises
    ------
    CollectorConfigError
        Where there is no such module, or nothing of that name in it that can be called.
    """
    module_name, _, name = target.rpartition(".")
    if not module_name:
        raise entry.error(key, f"expected package.module.Class, found {target!r}")
    beside = () if entry.origin == BUILT_IN else (*([entry.folder] if entry.folder else []), *search)
    try:
        with _searching(beside):
            module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        missing = (
            isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}.")
        )
        hint = f"; put it beside {entry.origin}, or where Python finds it (PYTHONPATH)" if missing else ""
        raise entry.error(key, f"cannot import {module_name}: {type(error).__name__}: {error}{hint}") from error
    found = getattr(module, name, None)
    if not callable(found):
        public = sorted(n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module_name)
        has = f"its classes: {', '.join(public)}" if public else "it defines no class"
        raise entry.error(key, f"module {module_name} has no class {name}; {has}")
    return found
