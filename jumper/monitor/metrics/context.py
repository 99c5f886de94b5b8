"""What the collectors of one tick share: filled by their snapshots, read by their collects."""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = ["CollectionContext", "new_context"]


class CollectionContext(TypedDict):
    """The state of one tick; every tick has a new one.

    Attributes
    ----------
    process_pids, user_pids, slurm_pids : set of int
        Processes of each level, as the built-in ``process`` collector found them.
    cpu : dict of int to float
        Process id -> CPU seconds so far.
    rss : dict of int to int
        Process id -> resident memory, bytes.
    io : dict of int to object
        Process id -> its I/O counters.
    mono_ns, wall_ns : int
        ``CLOCK_MONOTONIC`` and UTC at the start of the tick, ns.
    counters : dict of str to dict
        Level -> cumulative counters and gauges under the names of
        :mod:`jumper.schema.columns`; None where one cannot be read. ``process``
        fills ``process``, ``user`` and ``slurm``; ``node`` fills ``system``, with
        a counter for each core (``cpu_<i>_ns``).
    """

    process_pids: set[int]
    user_pids: set[int]
    slurm_pids: set[int]
    cpu: dict[int, float]
    rss: dict[int, int]
    io: dict[int, Any]
    mono_ns: int
    wall_ns: int
    counters: dict[str, dict[str, int | None]]


def new_context(mono_ns: int, wall_ns: int) -> CollectionContext:
    """Return the empty context of a tick that starts at these times (ns).

    Examples
    --------
    >>> new_context(5, 7)["mono_ns"]
    5
    """
    return {
        "process_pids": set(),
        "user_pids": set(),
        "slurm_pids": set(),
        "cpu": {},
        "rss": {},
        "io": {},
        "mono_ns": mono_ns,
        "wall_ns": wall_ns,
        "counters": {},
    }
