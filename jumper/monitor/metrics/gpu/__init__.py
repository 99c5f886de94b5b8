"""GPUs: utilisation, memory and its bandwidth, power, energy, temperature; of devices and of processes."""

from __future__ import annotations

from jumper.monitor.metrics.gpu.collector import GpuCollector
from jumper.monitor.metrics.gpu.counters import GpuUtilizationCollector

__all__ = ["GpuCollector", "GpuUtilizationCollector"]
