"""Measure what the tasks of a Dask cluster cost; see docs/dask.md."""

from __future__ import annotations

from jumper_dask.client import Monitor, collect, monitor
from jumper_dask.plugin import CollectorPlugin, JumperPlugin

__all__ = ["CollectorPlugin", "JumperPlugin", "Monitor", "collect", "monitor"]
