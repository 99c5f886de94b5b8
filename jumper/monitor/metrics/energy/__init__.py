"""Energy of the CPU packages and their memory."""

from __future__ import annotations

from jumper.monitor.metrics.energy.rapl import EnergyCollector

__all__ = ["EnergyCollector"]
