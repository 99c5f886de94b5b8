"""Configuration: which collectors a monitor runs, from where, and whether what a file says makes sense."""

from __future__ import annotations

from jumper.config.entries import CollectorConfig, CollectorEntry
from jumper.config.libraries import get_include

__all__ = ["CollectorConfig", "CollectorEntry", "get_include"]
