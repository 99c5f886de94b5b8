"""An attempt on several nodes: what it cost on each, and what that makes for the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]

#: what an attempt cost is the sum of what its parts cost
_SUMS = (
    "cpu_s", "cpu_user_s", "cpu_system_s", "read_bytes", "write_bytes", "read_chars", "write_chars", "gpu_seconds",
    "energy_j", "processes",
)  # fmt: skip
#: asked for, limited and run short of on each node: of nodes, the highest; of parts on one node, the sum
_MEMORY = (
    "memory_peak_bytes", "rss_peak_bytes", "rss_peak_upper_bytes", "pss_peak_bytes", "swap_peak_bytes",
    "gpu_memory_peak_bytes",
)  # fmt: skip


def by_node(rows: Sequence[Row], apart: Sequence[Row], expected: Sequence[Sequence[str]]) -> Mapping[int, list[Row]]:
    """Give each attempt what was followed apart from its own tree of processes.

    Parameters
    ----------
    rows : sequence of dict
        The attempts; those with parts get the cost of all of them.
    apart : sequence of dict
        Rows of the same columns: on other nodes, or beside the own tree.
    expected : sequence of sequence of str
        For each attempt, the nodes that it was given, where that is known.

    Returns
    -------
    dict
        ``id(row)`` -> the rows of its nodes, the attempt's own node first.

    Examples
    --------
    >>> job = {"key": "k", "attempt_id": "1", "node": "a", "start_ns": 0, "stop_ns": 9, "flags": [], "cpu_s": 0.5,
    ...        "memory_peak_bytes": 5}
    >>> rank = {**job, "node": "b", "cpu_s": 2.0, "memory_peak_bytes": 9}
    >>> nodes = by_node([job], [rank], [["a", "b", "c"]])
    >>> job["cpu_s"], job["memory_peak_bytes"], job["flags"], len(nodes[id(job)])
    (2.5, 9, ['nodes 2/3'], 2)
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for part in apart:
        if part.get("cpu_s") is not None:
            found.setdefault((part["key"], part["attempt_id"]), []).append(part)
    nodes: dict[int, list[Row]] = {}
    for row, names in zip(rows, expected, strict=True):
        mine = found.get((row["key"], row["attempt_id"]), [])
        nodes[id(row)] = [row]
        if mine:
            groups: dict[Any, list[Row]] = {row["node"]: [dict(row)]}
            for part in mine:
                groups.setdefault(part["node"], []).append(part)
            nodes[id(row)] = [_joined(parts, _at_once) for parts in groups.values()]
            row.update(_joined(nodes[id(row)], _highest))
        if len(names) > len(nodes[id(row)]):
            row["flags"] = [*row["flags"], f"nodes {len(nodes[id(row)])}/{len(names)}"]
    return nodes


def _joined(parts: Sequence[Row], memory: Callable[[Sequence[Row], str], int | None]) -> Row:
    """Return parts as one row, all else as the first has it."""
    largest = max(parts, key=lambda part: part.get("memory_peak_bytes") or 0)
    return {
        **parts[0],
        **{name: _sum(parts, name) for name in _SUMS},
        **{name: memory(parts, name) for name in _MEMORY},
        "memory_peak_source": largest.get("memory_peak_source"),
        "flags": sorted({flag for part in parts for flag in part["flags"]}),
    }


def _sum(parts: Sequence[Row], name: str) -> Any:
    values = [part.get(name) for part in parts]
    return None if None in values else sum(values)


def _highest(parts: Sequence[Row], name: str) -> int | None:
    return max((part[name] for part in parts if part.get(name) is not None), default=None)


def _at_once(parts: Sequence[Row], name: str) -> int | None:
    """Return the highest sum over the parts that lived at one time."""
    known = [part for part in parts if part.get(name) is not None]
    sums = (
        sum(each[name] for each in known if each["start_ns"] <= part["start_ns"] <= each["stop_ns"]) for part in known
    )
    return max(sums, default=None)
