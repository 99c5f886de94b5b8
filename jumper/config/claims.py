"""Who writes which column: no two collectors may write the same one, nor one that jumper itself stores."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jumper.config.entries import BUILT_IN, CollectorConfig, CollectorEntry, Refused, resolve
from jumper.config.libraries import describe
from jumper.schema.columns import COLUMNS, DEVICE_COLUMNS, is_derived
from jumper.schema.errors import CollectorConfigError

__all__ = ["build_handler", "check_columns", "check_targets", "only_derived", "without_broken"]

#: Columns that monitors, segments and tables add to each row themselves.
_OURS = (*(c.name for c in (*COLUMNS, *DEVICE_COLUMNS)), "time", "time_ns", "node", "segment")


def build_handler(entry: CollectorEntry, search: tuple[str, ...] = ()) -> Any:
    """Return a new handler of an entry.

    Raises
    ------
    CollectorConfigError
        Where its target is not there, has no ``transform`` or refuses its keys.
    """
    factory = resolve(entry, "handler._target_", entry.handler, search)
    try:
        handler = factory(**entry.handler_kwargs)
    except Exception as error:  # the class may be the user's
        keys = ", ".join(entry.handler_kwargs) or "none"
        raise entry.error("handler", f"{entry.handler} refuses its keys ({keys}): {error}") from error
    if not callable(getattr(handler, "transform", None)):
        raise entry.error("handler._target_", f"{entry.handler} has no transform(raw, level); is it a handler?")
    return handler


def declared_columns(entry: CollectorEntry, handler: Any) -> tuple[str, ...]:
    """Return the columns that a handler says it will write; none where it does not say.

    Raises
    ------
    CollectorConfigError
        Where what it says are no names.
    """
    columns = getattr(handler, "columns", ())
    if isinstance(columns, str) or not all(isinstance(c, str) and c for c in columns):
        raise entry.error("handler", f"expected names of columns, found {columns!r}")
    return tuple(columns)


def check_columns(config: CollectorConfig) -> None:
    """Raise where two entries write one column, as far as their handlers say what they write.

    Raises
    ------
    CollectorConfigError
        Naming both entries, their files and the column.
    """
    taken: list[tuple[str, CollectorEntry | None]] = [(column, None) for column in _OURS]
    for entry in config.entries:
        key = "library" if entry.library else "handler"
        if entry.library:
            columns = describe(entry).names
        else:
            columns = declared_columns(entry, build_handler(entry, config.search))
        for index, column in enumerate(columns):
            if column in columns[:index]:
                raise entry.error(key, f"the column {column!r} is named twice")
            for other, owner in taken:
                if _overlap(column, other):
                    raise entry.error(key, _collision(column, owner))
        taken.extend((column, entry) for column in columns)


def check_targets(config: CollectorConfig) -> None:
    """Import the targets that are not ours, and raise where one is missing or two write one column.

    Raises
    ------
    CollectorConfigError
    """
    for entry in config.entries:
        if entry.origin != BUILT_IN and not entry.library:
            resolve(entry, "_target_", entry.target, config.search)
    check_columns(config)


def without_broken(config: CollectorConfig, tolerant: Callable[[CollectorEntry], object]) -> CollectorConfig:
    """Return a configuration with those entries refused that cannot run, where their being left out is tolerated.

    Raises
    ------
    CollectorConfigError
        As :func:`check_targets`, for all other entries.
    """
    kept = [entry for entry in config.entries if not tolerant(entry)]
    refused = list(config.refused)
    check_targets(CollectorConfig(tuple(kept), config.search))
    for entry in filter(tolerant, config.entries):
        try:
            check_targets(CollectorConfig((*kept, entry), config.search))
        except CollectorConfigError as error:
            refused.append(Refused(entry.name, entry.origin, str(error)))
        else:
            kept.append(entry)
    return CollectorConfig(tuple(e for e in config.entries if e in kept), config.search, tuple(refused))


def only_derived(entry: CollectorEntry, handler: Any) -> bool:
    """Return whether all columns of an entry of ours are derived ones, that are never stored.

    What a user's entry writes under such a name is the user's, and stored.
    """
    if entry.origin != BUILT_IN:
        return False
    columns = declared_columns(entry, handler)
    return bool(columns) and all(is_derived(column.replace("#", "0")) for column in columns)


def _overlap(one: str, other: str) -> bool:
    return one == other or _matches(one, other) or _matches(other, one)


def _matches(pattern: str, name: str) -> bool:
    return "#" in pattern and re.fullmatch(re.escape(pattern).replace(r"\#", r"\d+"), name) is not None


def _collision(column: str, owner: CollectorEntry | None) -> str:
    if owner is None:
        return f"the column {column!r} is one of jumper's own; choose another name"
    return (
        f"the column {column!r} is written by collectors.{owner.name} of {owner.origin} too; "
        f"choose another name, or call the entry {owner.name!r} to replace that one"
    )
