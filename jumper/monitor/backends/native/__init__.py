"""The native engine: compiled from `ext/`, optional; `jumper doctor` says whether it is there."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):  # built without a compiler
    from jumper.monitor.backends.native._engine import Engine

    __all__ = ["Engine"]
