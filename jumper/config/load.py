"""Reading collectors.yaml: ours, the user's own, and what they named; merged by name and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jumper.config.claims import without_broken
from jumper.config.entries import BUILT_IN, BUILT_IN_C, CollectorConfig, CollectorEntry
from jumper.schema.errors import CollectorConfigError

__all__ = ["load_config", "load_config_text"]

_FOLDER = os.path.join(os.path.dirname(__file__), "collectors")
_Entries = dict[str, CollectorEntry | None]


def load_config(path: str | os.PathLike[str] | None = None) -> CollectorConfig:
    """Return the collectors that a monitor built now would run.

    Merged, a later one adding entries or replacing those of the same name (null
    removes one): the built-in files, what installed packages bring by the entry point
    group ``jumper.collectors``, ``~/.config/jumper/collectors.yaml``
    (``XDG_CONFIG_HOME`` where it is set), the file that ``JUMPER_COLLECTORS``
    names, and ``path``. No other place is looked at, since a ``_target_`` is code that will run.

    Parameters
    ----------
    path : path, optional
        A collectors.yaml.

    Returns
    -------
    CollectorConfig
        What packages brought that cannot run is in its ``refused``.

    Raises
    ------
    CollectorConfigError
        Where a file cannot be read or what it says cannot be run; the message
        names the file and the key.

    Examples
    --------
    >>> load_config().entries[0].name
    'process'
    """
    from jumper.config.packages import packaged_entries  # not at import: agents have no use for it

    files = []
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    own = os.path.join(base, "jumper", "collectors.yaml")
    if os.path.exists(own):
        files.append((own, own))
    named = os.environ.get("JUMPER_COLLECTORS")
    if named:
        files.append((named, f"{named} (JUMPER_COLLECTORS)"))
    if path is not None:
        files.append((os.fspath(path), os.fspath(path)))
    ours = _built_in()
    packaged, refused = packaged_entries(_packaged, ours)
    users: _Entries = {}
    for name, origin in files:
        file = os.path.abspath(os.path.expanduser(name))
        users.update(_parse(_read(file, origin), origin, os.path.dirname(file)))
    left = tuple(each for each in refused if each.name not in users)
    config = CollectorConfig(_config({**ours, **packaged, **users}).entries, (), left)
    return without_broken(config, lambda entry: entry.package)


def load_config_text(text: str, origin: str) -> CollectorConfig:
    """Return the built-in collectors merged with the text of a collectors.yaml from elsewhere.

    Nothing else is read and no target is imported: this machine may not be the
    one that runs them.

    Parameters
    ----------
    text : str
    origin : str
        Where it comes from, for messages.

    Raises
    ------
    CollectorConfigError
        As :func:`load_config`.
    """
    return _config({**_built_in(), **_parse(text, origin, None)})


def _built_in() -> _Entries:
    return {
        **_parse(_read(os.path.join(_FOLDER, "python", "collectors.yaml"), BUILT_IN), BUILT_IN, None),
        **_parse(
            _read(os.path.join(_FOLDER, "c", "collectors.yaml"), BUILT_IN_C), BUILT_IN_C, os.path.join(_FOLDER, "c")
        ),
    }


def _packaged(value: Any, origin: str, folder: str | None) -> _Entries:
    if isinstance(value, str):
        origin = f"{origin}, {value}"
        return _parse(_read(value, origin), origin, os.path.dirname(value))
    return _entries(value, origin, folder)


def _config(merged: _Entries) -> CollectorConfig:
    return CollectorConfig(tuple(entry for entry in merged.values() if entry is not None))


def _read(path: str, origin: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CollectorConfigError(f"{origin}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CollectorConfigError(f"{origin}: expected YAML in UTF-8, found other bytes at {error.start}") from error


def _parse(text: str, origin: str, folder: str | None) -> _Entries:
    return _entries(_yaml(text, origin), origin, folder)


def _entries(top: object, origin: str, folder: str | None) -> _Entries:
    from jumper.config.shape import read_entry, shown  # as above

    if not isinstance(top, Mapping) or "collectors" not in top:
        raise CollectorConfigError(f"{origin}: expected a mapping with the key `collectors`, found {shown(top)}")
    unknown = sorted(str(key) for key in top if key != "collectors")
    if unknown:
        raise CollectorConfigError(f"{origin}: unknown key {unknown[0]!r}; the only one is `collectors`")
    listed = {} if top["collectors"] is None else top["collectors"]
    if not isinstance(listed, Mapping):
        raise CollectorConfigError(f"{origin}: collectors: expected a mapping of name to entry, found {shown(listed)}")
    if listed.get("process", ...) is None:
        raise CollectorConfigError(
            f"{origin}: collectors.process: missing; it finds the processes that the others look at, "
            "so replace its _target_ rather than remove it"
        )
    return {str(n): None if raw is None else read_entry(str(n), raw, origin, folder) for n, raw in listed.items()}


def _yaml(text: str, origin: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, that also refuses a key given twice."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} given twice", key.start_mark)
            seen.add((key.tag, str(key.value)))
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(filter(None, [getattr(error, "context", None), getattr(error, "problem", None)]))
        problem = " ".join((problem or str(error)).split())
        raise CollectorConfigError(f"{origin}: {line}no valid YAML: {problem}") from error
    except RecursionError:
        raise CollectorConfigError(f"{origin}: no valid YAML: nested too deeply") from None
