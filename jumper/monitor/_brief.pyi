"""Short system calls that keep the GIL; compiled from ext/brief.pyx, as `jumper.monitor.plain` has them in Python."""

from jumper.monitor.plain import End

def pipe() -> tuple[int, int]:
    """Return a new pipe's ends, to read and to write."""

def open_to_read(path: str) -> int | None:
    """Open a file of /proc, or return None where it cannot be."""

def read_io(fd: int) -> dict[str, int]:
    """Return the counters of an open /proc/PID/io; empty where it cannot be read."""

def read_soon(fd: int, size: int) -> bytes | None:
    """Return up to so many bytes (at most 64) from a pipe, as they are there within 1 ms; else None."""

def close(fd: int) -> None:
    """Close a descriptor of a pipe or of a file of /proc."""

def reap(pid: int) -> bool:
    """Collect a child where it has ended; whether it is collected, by us or by another."""

def await_end(pid: int) -> End | None:
    """Wait, without the GIL, until a child has ended; it stays a zombie. None where somebody else has reaped it."""
