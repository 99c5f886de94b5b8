"""What a file server's clock shows: the one clock that all hosts of a shared directory can read.

A directory is made and its time of change read. Where the server sets that time, it lies between the moments before
and after, whatever the host's own wall clock says.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from jumper.monitor.filesystems import filesystem_of

#: Types of file systems whose server sets the times; elsewhere the host does that (Lustre, Ceph), or nobody knows.
STAMPED = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"})
#: So late a file's time may be, as a kernel takes it from its tick (CONFIG_HZ is 100 at least), in ns.
TICK_NS = 10_000_000
#: The shortest of so many exchanges counts.
TRIES = 3
_SECOND = 1_000_000_000


def clock_record(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return a `clock` record (docs/segment.md) by the server of a folder, or None where its times are not a server's.

    Parameters
    ----------
    folder : path
        Which can be written.
    """
    if filesystem_of(folder) not in STAMPED:
        return None
    try:
        return exchange(folder)
    except OSError:
        return None


def exchange(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Ask whoever sets the times in a folder for the time; return a `clock` record.

    A directory, as a client that was lent a file may set that one's times itself (NFS delegations; RFC 8881,
    section 10.4). mkdir(2) sets all three times.

    Raises
    ------
    OSError
        Where nothing can be made there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = exchange(folder)
    >>> here = time.time_ns() - time.monotonic_ns()
    >>> abs(found["offset_ns"] - here) <= found["error_ns"] + 1_000_000
    True
    """
    found: list[tuple[int, int, int]] = []
    for _ in range(TRIES):
        place = os.path.join(folder, f".clock-{os.getpid()}-{os.urandom(4).hex()}")
        before = time.monotonic_ns()
        os.mkdir(place)
        try:
            stamped = os.stat(place).st_mtime_ns
            after = time.monotonic_ns()
        finally:
            with contextlib.suppress(OSError):
                os.rmdir(place)
        found.append((after - before, (before + after) // 2, stamped))
    # whole seconds, each time: it keeps no others
    grain = _SECOND if all(stamped % _SECOND == 0 for *_, stamped in found) else TICK_NS
    took, middle, stamped = min(found)
    return {
        "type": "clock",
        "offset_ns": stamped + grain // 2 - middle,
        "error_ns": (took + grain + 1) // 2,
        "mono_ns": middle,
    }
