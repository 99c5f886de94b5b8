"""Where the control group is whose memory limit applies to a process, in version 1, 2, or both mounted."""

from __future__ import annotations

import os
from typing import NamedTuple

#: the first cgroup namespace (PROC_CGROUP_INIT_INO of the kernel's proc_ns.h): there, `/` holds the whole machine
_FIRST_NAMESPACE = "cgroup:[4026531835]"
#: version 1 shows "no limit" as the largest number of pages
_UNLIMITED = 1 << 60


class Group(NamedTuple):
    """A control group.

    Attributes
    ----------
    version : {1, 2}
        Of the hierarchy that counts its memory.
    memory : str
        Its folder there.
    cpu, cpuacct : str or None
        Its folders in the hierarchies that count CPU time.
    limit_bytes : int or None
        The smallest limit on the way to the root.
    """

    version: int
    memory: str
    cpu: str | None
    cpuacct: str | None
    limit_bytes: int | None


def group_of(pid: int | str, root: str = "") -> Group | None:
    """Return the group that bounds the memory of a process, else its own; None where that is the whole machine.

    Each parent's limit applies too, so the group is the one with the smallest; a job's processes may be spread
    over groups below it.

    Parameters
    ----------
    pid : int or str
    root : str
        Where /proc and /sys are; default: here.

    Source: cgroups(7), cgroup-v2.rst, cgroup-v1/memory.rst.
    """
    paths: dict[str, str] = {}
    for line in read(f"{root}/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    top = f"{root}/sys/fs/cgroup"
    if "memory" in paths:
        way = _way(f"{top}/memory", paths["memory"], "memory.usage_in_bytes")
        if paths["memory"] == "/" and _is_machine(root):
            return None
        own, limit = _bounding(way, "memory.limit_in_bytes")
        others = {name: _way(f"{top}/{name}", paths[name], None)[0] for name in ("cpu", "cpuacct") if name in paths}
        return Group(1, own, others.get("cpu"), others.get("cpuacct"), limit) if own else None
    for mount in (top, f"{top}/unified"):
        own, limit = _bounding(_way(mount, paths.get("", "/"), "memory.current"), "memory.max")
        if own:
            return Group(2, own, own, own, limit)
    return None


def _way(mount: str, path: str, holds: str | None) -> list[str]:
    """Return the folders from a group to the root, as far as they are here and hold a file.

    A container shows the path of the host, where only the mount itself is its own.
    """
    parts = path.rstrip("/").split("/")
    folders = [f"{mount}{'/'.join(parts[:depth])}" for depth in range(len(parts), 0, -1)]
    if holds is None:
        return [folder for folder in folders if os.path.isdir(folder)] or [mount]
    return [folder for folder in folders if os.path.exists(f"{folder}/{holds}")]


def _bounding(way: list[str], name: str) -> tuple[str, int | None]:
    """Return the folder with the smallest limit and that limit; the first and None where none is set."""
    limits = [
        (limit, depth) for depth, folder in enumerate(way) if (limit := whole(read(f"{folder}/{name}"))) is not None
    ]
    limit, depth = min((one for one in limits if one[0] < _UNLIMITED), default=(None, 0))
    return (way[depth] if way else ""), limit


def _is_machine(root: str) -> bool:
    try:
        return os.readlink(f"{root}/proc/self/ns/cgroup") == _FIRST_NAMESPACE
    except OSError:
        return False


def read(path: str) -> str:
    """Return a file's text; empty where it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def whole(text: str) -> int | None:
    """Return a number; None where there is none, or `max`."""
    text = text.strip()
    return int(text) if text.isdigit() else None
