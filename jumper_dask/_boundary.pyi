"""The counters at a task's boundary; compiled from ext/boundary.pyx, as `jumper_dask.counters` has them in Python."""

from typing import Any

from jumper_dask.counters import Io, Look, Moment

def start(descriptor: int) -> Moment:
    """Return the calling thread's I/O, then the time, then its CPU."""

def stop(descriptor: int, clear: int, statm: int) -> tuple[int, int, Io, Look, tuple[int, int]]:
    """Return the time and the calling thread's CPU, then its I/O, memory, and what `children` returns."""

def look(clear: int, statm: int) -> tuple[Look, tuple[int, int], int, int]:
    """Return memory, and what `children` returns; then how many chars the calling thread read and wrote for it."""

def peak(clear: int) -> Look:
    """Return the high-water mark since the last call and the resident memory now; None where it cannot be reset."""

def children() -> tuple[int, int]:
    """Return the user and system CPU of the reaped children in ns."""

def clocks(tids: list[int]) -> tuple[list[int], int]:
    """Return the CPU of threads of this process, negative where one is gone, then that of the process, in ns."""

def note(place: Any, at: int, size: int, *words: str) -> bool:
    """Write the time and words into a place, each ended by a zero byte; return whether there was room for all."""
