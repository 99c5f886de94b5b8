"""A collector of one's own: how many files the measured processes hold open."""

from __future__ import annotations

import os

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext


class OpenFilesCollector(CollectorBackend):
    name = "open-files"

    def collect(self, level: str, context: CollectionContext) -> int | None:
        if level != "process":
            return None  # nothing at this level: no column there
        counts = []
        for pid in context["process_pids"]:
            try:
                counts.append(len(os.listdir(f"/proc/{pid}/fd")))
            except OSError:
                continue  # it ended since the tick began
        return sum(counts) if counts else None
