"""Small facts about this process and this node that every room may ask; imports nothing of ours.

The names that the documents use (`get_available_levels`) live here.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

__all__ = ["get_available_levels", "node_name", "parse_interval", "plain_json", "safe_name", "slurm_job_id"]

#: Shortest interval that a monitor accepts, in seconds.
MIN_INTERVAL_S = 0.001


def slurm_job_id() -> str | None:
    """Return the Slurm job that this process belongs to, or None.

    Source: ``SLURM_JOB_ID`` (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES").
    """
    return os.environ.get("SLURM_JOB_ID") or None


def get_available_levels() -> list[str]:
    """Return the levels that can be measured here, at the time of the call.

    Returns
    -------
    list of str
        ``process``, ``user``, ``system``; and ``slurm`` where a Slurm job id is set.

    Examples
    --------
    >>> get_available_levels()[:3]
    ['process', 'user', 'system']
    """
    levels = ["process", "user", "system"]
    if slurm_job_id():
        levels.append("slurm")
    return levels


def node_name() -> str:
    """Return this node's name: ``SLURMD_NODENAME`` where Slurm gives one, else the host name.

    Several slurmd on one machine share a host name; only Slurm's own name differs.
    """
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename or "localhost"


def safe_name(text: str, limit: int = 64) -> str:
    """Return ``text`` as part of a file name: letters, digits, ``.``, ``_`` and ``-`` only.

    Examples
    --------
    >>> safe_name("tcp://10.0.0.1:8786"), safe_name("../x"), safe_name("")
    ('tcp___10.0.0.1_8786', '__x', '_')
    """
    clean = re.sub(r"[^A-Za-z0-9._-]|\.\.+|^\.", "_", text)
    return (clean or "_")[:limit]


def plain_json(data: bytes) -> Any:
    """Return what JSON says, in text that can be written as UTF-8.

    Names that are not UTF-8 come as half of a surrogate pair (os.fsdecode), which no table takes;
    such bytes are shown as ``\\xff``.

    Raises
    ------
    ValueError
        Where it is no JSON.

    Examples
    --------
    >>> plain_json(b'{"key": ["a\\\\udcffb", 1]}')
    {'key': ['a\\\\xffb', 1]}
    """
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _plain(value) if b"\\ud" in data or b"\\uD" in data else value


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:
            return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    return value


def parse_interval(value: float | str) -> float:
    """Return a sampling interval in seconds, checked.

    Raises
    ------
    ValueError
        Where the value is no finite number of at least 1 ms.

    Examples
    --------
    >>> parse_interval("0.5")
    0.5
    """
    try:
        interval = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the interval must be a number of seconds, not {value!r}") from None
    if not MIN_INTERVAL_S <= interval < float("inf"):
        raise ValueError(f"the interval must be at least {MIN_INTERVAL_S:g} s and finite, not {value!r}; try 1.0")
    return interval
