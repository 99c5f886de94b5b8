"""The `network_namespaces` collector: traffic of the namespaces in which processes of the target are."""

from __future__ import annotations

import os

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.node.collector import parse_network

Counters = dict[str, int | None]

#: how often it is looked whether a known process has changed its namespace
_AGAIN_NS = 10_000_000_000
_NAMES = ("sent_bytes", "recv_bytes", "sent_packets", "recv_packets")


class NamespaceTrafficCollector(CollectorBackend):
    """Bytes and packets since each namespace was first seen, of those that are not the monitor's own.

    Where all processes are in the monitor's own namespace, its traffic is the node's, and this has no columns. A
    namespace is shared by all processes in it, and traffic before the first look is not counted: a lower bound.
    Source: network_namespaces(7), proc_net(5).
    """

    name = "network-namespaces"

    def __init__(self) -> None:
        self._own = _namespace("self")
        self._of: dict[int, str | None] = {}
        self._checked_ns = 0
        self._last: dict[str, Counters] = {}
        self._totals: dict[str, int] = {}

    def collect(self, level: str, context: CollectionContext) -> Counters | None:
        """Return the traffic of the level ``process``; None where no process is in another namespace."""
        if level != "process":
            return None
        pids = context["process_pids"]
        if context["mono_ns"] - self._checked_ns >= _AGAIN_NS:
            self._checked_ns = context["mono_ns"]
            self._of.clear()
        self._of = {pid: self._of[pid] if pid in self._of else _namespace(pid) for pid in pids}
        members: dict[str, list[int]] = {}
        for pid, namespace in self._of.items():
            if namespace is not None and namespace != self._own:
                members.setdefault(namespace, []).append(pid)
        self._last = {namespace: last for namespace, last in self._last.items() if namespace in members}
        for namespace, inside in members.items():
            now = next((found for pid in inside if (found := _traffic(pid))), None)
            if now is not None:
                self._add(self._last.get(namespace, now), now)
                self._last[namespace] = now
        return {f"netns_{name}": value for name, value in self._totals.items()} or None

    def _add(self, last: Counters, now: Counters) -> None:
        for name in _NAMES:
            grown = (now[f"net_{name}"] or 0) - (last[f"net_{name}"] or 0)
            self._totals[name] = self._totals.get(name, 0) + max(0, grown)


def _namespace(pid: int | str) -> str | None:
    """Return which network namespace a process is in; None where it is gone, or may not be asked."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _traffic(pid: int) -> Counters | None:
    try:
        with open(f"/proc/{pid}/net/dev", "rb") as file:
            return parse_network(file.read())
    except OSError:
        return None
