"""The engine on hostile ground: full disks, folders that vanish, a hidden /proc, very many processes and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from jumper.store.segments import read_segment
from tests.native.test_safety import host, whole

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def test_a_folder_that_vanishes(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    host(
        folder,
        """
import shutil
engine = made(queue=True, node=True)
ticking(engine)
assert engine.statistics()["error"] == 0
shutil.rmtree(os.path.dirname(PATH))
end = time.monotonic() + 60
while engine.statistics()["dropped"] == 0:
    engine.tick()
    assert time.monotonic() < end
assert engine.statistics()["error"] == errno.ENOENT
engine.drain()
ticking(engine)
assert engine.drain() != b""  # whoever reads in this process has its rows
engine.stop()
assert not os.path.exists(PATH)
""",
    )


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """RLIMIT_FSIZE is a full disk that sends a signal too: it must not reach the host."""
    host(
        tmp_path,
        """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
engine = made(node=True)
end = time.monotonic() + 60
while engine.statistics()["dropped"] == 0:
    engine.tick()
    assert time.monotonic() < end
assert engine.statistics()["error"] in (errno.EFBIG, errno.ENOSPC) and engine.statistics()["size"] <= 50_000
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ticking(engine)
engine.stop()
print(engine.statistics()["dropped"])
""",
    )
    segment = read_segment(tmp_path / "a.seg")
    assert segment.torn == 0
    assert segment.missing > 0
    ticks = segment.table("monitor")["ticks"][0].tolist()
    assert ticks == sorted(set(ticks))


@root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare(1)")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    code = """
folder = sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):
    print("skip"); sys.exit(0)
assert libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=64k") == 0, ctypes.get_errno()
engine = made(folder + "/a.seg", node=True)
end = time.monotonic() + 60
while engine.statistics()["dropped"] == 0:
    engine.tick()
    assert time.monotonic() < end
assert engine.statistics()["error"] == errno.ENOSPC
assert libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0x20, b"size=8m") == 0, ctypes.get_errno()
ticking(engine)
engine.stop()
import shutil
shutil.copy(folder + "/a.seg", PATH)
"""
    folder = tmp_path / "disk"
    folder.mkdir()
    if "skip" in host(tmp_path, code, str(folder)):
        pytest.skip("no mount namespace of its own")
    segment = read_segment(tmp_path / "a.seg")
    assert segment.torn == 0
    assert segment.missing > 0


#: become another user with a /proc that shows only one's own processes
HIDDEN = """
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):
    print("skip"); sys.exit(0)
if libc.mount(b"proc", b"/proc", b"proc", 0, sys.argv[2].encode()):
    print("skip"); sys.exit(0)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Have a folder that every user may write to, parents included."""
    with tempfile.TemporaryDirectory(prefix="jumper-open-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@root
@pytest.mark.parametrize("option", ["hidepid=2", "hidepid=1"])
def test_a_proc_that_hides_other_users(open_folder: Path, option: str) -> None:
    code = f"""{HIDDEN}
os.setgroups([]); os.setgid(65534); os.setuid(65534)
libc.prctl(4, 1, 0, 0, 0)  # as after exec: its own files of /proc are its own
assert not os.access("/proc/1/stat", os.R_OK)  # and so it is hidden
children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
engine = made(queue=True, node=True)
assert engine.add_owner(2, 65534) == 1
ticking(engine, 20)
rows = {{}}
names = {{number: stream_names(number) for number in range(1, 7)}}
for name, row in rows_of(engine.drain(), names):
    rows[name] = row
assert rows["process"]["processes"] == 4 and rows["process"]["read_chars"] > 0, rows["process"]
assert rows["user"]["processes"] >= 4
assert rows["system"]["cpu_ns"] > 0
for child in children:
    child.kill()
engine.stop()
"""
    if "skip" in host(open_folder, code, option):
        pytest.skip("no /proc of its own")
    whole(open_folder / "a.seg")


@root
def test_io_that_may_not_be_read_is_null(open_folder: Path) -> None:
    """A process of another user: CPU and memory are known, its I/O is not."""
    host(
        open_folder,
        """
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # ends with us; it may not be killed
os.setgroups([]); os.setgid(65534); os.setuid(65534)
engine = Engine(0.01, queue=True)
engine.start()
engine.add_tree(child.pid)
engine.go()
ticking(engine)
row = last(engine)
assert row["processes"] == 1 and row["rss_bytes"] > 0 and row["cpu_ns"] >= 0, row
assert [row[name] for name in ("read_chars", "write_chars", "reads", "read_bytes", "write_bytes")] == [None] * 5
engine.stop()
""",
    )


@root
def test_a_user_of_very_many_groups(tmp_path: Path) -> None:
    """They stand in /proc/PID/status before the peak of memory does."""
    host(
        tmp_path,
        """
from jumper.monitor.metrics.process.procfs import ProcFS
os.setgroups(range(1_000_000, 1_003_000))
peak = bytearray(64 << 20)
peak[::4096] = b"x" * len(peak[::4096])
del peak
engine = made(queue=True)
ticking(engine)
row = last(engine)
assert row["hwm_max_bytes"] >= 64 << 20 > row["rss_bytes"], row
assert ProcFS().status(os.getpid()).hwm >= 64 << 20
engine.stop()
""",
    )


@root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare(1)")
def test_pids_that_begin_again(tmp_path: Path) -> None:
    """In a pid namespace of its own; its last pid is set just below the largest."""
    probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True)
    if probe.returncode != 0 or not Path("/proc/sys/kernel/ns_last_pid").exists():
        pytest.skip("no pid namespace of its own")
    code = """
if len(sys.argv) < 3:
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", CODE, PATH, "inside"])
engine = made(queue=True)
largest = int(open("/proc/sys/kernel/pid_max").read())
open("/proc/sys/kernel/ns_last_pid", "w").write(str(largest - 3))
ticking(engine, 2)
children = [subprocess.Popen(["sleep", "60"]) for _ in range(8)]
pids = [child.pid for child in children]
assert max(pids) > largest - 4 and min(pids) < largest // 2, pids
ticking(engine, 20)
row = last(engine)
assert row["processes"] == 9, row
assert {member[0] for member in engine.members(0)} == {os.getpid(), *pids}
for child in children:
    child.kill()
    child.wait()
ticking(engine)
assert last(engine)["processes"] == 1
engine.stop()
"""
    from tests.native.test_safety import HOST

    host(tmp_path, f"CODE = {HOST + code!r}\n" + code)
    whole(tmp_path / "a.seg")
