"""Lanes: attempts packed side by side so that no two on one lane overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jumper.analysis.tables import Ints


def pack(start: Ints, stop: Ints) -> Ints:
    """Return a lane (0, 1, ...) for each interval: the lowest free one, in order of start.

    Parameters
    ----------
    start, stop : arrays of int64, shape (n,)
        An interval that stops when another starts leaves its lane to it.

    Examples
    --------
    >>> pack(np.array([0, 1, 5]), np.array([5, 9, 6])).tolist()
    [0, 1, 0]
    """
    lanes = np.zeros(len(start), dtype="int64")
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    opened = 0
    for index in np.lexsort((stop, start)):
        while busy and busy[0][0] <= start[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, opened = opened, opened + 1
        lanes[index] = lane
        heapq.heappush(busy, (max(int(stop[index]), int(start[index]) + 1), lane))
    return lanes


def pack_nodes(
    node: Sequence[str], worker: Sequence[str], start: Ints, stop: Ints
) -> tuple[Ints, dict[str, tuple[int, int]]]:
    """Return a row for each attempt, and the rows (first, end) of each node.

    Nodes come in the order of their names, the workers of a node one after the other,
    a free row between two nodes.

    Examples
    --------
    >>> rows, nodes = pack_nodes(["b", "a", "a"], ["", "", ""], np.array([0, 0, 1]), np.array([2, 2, 2]))
    >>> rows.tolist(), nodes
    ([3, 0, 1], {'a': (0, 2), 'b': (3, 4)})
    """
    rows = np.zeros(len(start), dtype="int64")
    members: dict[str, dict[str, list[int]]] = {}
    for index, (where, who) in enumerate(zip(node, worker, strict=True)):
        members.setdefault(where, {}).setdefault(who, []).append(index)
    nodes: dict[str, tuple[int, int]] = {}
    top = 0
    for where in sorted(members):
        first = top
        for who in sorted(members[where]):
            index_of = np.array(members[where][who])
            lanes = pack(start[index_of], stop[index_of])
            rows[index_of] = top + lanes
            top += int(lanes.max()) + 1
        nodes[where] = (first, top)
        top += 1
    return rows, nodes
