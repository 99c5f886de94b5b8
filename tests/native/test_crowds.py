"""Very many processes and threads: each one is seen, memory is bounded, and what is beyond is counted."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_int64, c_size_t
from pathlib import Path

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from tests.native.conftest import REPOSITORY
from tests.native.test_safety import host, whole

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
MOST_ROWS = 65536


@pytest.mark.slow
def test_three_thousand_processes(tmp_path: Path) -> None:
    host(
        tmp_path,
        """
engine = made(interval=0.2, queue=True)
gate, open_gate = os.pipe()
pids = []
for _ in range(3000):
    pid = os.fork()
    if pid == 0:
        os.close(open_gate)
        os.read(gate, 1)
        os._exit(0)
    pids.append(pid)
end = time.monotonic() + 60
while last(engine)["processes"] < 3001:
    ticking(engine, 1, 60)
    assert time.monotonic() < end
begin = time.monotonic()
engine.tick()
took = time.monotonic() - begin
assert took < 3, took
before = last(engine)
os.close(open_gate)
for pid in pids:
    os.waitpid(pid, 0)
begin = time.monotonic()
engine.tick()
took = time.monotonic() - begin
after = last(engine)
assert after["processes"] == 1 and took < 3, took
assert after["cpu_ns"] >= before["cpu_ns"] and after["lost_cpu_ns"] == 0
engine.stop()
""",
        timeout_s=200,
    )
    whole(tmp_path / "a.seg")


@pytest.mark.slow
def test_ten_thousand_threads(tmp_path: Path) -> None:
    found = host(
        tmp_path,
        """
gate = threading.Event()
threading.stack_size(1 << 16)
threads = []
try:
    for _ in range(10_000):
        threads.append(threading.Thread(target=gate.wait))
        threads[-1].start()
except RuntimeError:
    threads.pop()
engine = made(interval=0.5, queue=True, thread_pid=os.getpid())
ticking(engine, 3, 60)
row, rows, names = None, {}, {number: stream_names(number) for number in range(1, 7)}
while drained := engine.drain():
    for name, row in rows_of(drained, names):
        rows.setdefault(name, {}).setdefault(row["mono_ns"], []).append(row)
process, one = list(rows["process"].values())[-1][0], list(rows["thread"].values())[-1]
assert process["threads"] == len(threads) + 2, process
assert {str(row["tid"]) for row in one} >= {str(thread.native_id) for thread in threads}
assert len(one) == process["threads"] and all(row["read_chars"] is not None for row in one)
assert rows["monitor"].popitem()[1][0]["dropped"] == 0
assert engine.statistics()["size"] < 64 << 20
print(len(threads))
gate.set()
for thread in threads:
    thread.join()
ticking(engine, 1, 60)
engine.stop()
""",
        timeout_s=200,
    )
    assert int(found) > 1000, "this machine gives a process no threads"
    segment = whole(tmp_path / "a.seg")
    assert len(segment.table("thread")["tid"][0]) > 3 * int(found)


def test_processes_that_come_faster_than_they_are_looked_at(tmp_path: Path) -> None:
    """A scan ends though it finds somebody new each time; the engine ticks and stops."""
    host(
        tmp_path,
        """
def storm():
    while not ended:
        pids = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(5)]
        for pid in pids:
            os.waitpid(pid, 0)
ended = False
threads = [threading.Thread(target=storm) for _ in range(3)]
engine = made(interval=0.02)
for thread in threads:
    thread.start()
for _ in range(10):
    ticking(engine, 2, 20)
    engine.remove(engine.add_tree(os.getpid()))  # a new set is a scan of everything
begin = time.monotonic()
engine.stop()
assert time.monotonic() - begin < 5
ended = True
for thread in threads:
    thread.join()
""",
    )
    whole(tmp_path / "a.seg")


#: a /proc of its own, made in memory, to be mounted; pids that no kernel gives (4,194,304 at most) have no clock
FAKE = """
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.fakeproc import SECOND, FakeProc
libc = ctypes.CDLL(None, use_errno=True)
folder = Path(sys.argv[2])
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):
    print("skip"); sys.exit(0)
assert libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"size=1g,nr_inodes=1m") == 0, ctypes.get_errno()
proc = FakeProc(folder)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1024))  # none are kept: those of a fake would read on when it is gone
def mount():
    assert libc.mount(bytes(folder), b"/proc", None, 0x1000, None) == 0, ctypes.get_errno()
"""


def fake(tmp_path: Path, code: str, *arguments: str, timeout_s: float = 90) -> None:
    """Run a program that has a /proc of its own."""
    folder = tmp_path / "proc"
    folder.mkdir()
    if "skip" in host(tmp_path, FAKE + code, str(folder), str(REPOSITORY), *arguments, timeout_s=timeout_s):
        pytest.skip("no mount namespace of its own")


#: so many processes of one tree: all but the first are the same folder under other names
CROWD = """
first, count = 5_000_001, int(sys.argv[4])
proc.put(first, start=1)
proc.put(2, ppid=first, start=2, user=7, rss=3)
(folder / "2").rename(folder / "one")
for pid in range(first + 1, first + count):  # the newest first, as after the pids began again
    os.symlink("one", folder / str(pid))
page = os.sysconf("SC_PAGE_SIZE")
before = int(Path("/proc/self/statm").read_text().split()[1]) * page
engine = Engine(1000.0, segment=os.fsencode(PATH), schema=schema_payload({}), queue=True)
mount()
engine.start()
engine.add_tree(first)
engine.go()
seen = min(count, 200_000)
row = last(engine)
assert row["processes"] == row["processes_seen"] == seen and row["rss_bytes"] == (3 * seen - 2) << 20, row
assert row["cpu_ns"] == (seen - 1) * 70_000_000
assert engine.statistics()["refused"] >= count - seen and (count > seen) == (engine.statistics()["refused"] > 0)
assert libc.umount2(b"/proc", 2) == 0
after = int(Path("/proc/self/statm").read_text().split()[1]) * page
assert after - before < seen * 1024 + (16 << 20), after - before
mount()
(folder / "one").rename(folder / "none")
engine.tick()
row = last(engine)
assert row["processes"] == 1 and row["cpu_ns"] == (seen - 1) * 70_000_000, row
engine.stop()
"""


@root
@pytest.mark.parametrize("count", [5_000, pytest.param(200_100, marks=pytest.mark.slow)])
def test_a_crowd_of_processes(tmp_path: Path, count: int) -> None:
    fake(tmp_path, CROWD, str(count), timeout_s=250)
    whole(tmp_path / "a.seg")


@root
def test_a_child_with_a_lower_pid_than_its_parent(tmp_path: Path) -> None:
    """Pids began again in between; when both are gone at once, what they used is kept."""
    fake(
        tmp_path,
        """
for pid, numbers in (
    (5_000_020, {"start": 100, "user": SECOND}),
    (5_000_010, {"start": 200, "user": 3 * SECOND, "ppid": 5_000_020}),
    (5_000_030, {"start": 300}),
):
    proc.put(pid, **numbers)  # a folder in memory lists the newest first
    os.chown(folder / str(pid), 4711, -1)
mount()
engine = Engine(1000.0, queue=True)
engine.start()
engine.add_owner(2, 4711)
engine.go()
before = last(engine, "user")
for pid in (5_000_010, 5_000_020):
    proc.drop(pid)
proc.put(5_000_030, user=2 * SECOND)
engine.tick()
after = last(engine, "user")
engine.stop()
assert (before["processes"], after["processes"]) == (3, 1), (before, after)
assert (before["cpu_ns"], after["cpu_ns"]) == (4 * 10**9, 6 * 10**9), (before, after)
""",
    )


class Rows(Structure):
    _fields_ = [
        ("values", POINTER(c_int64)),
        *[(name, c_size_t) for name in ("columns", "extra", "count", "capacity")],
        ("lost", c_int64),
    ]


def test_rows_beyond_the_room_are_counted(native: ctypes.CDLL) -> None:
    rows = Rows(columns=2, extra=1)
    native.rows_add.argtypes = [POINTER(Rows), POINTER(c_int64), c_size_t]
    for number in range(MOST_ROWS + 3):
        native.rows_add(byref(rows), byref(c_int64(number)), 1)
    assert (rows.count, rows.capacity, rows.lost) == (MOST_ROWS, MOST_ROWS, 3)
    assert rows.values[2 * (MOST_ROWS - 1)] == MOST_ROWS - 1
    native.rows_add(byref(rows), byref(c_int64()), 2)
    assert rows.lost == 4
