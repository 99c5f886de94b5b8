"""Configuration: which collectors a monitor runs, from where, and whether what a file says makes sense."""

from __future__ import annotations

from jumper.config.entries import CollectorConfig, CollectorEntry

__all__ = ["CollectorConfig", "CollectorEntry"]
