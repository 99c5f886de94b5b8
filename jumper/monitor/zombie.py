"""What a child cost, learned while it is a zombie: waited for, but left for its own waiter to reap."""

from __future__ import annotations

from typing import NamedTuple

from jumper.monitor import brief


class Ended(NamedTuple):
    """The end of a child that its waiter has not collected yet.

    Attributes
    ----------
    status : int
        Exit status, or the negative signal that ended it.
    cpu_user_ns, cpu_system_ns : int or None
        Of it and of all that it waited for; None where the kernel was not asked (no Linux).
    maxrss_bytes : int or None
        Largest single process among these; not below what the process that forked it had at most.
    mono_ns : int
    """

    status: int
    cpu_user_ns: int | None
    cpu_system_ns: int | None
    maxrss_bytes: int | None
    mono_ns: int


def await_end(pid: int) -> Ended | None:
    """Wait until a child has ended; it stays a zombie. None where somebody else has reaped it.

    Parameters
    ----------
    pid : int
        A child of this process.

    Examples
    --------
    >>> import subprocess
    >>> child = subprocess.Popen(["sh", "-c", "exit 3"])
    >>> await_end(child.pid).status, child.wait()
    (3, 3)
    """
    found = brief.await_end(pid)
    return None if found is None else Ended._make(found)
