"""What bounds memory here: cgroups of both versions, Slurm, rlimit, the machine; and where files lie."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from jumper.monitor import nodefacts
from jumper.monitor.filesystems import filesystem_of
from jumper.monitor.nodefacts import cgroup_memory_limit_bytes, memory_limits_bytes, node_facts, slurm_memory_bytes

GIB = 1 << 30


def tree(root: Path, groups: str, **files: str) -> str:
    """A root with /proc/self/cgroup and files below /sys/fs/cgroup (`__` stands for `/`)."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memoryDOTmax": f"{2 * GIB}\n"}, 2 * GIB),  # in a container with a namespace of its own
        ("0::/\n", {"memoryDOTmax": "max\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a__b__memoryDOTmax": f"{3 * GIB}\n", "a__memoryDOTmax": f"{2 * GIB}\n"}, 2 * GIB),
        ("0::/a/b\n", {"a__b__memoryDOTmax": f"{1 * GIB}\n", "a__memoryDOTmax": f"{2 * GIB}\n"}, 1 * GIB),
        ("0::/a/b\n", {"a__b__memoryDOTmax": "max\n", "a__memoryDOTmax": f"{2 * GIB}\n"}, 2 * GIB),
        ("0::/a:b\n", {"a:b__memoryDOTmax": f"{2 * GIB}\n"}, 2 * GIB),
        ("0::/a\n", {"c__memoryDOTmax": f"{2 * GIB}\n"}, None),
        ("0::/a\n", {"unified__a__memoryDOTmax": f"{2 * GIB}\n"}, 2 * GIB),
        ("4:cpu,memory:/a\n1:name=systemd:/x\n", {"memory__a__memoryDOTlimit_in_bytes": f"{2 * GIB}\n"}, 2 * GIB),
        ("4:memory:/a/b\n", {"memory__a__memoryDOTlimit_in_bytes": f"{2 * GIB}\n"}, 2 * GIB),
        # a v1 container shows the host's path, and its own group at the mount
        ("4:memory:/docker/1\n", {"memory__memoryDOTlimit_in_bytes": f"{2 * GIB}\n"}, 2 * GIB),
        ("4:memory:/a\n", {"memory__a__memoryDOTlimit_in_bytes": "9223372036854771712\n"}, None),
        ("4:cpu:/a\n", {"memory__a__memoryDOTlimit_in_bytes": f"{2 * GIB}\n"}, None),
        ("0::/a\n4:memory:/b\n", {"a__memoryDOTmax": "9\n", "memory__b__memoryDOTlimit_in_bytes": "7\n"}, 7),
    ],
)
def test_the_smallest_limit_on_the_path_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    assert cgroup_memory_limit_bytes(root=tree(tmp_path, groups, **files)) == limit


def test_a_limit_above_the_mount_is_not_looked_for(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/a\n", a__memoryDOTmax="max\n")
    (tmp_path / "sys/fs/memory.max").write_text("1\n")
    assert cgroup_memory_limit_bytes(root=root) is None


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_memory_limit_bytes(root=str(tmp_path)) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_MEM_PER_NODE": "2048"}, 2 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "3"}, 3 * GIB),
        ({"SLURM_MEM_PER_CPU": "1024"}, None),
        ({"SLURM_MEM_PER_NODE": "2048", "SLURM_MEM_PER_CPU": "1", "SLURM_CPUS_ON_NODE": "1"}, 2 * GIB),
        ({"SLURM_MEM_PER_NODE": "2G"}, None),
    ],
)
def test_what_slurm_gave(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: int | None) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert slurm_memory_bytes() == expected


def test_host_memory_as_limit_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """jupyter-resource-usage 43: `memory.max` of 2 GiB on a machine with more."""
    monkeypatch.setattr(nodefacts, "cgroup_memory_limit_bytes", lambda: 2 * GIB)
    monkeypatch.setattr(nodefacts, "physical_memory_bytes", lambda: 64 * GIB)
    assert nodefacts.memory_limit_bytes() == 2 * GIB
    limits = node_facts()["memory_limits"]
    assert limits == {"process": 2.0, "user": 2.0, "system": 64.0, "slurm": 2.0}
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1024")
    assert node_facts()["memory_limits"] == {"process": 1.0, "user": 1.0, "system": 64.0, "slurm": 1.0}


def test_an_rlimit_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (GIB, 3 * GIB))
    assert memory_limits_bytes()["rlimit"] == GIB
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, GIB))
    assert "rlimit" not in memory_limits_bytes()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/a", "ext4"),
        ("/data/x", "nfs4"),
        ("/database", "ext4"),
        ("/data/local/x", "xfs"),
        ("/with space/x", "lustre"),
        ("/über/x", "beegfs"),
        ("/over/x", "tmpfs"),
    ],
)
def test_a_path_lies_on_its_nearest_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_bytes(
        b"none / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\nd /data/local xfs rw 0 0\nd /with\\040space lustre rw 0 0\n"
        + "d /über beegfs rw 0 0\n".encode()
        + b"d /not\xffutf8 nfs rw 0 0\nd /over nfs rw 0 0\nd /over tmpfs rw 0 0\nshort line\n"
    )
    assert filesystem_of(path, str(mounts)) == kind
    assert filesystem_of(os.fsdecode(b"/not\xffutf8/x"), str(mounts)) == "nfs"
    assert filesystem_of(path, str(tmp_path / "none")) is None
