"""What an attempt has beyond the tree of its own processes: on other nodes, or started by the batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jumper_snakemake.site import Site


class Cost(NamedTuple):
    """What some processes on one node have cost: ns of CPU, and the highest sums of RSS and of memory, in bytes."""

    cpu_ns: int
    rss: int | None
    memory: int | None


class Beyond:
    """Those processes of one attempt.

    Parameters
    ----------
    site : Site

    Attributes
    ----------
    nodes : list of str
        The nodes that the job was given, where that is known.
    here, others : list of Cost
        What has ended so far, on this node and on the others.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._parts: dict[str, int] = {}
        self.nodes: list[str] = []
        self.here: list[Cost] = []
        self.others: list[Cost] = []

    def follow(self, key: str, attempt_id: str, tag: str) -> None:
        """Follow the processes with a tag from now on."""
        nodes = self._site.nodes()
        if nodes is not None and tag not in self._parts:
            self._parts[tag] = nodes.begin(key, attempt_id, tag)

    def end(self) -> None:
        """Follow them no more."""
        nodes, parts, self._parts = self._site.nodes() if self._parts else None, self._parts, {}
        if nodes is not None:
            for number in parts.values():
                here, others = nodes.end(number)
                self.here += here
                self.others += others
            self.nodes = nodes.names

    @property
    def cpu_ns(self) -> int:
        """CPU time on all nodes."""
        return sum(cost.cpu_ns for cost in (*self.here, *self.others))

    def highest(self, own: int | None, name: str) -> int | None:
        """Return the highest of all nodes, bytes, where the own tree on this one had so much.

        Examples
        --------
        >>> beyond = Beyond(None)
        >>> beyond.here, beyond.others = [Cost(0, 5, 4)], [Cost(0, 7, 7), Cost(0, None, None)]
        >>> beyond.highest(3, "rss"), beyond.highest(1, "memory"), beyond.highest(None, "rss")
        (8, 7, 7)
        """
        here = [value for cost in self.here if (value := getattr(cost, name)) is not None]
        others = [value for cost in self.others if (value := getattr(cost, name)) is not None]
        return max([*others, *([(own or 0) + max(here, default=0)] if here or own is not None else [])], default=None)
