"""A finding: what stands out, its evidence, what it costs, what to do, and what to paste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jumper.analysis.units import digits

Severity = Literal["high", "medium", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands out.

    Attributes
    ----------
    severity : {"high", "medium", "info"}
    subject : str
        What it is about: a group, a node, a file; shown in bold.
    text : str
        The evidence, with its numbers; continues the subject.
    action : str
        What to do about it.
    snippet : str
        A change to paste; empty where there is none.
    name : str
        Which finding it is; docs/findings.md explains each.
    core_hours, gb_hours : float or None
        What it cost, in hours of a core and of 10^9 bytes of memory; None where that is not known.
    """

    severity: Severity
    subject: str
    text: str
    action: str = ""
    snippet: str = ""
    name: str = ""
    core_hours: float | None = None
    gb_hours: float | None = None


def many(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> many(1, "attempt"), many(1200, "attempt")
    ('1 attempt', '1,200 attempts')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def hours(value: float, unit: Literal["core", "GB", "GPU"]) -> str:
    """Return a cost for reading.

    Examples
    --------
    >>> hours(12.34, "core"), hours(0.00123, "GB")
    ('12.3 core hours', '4.43 GB seconds')
    """
    return f"{digits(value)} {unit} hours" if value >= 0.1 else f"{digits(3600 * value)} {unit} seconds"


def shown(key: str, most: int = 80) -> str:
    """Return the key of a task as it stands in a sentence: in one line, cut where it is long.

    Examples
    --------
    >>> shown("sort\\n  a.txt"), len(shown("x" * 1000))
    ('sort a.txt', 80)
    """
    line = " ".join(str(key).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def listed(names: list[str], most: int = 3) -> str:
    """Return the first names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b"]), listed(list("abcde"))
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
