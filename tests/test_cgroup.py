"""The target's control group: trees of both versions whose figures are known, and a real group with a real OOM kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jumper
from jumper.monitor.metrics.cgroup import CgroupCollector
from jumper.monitor.metrics.cgroup.groups import group_of
from jumper.monitor.metrics.context import new_context

GIB = 1 << 30
UNLIMITED = 9223372036854771712


def tree(root: Path, groups: str, files: dict[str, str]) -> str:
    """A root with /proc/7/cgroup and files below /sys/fs/cgroup; the namespace is the machine's first."""
    for folder in ("proc/7", "proc/self/ns", "sys/fs/cgroup"):
        (root / folder).mkdir(parents=True)
    (root / "proc/7/cgroup").write_text(groups)
    (root / "proc/self/ns/cgroup").symlink_to("cgroup:[4026531835]")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def look(root: str, level: str = "process") -> dict[str, int | None] | None:
    collector = CgroupCollector(7, root)
    collector.setup()
    return collector.collect(level, new_context(0, 0))


V2 = {
    "memory.current": "3221225472\n", "memory.peak": "4294967296\n", "memory.max": "8589934592\n",
    "memory.swap.current": "4096\n", "memory.events": "low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n",
    "memory.pressure": "some avg10=1.00 avg60=0.50 avg300=0.10 total=7000\nfull avg10=0.00 total=5\n",
    "cpu.stat": "usage_usec 12000000\nuser_usec 1\nsystem_usec 2\nnr_throttled 4\nthrottled_usec 250000\n",
}  # fmt: skip
V2_FIGURES = {
    "cgroup_memory_bytes": 3 * GIB, "cgroup_memory_peak_bytes": 4 * GIB, "cgroup_memory_limit_bytes": 8 * GIB,
    "cgroup_swap_bytes": 4096, "cgroup_limit_hits": 17, "cgroup_oom_kills": 1, "cgroup_pressure_ns": 7_000_000,
    "cgroup_cpu_ns": 12 * 10**9, "cgroup_throttled_ns": 250_000_000,
}  # fmt: skip


def below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


def test_version_2(tmp_path: Path) -> None:
    assert look(tree(tmp_path, "0::/job\n", below("job", V2))) == V2_FIGURES


@pytest.mark.parametrize("level", ["user", "system", "slurm"])
def test_other_levels_have_none(tmp_path: Path, level: str) -> None:
    assert look(tree(tmp_path, "0::/job\n", below("job", V2)), level) is None


def test_the_group_is_the_one_that_sets_the_limit(tmp_path: Path) -> None:
    """A task's own group, without a limit, lies in its job's."""
    task = {**V2, "memory.max": "max\n", "memory.current": "5\n"}
    job = below("slurm/job_1", V2)
    parent = below("slurm", {**V2, "memory.max": str(64 * GIB)})
    files = {**below("slurm/job_1/step_0/task_0", task), **job, **parent}
    assert look(tree(tmp_path, "0::/slurm/job_1/step_0/task_0\n", files)) == V2_FIGURES


def test_without_a_limit_it_is_the_targets_own(tmp_path: Path) -> None:
    files = {
        **below("a/b", {**V2, "memory.max": "max\n"}),
        **below("a", {"memory.current": "1\n", "memory.max": "max\n"}),
    }
    expected = {name: value for name, value in V2_FIGURES.items() if name != "cgroup_memory_limit_bytes"}
    assert look(tree(tmp_path, "0::/a/b\n", files)) == expected


def test_a_container_sees_its_own_group_at_the_mount(tmp_path: Path) -> None:
    assert look(tree(tmp_path, "0::/kubepods/pod1/abc\n", V2)) == V2_FIGURES


def test_what_a_kernel_does_not_count_is_left_out(tmp_path: Path) -> None:
    """memory.peak came with Linux 5.19, pressure can be off."""
    assert look(tree(tmp_path, "0::/\n", {"memory.current": "5\n"})) == {"cgroup_memory_bytes": 5}


def v1(path: str) -> dict[str, str]:
    return {
        f"memory{path}/memory.usage_in_bytes": f"{2 * GIB}\n",
        f"memory{path}/memory.max_usage_in_bytes": f"{3 * GIB}\n",
        f"memory{path}/memory.limit_in_bytes": f"{4 * GIB}\n", f"memory{path}/memory.failcnt": "21\n",
        f"memory{path}/memory.memsw.usage_in_bytes": f"{2 * GIB + 8192}\n",
        f"memory{path}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        f"cpuacct{path}/cpuacct.usage": "77000000000\n",
        f"cpu{path}/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_time 123456789\n",
    }  # fmt: skip


V1_FIGURES = {
    "cgroup_memory_bytes": 2 * GIB, "cgroup_memory_peak_bytes": 3 * GIB, "cgroup_memory_limit_bytes": 4 * GIB,
    "cgroup_swap_bytes": 8192, "cgroup_limit_hits": 21, "cgroup_oom_kills": 5, "cgroup_cpu_ns": 77 * 10**9,
    "cgroup_throttled_ns": 123_456_789,
}  # fmt: skip


@pytest.mark.parametrize(
    "groups", ["4:memory:/job\n3:cpu:/job\n2:cpuacct:/job\n0::/job\n", "4:memory:/job\n3:cpu,cpuacct:/job\n"]
)
def test_version_1_also_beside_version_2(tmp_path: Path, groups: str) -> None:
    files = {**v1("/job"), "unified/job/cgroup.procs": ""}
    if "cpu,cpuacct" in groups:  # then each name is a link to the one folder
        files |= {"cpu/job/cpuacct.usage": files["cpuacct/job/cpuacct.usage"]}
    assert look(tree(tmp_path, groups, files)) == V1_FIGURES


def test_no_limit_of_version_1(tmp_path: Path) -> None:
    files = {**v1("/job"), "memory/job/memory.limit_in_bytes": f"{UNLIMITED}\n"}
    found = look(tree(tmp_path, "4:memory:/job\n3:cpu:/job\n2:cpuacct:/job\n", files))
    assert found is not None and "cgroup_memory_limit_bytes" not in found and found["cgroup_limit_hits"] == 21


@pytest.mark.parametrize(
    ("groups", "files"), [("4:memory:/\n", v1("")), ("0::/\n", {"cgroup.procs": "1\n"}), ("", {}), ("0::/gone\n", {})]
)
def test_the_whole_machine_is_no_group(tmp_path: Path, groups: str, files: dict[str, str]) -> None:
    root = tree(tmp_path, groups, files)
    assert group_of(7, root) is None and look(root) is None


def test_the_root_of_a_cgroup_namespace_is_a_group(tmp_path: Path) -> None:
    root = tree(tmp_path, "4:memory:/\n3:cpu:/\n2:cpuacct:/\n", v1(""))
    (tmp_path / "proc/self/ns/cgroup").unlink()
    (tmp_path / "proc/self/ns/cgroup").symlink_to("cgroup:[4026532555]")
    assert look(root) == V1_FIGURES


@pytest.fixture
def real_group() -> Iterator[tuple[Path, int]]:
    """A control group of this machine that may hold 64 MiB, and the version that counts its memory."""
    mounts = {1: Path("/sys/fs/cgroup/memory"), 2: Path("/sys/fs/cgroup")}
    version = 1 if (mounts[1] / "cgroup.procs").exists() else 2
    folder = mounts[version] / f"jumper-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here (it takes root, and a writable mount): {error}")
    try:
        limit = folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")
        if not limit.exists():
            pytest.skip("control groups made here do not count memory")
        limit.write_text(str(64 << 20))
        yield folder, version
    finally:
        deadline = time.monotonic() + 20
        while folder.exists() and time.monotonic() < deadline:
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.05)


def test_a_real_group_and_a_real_oom_kill(real_group: tuple[Path, int]) -> None:
    folder, _ = real_group
    code = f"""
import os, sys
open({str(folder / "cgroup.procs")!r}, "w").write(str(os.getpid()))
held = bytearray(24 << 20)
print("ready", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    held = [bytearray(b"x" * (1 << 20)) for _ in range(200)]
    os._exit(0)
print(os.wait()[1] & 127, flush=True)
sys.stdin.readline()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert child.stdin and child.stdout and child.stdout.readline() == "ready\n"
        collector = CgroupCollector(child.pid)
        collector.setup()
        before = collector.collect("process", new_context(0, 0))
        child.stdin.write("go\n")
        assert child.stdout.readline() == "9\n", "the kernel kills what goes beyond the group's limit"
        after = collector.collect("process", new_context(1, 0))
    finally:
        child.kill()
        child.communicate()
    assert before is not None and after is not None
    assert before["cgroup_memory_limit_bytes"] == 64 << 20
    assert 20 << 20 < before["cgroup_memory_bytes"] <= 64 << 20  # type: ignore[operator]
    assert after["cgroup_oom_kills"] - before["cgroup_oom_kills"] == 1  # type: ignore[operator]
    assert after["cgroup_limit_hits"] > before["cgroup_limit_hits"]  # type: ignore[operator]
    assert 60 << 20 < after.get("cgroup_memory_peak_bytes", 64 << 20) <= 64 << 20  # type: ignore[operator]
    if "cgroup_cpu_ns" in after:
        assert after["cgroup_cpu_ns"] > 0  # type: ignore[operator]


def test_a_run_has_the_figures_of_a_group_with_a_limit(real_group: tuple[Path, int], tmp_path: Path) -> None:
    folder, version = real_group
    (folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(GIB))
    code = "held = bytearray(b'x' * (30 << 20))\nimport time\ntime.sleep(2)"
    inside = f"echo $$ > {folder}/cgroup.procs && exec {sys.executable} -m jumper run --interval 0.2 -o {tmp_path}/RUN"
    subprocess.run(["sh", "-c", f'{inside} -- {sys.executable} -c "{code}"'], check=True)
    rows = jumper.open_run(tmp_path / "RUN").samples("process")
    assert set(rows["cgroup_memory_limit_bytes"].dropna()) == {GIB}
    assert 30 << 20 < rows["cgroup_memory_bytes"].max() <= GIB
    assert (rows["cgroup_oom_kills"].dropna() == 0).all()
