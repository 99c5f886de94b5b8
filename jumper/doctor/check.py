"""The answer of one check, and how a check reads a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "limited", "missing", "none"]
#: `limited`: works, with less; `missing`: can be had; `none`: this machine has no such thing.
COLORS: dict[Status, str] = {"ok": "green", "limited": "yellow", "missing": "red", "none": "dim"}


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of one check: what was found, and what would help where it is not ``ok``."""

    area: str
    name: str
    status: Status
    found: str
    next_step: str = ""


def text_of(path: str) -> str:
    """Return a file's text; empty where it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
