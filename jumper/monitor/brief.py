"""Short system calls that keep the GIL, where they are compiled; :mod:`jumper.monitor.plain` says what they do.

Beside a busy thread, each call that lets go of the GIL gets it back 5 ms later. That wait and the switches of
threads around it cost more CPU than the calls. None of these blocks for longer than 1 ms, but `await_end`, which
lets go of it.
"""

from __future__ import annotations

try:
    from jumper.monitor._brief import await_end, close, open_to_read, pipe, read_io, read_soon, reap
except ImportError:  # not built
    from jumper.monitor.plain import await_end, close, open_to_read, pipe, read_io, read_soon, reap

__all__ = ["await_end", "close", "open_to_read", "pipe", "read_io", "read_soon", "reap"]
