"""The built-in `node` collector: counters of the whole machine."""

from __future__ import annotations

from jumper.monitor.metrics.node.collector import NodeCollector

__all__ = ["NodeCollector"]
