"""Slurm's short way to write many names of nodes, and the names that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product

from jumper.schema.errors import JumperError

__all__ = ["expand_nodelist"]

#: so many names Slurm takes in one range (MAX_RANGE of its sources); a list that claims more is no list
MOST_NAMES = 1 << 16
_PART = re.compile(r"\[([^][]*)\]|([^][]+)")
_ITEM = re.compile(r"(?:[^][,]|\[[^][]*\])+")
_RANGE = re.compile(r"\s*(\d+)(?:-(\d+))?\s*")


def expand_nodelist(text: str) -> list[str]:
    """Return the names of a node list, in its order.

    Several brackets multiply, the last one counting fastest; a number written with zeros in
    front keeps its width; text may follow a bracket. Source: scontrol(1), "show hostnames".

    Raises
    ------
    JumperError
        Where it is no node list.

    Examples
    --------
    >>> expand_nodelist("rack[1-2]node[08-10],login,gpu[1,3]-ib")[:4]
    ['rack1node08', 'rack1node09', 'rack1node10', 'rack2node08']
    >>> expand_nodelist("node[1-2]-ib,login")
    ['node1-ib', 'node2-ib', 'login']
    """
    items = list(_items(text))
    if _size(items) > MOST_NAMES:
        raise JumperError(f"a node list of more than {MOST_NAMES} names: {text[:80]!r}; is it one?")
    return ["".join(parts) for item in items for parts in product(*map(_names, item))]


def _items(text: str) -> Iterator[list[list[tuple[str, int, int]]]]:
    """Yield each item as its parts: lists of ranges (first as written, low, high); plain text is a range of one."""
    at = 0
    while at < len(text):
        if text[at] in ", \t\n":
            at += 1
            continue
        match = _ITEM.match(text, at)
        if match is None:
            raise _unreadable(text, at)
        at = match.end()
        yield [
            [(fixed, 0, 0)] if fixed else [_range(one, text, match.start()) for one in ranges.split(",")]
            for ranges, fixed in _PART.findall(match[0].strip())
        ]


def _range(one: str, text: str, at: int) -> tuple[str, int, int]:
    match = _RANGE.fullmatch(one)
    if match is None or len(one) > 40 or int(match[2] or match[1]) < int(match[1]):
        raise _unreadable(text, at)
    return match[1], int(match[1]), int(match[2] or match[1])


def _names(part: list[tuple[str, int, int]]) -> list[str]:
    return list(chain.from_iterable(
        [first] if low == high else [str(number).zfill(len(first)) for number in range(low, high + 1)]
        for first, low, high in part
    ))  # fmt: skip


def _size(items: list[list[list[tuple[str, int, int]]]]) -> int:
    total = 0
    for item in items:
        size = 1
        for part in item:
            size = min(MOST_NAMES + 1, size * sum(high - low + 1 for _, low, high in part))
        total += size
    return total


def _unreadable(text: str, at: int) -> JumperError:
    return JumperError(f"not a node list at {text[at : at + 30]!r}; expected names such as node[01-16],login: {text!r}")
