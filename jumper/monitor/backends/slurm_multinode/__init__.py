"""The monitor of all nodes of a Slurm job."""

from __future__ import annotations

from jumper.monitor.backends.slurm_multinode.monitor import SlurmMultinodeMonitor
from jumper.monitor.slurm import get_slurm_nodes

__all__ = ["SlurmMultinodeMonitor", "get_slurm_nodes"]
