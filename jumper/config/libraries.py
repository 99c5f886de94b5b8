"""Collectors in C: what a library says of itself, asked in a child process before it may run in anybody's own."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NamedTuple

from jumper.config.entries import CollectorEntry
from jumper.schema.errors import CollectorConfigError

__all__ = ["LEVELS", "Library", "describe", "get_include", "needs_native"]

#: Level -> its bit in jumper_collector.h.
LEVELS = {"process": 1, "user": 2, "slurm": 4, "system": 8}
PATIENCE_S = 10.0
_PROBE = os.path.join(os.path.dirname(__file__), "_probe.py")


class Library(NamedTuple):
    """What a collector's library said of itself.

    Attributes
    ----------
    name : str
    levels : int
        A mask of :data:`LEVELS`.
    columns : tuple of (name, unit, kind)
        ``kind`` is ``gauge`` or ``counter``.
    """

    name: str
    levels: int
    columns: tuple[tuple[str, str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(name for name, _, _ in self.columns)


def get_include() -> str:
    """Return the folder that holds ``jumper_collector.h``, for a compiler's ``-I``.

    Examples
    --------
    >>> sorted(os.listdir(get_include()))
    ['jumper_collector.h']
    """
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "include")


def needs_native(entry: CollectorEntry) -> str:
    """Return the line that says why a collector in C does not run."""
    return (
        f"collector {entry.name} ({entry.origin}) is off: {os.path.basename(entry.library or '')} is a library, "
        "which only the native engine can ask; `jumper doctor` says whether that is built"
    )


def describe(entry: CollectorEntry) -> Library:
    """Return what the library of an entry says of itself, after trying it in a child process.

    There it is loaded, set up, asked once for each of its levels and torn down; in
    this process nothing of it is loaded. It is tried again only when the file changed.

    Raises
    ------
    CollectorConfigError
        Where it is missing, is no collector of this interface, fails or crashes; the message
        names the file and the key.
    """
    path = entry.library or ""
    try:
        info = os.stat(path)
    except OSError as error:
        raise entry.error("library", f"{path}: {error.strerror}") from None
    key = (path, entry.config, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    if key not in _known:
        _known[key] = _try(path, entry.config)
    found = _known[key]
    if isinstance(found, str):
        raise CollectorConfigError(str(entry.error("library", f"{path}: {found}")))
    return found


_known: dict[tuple[object, ...], Library | str] = {}


def _try(path: str, config: str) -> Library | str:
    """Return the description, or the reason why there is none."""
    import subprocess  # an agent without such a collector has no use for it

    command = [sys.executable, "-I", "-S", _PROBE, path, config]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
        output, end = done.stdout, _ending(done.returncode)
    except subprocess.TimeoutExpired as error:
        output, end = error.stdout or b"", f"gives no answer within {PATIENCE_S:g} s"
    except OSError as error:
        return f"it cannot be tried: {sys.executable}: {error.strerror}"
    answers: list[dict[str, Any]] = [
        json.loads(line) for line in output.decode("utf-8", "replace").splitlines() if line.endswith("}")
    ]
    last: dict[str, Any] = answers[-1] if answers else {"step": "start"}
    if "refused" in last:
        return str(last["refused"])
    if "step" in last:
        return f"{last['step']}: it {end}"
    return Library(last["name"], last["levels"], tuple((n, u, k) for n, u, k in last["columns"]))


def _ending(status: int) -> str:
    if status < 0:
        try:
            return f"crashes ({signal.Signals(-status).name})"
        except ValueError:
            return f"crashes (signal {-status})"
    return f"ends the process (status {status})"
