"""Dask's configuration under `jumper:`: its defaults (`jumper.yaml`), and each value as what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import yaml
from dask.utils import parse_bytes, parse_timedelta

from jumper.schema.errors import SettingError
from jumper.utilities import parse_interval

__all__ = ["collectors", "dashboard", "directory", "interval", "reset_peak", "run_bytes", "spool_bytes"]

DEFAULTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "jumper.yaml").read_text(encoding="utf-8"))
dask.config.update_defaults(DEFAULTS)


def _of(key: str, kind: type | tuple[type, ...], expected: str) -> Any:
    value = dask.config.get(f"jumper.{key}")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(key, value, expected)
    return value


def _wrong(key: str, value: Any, expected: str) -> SettingError:
    variable = f"DASK_JUMPER__{key.upper().replace('-', '_')}"
    return SettingError(
        f"Dask's setting jumper.{key} must be {expected}, not {value!r}; it comes from a file in "
        f"{dask.config.PATH}, from {variable}, or from dask.config.set"
    )


def interval() -> float:
    """Return the time between samples in seconds.

    Raises
    ------
    SettingError
        As all functions here, where the value is none.

    Examples
    --------
    >>> with dask.config.set({"jumper.interval": "250ms"}):
    ...     interval()
    0.25
    """
    expected = "a time of at least 1 ms, like 500ms"
    value = _of("interval", (str, int, float), expected)
    try:
        return parse_interval(parse_timedelta(value))
    except (ValueError, KeyError) as error:
        raise _wrong("interval", value, expected) from error


def collectors() -> str | None:
    """Return the path of the user's collectors.yaml, or None."""
    value: str | None = _of("collectors", (str, type(None)), "the path of a collectors.yaml, or null")
    return value


def reset_peak() -> bool:
    """Return whether the memory's high-water mark is reset at task boundaries."""
    return bool(_of("reset-peak", bool, "true or false"))


def dashboard() -> bool:
    """Return whether the scheduler's dashboard has a page of ours."""
    return bool(_of("dashboard", bool, "true or false"))


def directory() -> Path | None:
    """Return the folder below which the scheduler keeps runs, or None where nobody chose one."""
    value = _of("directory", (str, type(None)), "a path, or null") or dask.config.get("temporary-directory", None)
    return Path(value).expanduser() if value else None


def spool_bytes() -> int:
    """Return what a worker keeps on its disk at most, in bytes."""
    return _bytes("spool-size")


def run_bytes() -> int:
    """Return what the scheduler takes of one run at most, in bytes.

    Examples
    --------
    >>> run_bytes() == 8 << 30
    True
    """
    return _bytes("run-size")


def _bytes(key: str) -> int:
    expected = "a positive size, like 256MiB"
    value = _of(key, (str, int), expected)
    try:
        size = int(parse_bytes(value))
    except ValueError as error:
        raise _wrong(key, value, expected) from error
    if size <= 0:
        raise _wrong(key, value, expected)
    return size
