"""How workers ended, as a run's events tell: who was there, who left, and what ended whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jumper.analysis.units import human_bytes

#: What is said of an attempt whose worker its nanny ended for its memory.
NANNY = "its nanny ended it when it held"
#: What is said of an attempt without an end where nothing else is known.
NO_END = "no end was recorded: what watched it, its process or its node was ended, or it still runs"
#: What is said of an attempt whose monitor is still there.
RUNS = "it ran when the run was read"


@dataclass(slots=True)
class End:
    """What is known of a worker.

    Attributes
    ----------
    joined, left : bool
        Whether the scheduler saw it come, and go.
    held_bytes : int or None
        RSS at which its nanny ended it.
    oom : bool
        Whether the kernel's OOM killer struck on its node meanwhile.
    name : str
        What its scheduler calls it; empty where that is not known.
    """

    joined: bool = False
    left: bool = False
    held_bytes: int | None = None
    oom: bool = False
    name: str = ""

    @property
    def alive(self) -> bool:
        """Whether it was there when the run was collected."""
        return self.joined and not self.left


def ends_of(records: Iterable[Mapping[str, Any]]) -> dict[str, End]:
    """Return what the events of a run say about each worker, by its address.

    Examples
    --------
    >>> told = [{"type": "event", "kind": kind, "worker": "tcp://w", "mono_ns": at} for at, kind in
    ...         enumerate(["worker-joined", "worker-left"])]
    >>> ends_of(told)["tcp://w"].alive
    False
    """
    ends: dict[str, End] = {}
    events = [r for r in records if r.get("type") == "event" and r.get("worker")]
    for event in sorted(events, key=lambda r: int(r["mono_ns"])):  # those of joining and leaving have one clock
        end = ends.setdefault(str(event["worker"]), End())
        kind = event.get("kind")
        if kind == "worker-joined":
            end.joined, end.left, end.name = True, False, str(event.get("name") or "")
        elif kind == "worker-left":
            end.left = True
        elif kind == "worker-memory":
            end.held_bytes = int(event.get("rss_bytes") or 0) or None
        elif kind == "adopted":
            end.oom = end.oom or bool(event.get("oom_kills"))
    return ends


def explain(row: dict[str, Any], ends: Mapping[str, End]) -> None:
    """Say in a lost attempt's row what ended its worker; and that it runs, where its worker lives."""
    end = ends.get(str(row.get("worker")))
    if row.get("state") != "lost" or end is None:
        return
    if end.alive:
        row["state"], row["reason"] = None, "it ran when the run was collected"
        return
    if end.left and row["reason"] == NO_END:
        named = f"{end.name} ({row['worker']})" if end.name else row["worker"]
        row["reason"] = f"its worker {named} left while it ran"
    why = []
    if end.held_bytes is not None:
        why.append(f"{NANNY} {human_bytes(end.held_bytes)}")
    if end.oom:
        why.append("the kernel's OOM killer struck on its node meanwhile")
        row["flags"].append("oom")
    row["reason"] = "; ".join([str(row["reason"]), *why])
