"""Who was expected to be measured, who came, who left, and whose spool is home: the coverage of a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from jumper.utilities import safe_name


@dataclass(slots=True)
class Member:
    """A worker as the scheduler knows it; it stays when the worker has gone."""

    address: str
    name: str
    node: str | None = None
    pid: int | None = None
    left: bool = False
    home: bool = False
    why: str | None = None
    homes: set[str] = field(default_factory=set)


class Roster:
    """All workers of a run."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._by_process: dict[str, list[Member]] = {}
        self._measured: set[str] = set()

    def __getitem__(self, address: str) -> Member:
        return self._members[address]

    def get(self, address: str) -> Member | None:
        """Return what is known of a worker, or None."""
        return self._members.get(address)

    @property
    def measured(self) -> Collection[str]:
        """Addresses of the workers that have a monitor now."""
        return self._measured

    def expect(self, address: str, name: str) -> Member:
        """Note that a worker is there, and should be measured."""
        member = self._members.get(address)
        if member is None or member.left:
            member = self._members[address] = Member(address, name)
        return member

    def came(self, address: str, name: str, node: str, pid: int) -> None:
        """Note that a worker is measured from now on."""
        member = self.expect(address, name)
        member.node, member.pid, member.home, member.why = node, pid, False, None
        self._measured.add(address)
        self._by_process.setdefault(f"{safe_name(node, 80)}.{pid}", []).append(member)

    def unmonitored(self, address: str, why: str) -> None:
        """Note why a worker lives on without a monitor."""
        self._measured.discard(address)
        if (member := self._members.get(address)) is not None:
            member.node, member.why = None, why

    def goodbye(self, address: str, shipped: bool) -> None:
        """Note that a worker is measured no longer, and whether all that it had has come."""
        self._measured.discard(address)
        if (member := self._members.get(address)) is not None:
            member.home = shipped

    def left(self, address: str) -> None:
        """Note that a worker is gone; its spool may come later."""
        self._measured.discard(address)
        if (member := self._members.get(address)) is not None:
            member.left = True

    def home(self, segment: str) -> None:
        """Note that somebody carried a dead worker's segment home, whole."""
        for member in self._by_process.get(segment.rpartition(".")[0], ()):
            member.homes.add(segment)

    def missing(self) -> list[dict[str, Any]]:
        """Return what a run lacks, worker by worker, each with the reason."""
        alive = {self._members[address].node for address in self._measured}
        found = []
        for member in self._members.values():
            if member.node is None:
                reason = member.why or "its plugin did not report"
            elif not member.left or member.home or member.homes:
                continue
            elif member.node in alive:
                reason = f"it ended without a word, and its spool is not on {member.node} any more"
            else:
                reason = f"it ended without a word, and no worker on {member.node} is left to carry its spool home"
            found.append({"worker": member.address, "name": member.name, "reason": reason})
        return found

    def coverage(self) -> dict[str, Any]:
        """Return how many workers were expected and came, and what is missing."""
        came = sum(member.node is not None for member in self._members.values())
        return {"expected": len(self._members), "came": came, "missing": self.missing()}
