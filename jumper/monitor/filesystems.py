"""Which file system a path lies on: shared ones get fewer, larger writes."""

from __future__ import annotations

import os
import re

#: types in /proc/self/mounts; FUSE ones without their prefix
SHARED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "afs", "panfs", "orangefs", "9p"}
    | {"sshfs"}
)

#: how space, tab, line feed and backslash are written there
_OCTAL = re.compile(r"\\(\d{3})")


def filesystem_of(path: str | os.PathLike[str], mounts: str = "/proc/self/mounts") -> str | None:
    """Return the type of the file system that a path lies on, or None where it cannot be told.

    Source: proc_pid_mounts(5).

    Examples
    --------
    >>> filesystem_of("/proc")
    'proc'
    """
    try:
        with open(mounts, "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", None
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), words[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, words[2]
    return kind


def is_shared(path: str | os.PathLike[str]) -> bool:
    """Return whether a path lies on a file system that several hosts share."""
    return (filesystem_of(path) or "").removeprefix("fuse.") in SHARED
