"""The built-in `process` collector: counters of the target's tree, of the user and of the Slurm job."""

from __future__ import annotations

from jumper.monitor.metrics.process.collector import ProcessCollector

__all__ = ["ProcessCollector"]
