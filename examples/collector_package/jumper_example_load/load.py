"""The load average of the machine over the last minute."""

from __future__ import annotations

import os

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext


class LoadCollector(CollectorBackend):
    name = "load"

    def collect(self, level: str, context: CollectionContext) -> float | None:
        return os.getloadavg()[0] if level == "system" else None
