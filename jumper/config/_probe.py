"""Try a collector's library in a process of its own: what it has to crash over, it crashes over here.

Started as ``python -I -S _probe.py LIBRARY CONFIG``; says each step that it begins and
then what it found, in lines of JSON. Standard library only, and nothing of ours.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

ABI = 1
MOST_COLUMNS = 256
REASON_SIZE = 256
_GUARD = 1234.5


class _Column(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("kind", ctypes.c_uint))


_SETUP = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t
)
_COLLECT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_int), ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_double),
)  # fmt: skip
_TEARDOWN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Collector(ctypes.Structure):
    """The structure of the same name in jumper_collector.h."""

    _fields_ = (
        ("abi", ctypes.c_uint),
        ("levels", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("columns", ctypes.POINTER(_Column)),
        ("column_count", ctypes.c_size_t),
        ("setup", _SETUP),
        ("collect", _COLLECT),
        ("teardown", _TEARDOWN),
    )


class _Refused(Exception):
    pass


def _load(path: str) -> Any:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise _Refused(str(error)) from None
    try:
        find = library.jumper_collector
    except AttributeError:
        raise _Refused("it does not export the function jumper_collector; see jumper_collector.h") from None
    find.restype = ctypes.POINTER(_Collector)
    found = find()
    if not found:
        raise _Refused("jumper_collector() returned NULL")
    if found.contents.abi != ABI:  # nothing behind that field is known to be what we take it for
        raise _Refused(f"it is built for version {found.contents.abi} of jumper_collector.h; this jumper has {ABI}")
    return found.contents


def _described(collector: Any) -> dict[str, Any]:
    name = (collector.name or b"").decode("utf-8", "replace")
    if not name or not collector.collect:
        raise _Refused("it has no name" if not name else "it has no function collect")
    if not 0 < collector.levels < 16:
        raise _Refused(f"expected a sum of jumper_level as levels, found {collector.levels}")
    if not 0 < collector.column_count <= MOST_COLUMNS or not collector.columns:
        raise _Refused(f"expected 1 to {MOST_COLUMNS} columns, found {collector.column_count}")
    columns = []
    for index in range(collector.column_count):
        column = collector.columns[index]
        names = [(text or b"").decode("utf-8", "replace") for text in (column.name, column.unit)]
        if not (names[0].isascii() and names[0].isidentifier()):
            raise _Refused(f"expected letters, digits and _ as name of column {index}, found {names[0]!r}")
        if column.kind not in (0, 1):
            raise _Refused(f"expected a jumper_kind for the column {names[0]}, found {column.kind}")
        columns.append([*names, ("gauge", "counter")[column.kind]])
    return {"name": name, "levels": collector.levels, "columns": columns}


def _try_level(collector: Any, level: int, config: bytes, say: Callable[[dict[str, Any]], None]) -> None:
    """Set up, collect once of this process, and tear down."""
    state = ctypes.c_void_p()
    reason = ctypes.create_string_buffer(REASON_SIZE)
    say({"step": "setup"})
    error = collector.setup(config, level, ctypes.byref(state), reason, REASON_SIZE) if collector.setup else 0
    if error:
        text = reason.raw.split(b"\0")[0].decode("utf-8", "replace")
        raise _Refused(f"setup: {text or os.strerror(error)}")
    say({"step": "collect"})
    count = collector.column_count
    values = (ctypes.c_double * (count + 8))(*[math.nan] * count, *[_GUARD] * 8)
    pids = (ctypes.c_int * 1)(os.getpid())
    error = collector.collect(state, level, pids, 0 if level == 8 else 1, values)
    if error:
        raise _Refused(f"collect: {os.strerror(error)}")
    if any(value != _GUARD for value in values[count:]):
        raise _Refused(f"collect: it writes more than its {count} values")
    say({"step": "teardown"})
    if collector.teardown:
        collector.teardown(state)


def main() -> None:
    """Try the library and say what came of it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        say({"step": "load"})
        collector = _load(sys.argv[1])
        description = _described(collector)
        for level in (1, 2, 4, 8):
            if collector.levels & level:
                _try_level(collector, level, os.fsencode(sys.argv[2]), say)
        say(description)
    except _Refused as error:
        say({"refused": str(error)})
    os._exit(0)  # destructors of the library are not our affair


if __name__ == "__main__":
    main()
