"""The counters at a task's boundary; compiled from ext/boundary.pyx, as `jumper_dask.counters` has them in Python."""

from jumper_dask.counters import Io, Moment

def start(descriptor: int) -> Moment:
    """Return the calling thread's I/O, then the time, then its CPU."""

def stop(descriptor: int, clear: int) -> tuple[int, int, Io, tuple[int, int] | None, tuple[int, int]]:
    """Return the time and the calling thread's CPU, then its I/O, what `peak` and `children` return."""

def peak(clear: int) -> tuple[int, int] | None:
    """Return the high-water mark since the last call and the resident memory now; None where it cannot be reset."""

def children() -> tuple[int, int]:
    """Return the user and system CPU of the reaped children in ns."""
