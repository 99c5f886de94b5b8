"""Lanes: attempts packed side by side so that no two on one lane overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jumper.analysis.tables import Ints

    Texts = NDArray[np.object_]


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
    lanes = [0] * len(start)
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    opened = 0
    begins, ends = start.tolist(), np.maximum(stop, start + 1).tolist()
    for index in np.lexsort((stop, start)).tolist():
        begin = begins[index]
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, opened = opened, opened + 1
        lanes[index] = lane
        heapq.heappush(busy, (ends[index], lane))
    return np.array(lanes, dtype="int64")


def pack_nodes(
    node: Sequence[str] | Texts, worker: Sequence[str] | Texts, start: Ints, stop: Ints
) -> tuple[Ints, dict[str, tuple[int, int]]]:
    """Return a row for each attempt, shape (attempts,), and the rows (first, end) of each node.

    Nodes come in the order of their names, the workers of a node one after the other,
    a free row between two nodes.

    Examples
    --------
    >>> rows, nodes = pack_nodes(["b", "a", "a"], ["", "", ""], np.array([0, 0, 1]), np.array([2, 2, 2]))
    >>> rows.tolist(), nodes
    ([3, 0, 1], {'a': (0, 2), 'b': (3, 4)})
    """
    rows = np.zeros(len(start), dtype="int64")
    of_node, names = pd.factorize(np.asarray(node, dtype=object), sort=True)
    of_worker, _ = pd.factorize(np.asarray(worker, dtype=object), sort=True)
    order = np.lexsort((of_worker, of_node))
    new_node = np.diff(of_node[order], prepend=-1) != 0
    firsts = np.flatnonzero(new_node | (np.diff(of_worker[order], prepend=-1) != 0))
    nodes: dict[str, tuple[int, int]] = {}
    top, name = 0, ""
    for first, last in zip(firsts, np.append(firsts, len(order))[1:], strict=True):
        mine = order[first:last]
        if new_node[first]:
            name, top = str(names[of_node[mine[0]]]), top + bool(nodes)
            nodes[name] = (top, top)
        lanes = pack(start[mine], stop[mine])
        rows[mine] = top + lanes
        top += int(lanes.max()) + 1
        nodes[name] = (nodes[name][0], top)
    return rows, nodes
