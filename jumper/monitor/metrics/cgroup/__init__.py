"""The control group of the target: memory, its limit and peak, OOM kills, CPU and throttling."""

from __future__ import annotations

from jumper.monitor.metrics.cgroup.collector import CgroupCollector

__all__ = ["CgroupCollector"]
