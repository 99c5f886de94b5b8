"""The native engine: compiled from `ext/`, optional; `jumper doctor` says whether it is there."""

from __future__ import annotations

import contextlib
import os

#: Of the compiled module that this code was written for; one of another build is left alone.
INTERFACE = 4

with contextlib.suppress(ImportError):  # built without a compiler
    from jumper.monitor.backends.native import _engine

    if getattr(_engine, "INTERFACE", None) == INTERFACE and os.path.exists("/proc/self/stat"):
        from jumper.monitor.backends.native._engine import Engine

        __all__ = ["Engine"]
