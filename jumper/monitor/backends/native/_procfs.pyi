"""What the optional extension module `ext/procfs.pyx` offers."""

from __future__ import annotations

def parse_stat(data: bytes) -> tuple[int, bytes, str, int, int, int, int, int, int, int, int, int, int]:
    """Return the fields of ``/proc/PID/stat`` that sampling needs.

    Parameters
    ----------
    data : bytes
        The whole file. ``comm`` may hold any byte, spaces, parentheses and newlines too.

    Returns
    -------
    tuple
        ``(pid, comm, state, ppid, utime, stime, cutime, cstime, num_threads, starttime,
        minflt, cminflt, start_stack)``; times in clock ticks, ``starttime`` since boot.

    Raises
    ------
    ValueError
        Where a field is missing, cut off or no number.

    Notes
    -----
    Source: proc_pid_stat(5).
    """
