"""The shape of one entry of a collectors.yaml, checked; the message names the key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from jumper.config.entries import CollectorEntry

__all__ = ["INJECTABLE", "read_entry", "shown"]

#: What `inject` may name: attributes that every monitor of ours has.
INJECTABLE = ("pid", "process", "uid", "slurm_job", "node_info", "interval")

_HANDLER_HINT = (
    "missing; name what turns the value into columns, such as "
    "{_target_: jumper.monitor.metrics.handlers.ScalarHandler, column: x}, or NoOpHandler for no columns"
)
#: msgspec's words for types -> YAML's
_WORDS = {"`array | null`": "a list", "`object`": "a mapping", "Object": "the mapping", "`str`": "text"}


class _Target(msgspec.Struct):
    target: Annotated[str, msgspec.Meta(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)+$")] = msgspec.field(name="_target_")


class _Library(msgspec.Struct):
    library: Annotated[str, msgspec.Meta(min_length=1)]
    config: str = ""


class _Entry(_Target, kw_only=True):
    handler: dict[str, Any]
    inject: list[str] | None = None


_T = TypeVar("_T", bound="_Target | _Library")


def read_entry(name: str, raw: object, origin: str, folder: str | None) -> CollectorEntry:
    """Return an entry out of what stands in the file.

    Parameters
    ----------
    name : str
        Its key.
    raw : object
        Its value, as YAML gives it.
    origin, folder : str
        The file, for messages, and its folder.

    Raises
    ------
    CollectorConfigError
    """
    blank = CollectorEntry(name, "", "", origin=origin, folder=folder)
    if isinstance(raw, Mapping) and "library" in raw:
        return _library(blank, raw)
    if isinstance(raw, Mapping) and raw.get("handler") is None:
        raise blank.error("handler", _HANDLER_HINT)
    entry, kwargs = _part(blank, "", raw, _Entry)
    handler, handler_kwargs = _part(blank, "handler", entry.handler, _Target)
    inject = tuple(entry.inject or ())
    for key in inject:
        if key not in INJECTABLE:
            raise blank.error("inject", f"unknown name {key!r}; known are {', '.join(INJECTABLE)}")
        if key in kwargs:
            raise blank.error(key, "given twice, as a key and in `inject`")
    return CollectorEntry(name, entry.target, handler.target, inject, kwargs, handler_kwargs, origin, folder)


def _library(blank: CollectorEntry, raw: Mapping[str, Any]) -> CollectorEntry:
    """Return an entry that names a collector in C; a relative path is from the folder of the file."""
    for key in ("_target_", "handler", "inject"):
        if key in raw:
            raise blank.error(key, "a collector in C has none beside `library`; the library says what its columns are")
    if blank.name == "process":
        raise blank.error("library", "`process` finds the processes that the others look at; a library cannot")
    entry, rest = _part(blank, "", raw, _Library)
    if rest:
        raise blank.error(next(iter(rest)), "unknown key; beside `library` there is `config`, a text")
    if "\0" in entry.library + entry.config:
        raise blank.error("library", "expected text without zero bytes")
    path = os.path.expanduser(entry.library)
    if not os.path.isabs(path) and blank.folder is None:
        raise blank.error("library", f"expected an absolute path, as there is no folder to begin at; found {path!r}")
    path = os.path.join(blank.folder or "", path)
    return blank._replace(library=os.path.normpath(path), config=entry.config)


def _part(entry: CollectorEntry, key: str, raw: object, shape: type[_T]) -> tuple[_T, dict[str, Any]]:
    """Return a mapping as its struct, and the keys that are left for the constructor."""
    try:
        part = msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        where = ".".join(filter(None, [key, at.rstrip("`").lstrip(".")]))
        if "regex" in text:
            text = f"Expected package.module.Class, got {shown(raw['_target_'])}"  # type: ignore[index]
        for word, name in _WORDS.items():
            text = text.replace(word, name)
        raise entry.error(where, text[:1].lower() + text[1:]) from None
    rest = {name: value for name, value in dict(raw).items() if name not in shape.__struct_encode_fields__}  # type: ignore[call-overload]
    for name, value in rest.items():
        where = ".".join(filter(None, [key, str(name)]))
        if not isinstance(name, str) or not re.fullmatch(r"[^\W\d]\w*", name):
            raise entry.error(where, "expected the name of a parameter as key")
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise entry.error(where, f"expected text, numbers, lists and mappings, found {shown(value)}") from None
    return part, rest


def shown(value: object) -> str:
    """Return a value for a message, cut to a readable length.

    Examples
    --------
    >>> shown([1]), shown(None)
    ('[1] (list)', 'nothing')
    """
    return "nothing" if value is None else f"{value!r:.60} ({type(value).__name__})"
