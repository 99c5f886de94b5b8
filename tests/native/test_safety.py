"""The engine as a guest in other people's processes: forks, exits, signals, and whatever the host does to itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from jumper.store.segments import Segment, read_segment

#: what each of the programs below begins with: an engine at 100 Hz that watches its own process
HOST = """
import ctypes, errno, fcntl, mmap, os, resource, signal, subprocess, sys, threading, time
from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.backends.native.streams import rows_of, schema_payload, stream_names
PATH = sys.argv[1]

def made(path=PATH, interval=0.01, **more):
    engine = Engine(interval, segment=os.fsencode(path), schema=schema_payload({}), in_target=True, **more)
    engine.start()
    engine.add_tree(os.getpid())
    engine.go()
    return engine

def last(engine, stream="process"):
    names = {number: stream_names(number) for number in range(1, 7)}
    found = {}
    while drained := engine.drain():
        for name, row in rows_of(drained, names):
            found[name] = row
    return found[stream]

def ticking(engine, more=5, seconds=20):
    until, end = engine.statistics()["ticks"] + more, time.monotonic() + seconds
    while engine.statistics()["ticks"] < until:
        assert time.monotonic() < end, "no ticks any more"
        time.sleep(0.005)

def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def host(tmp_path: Path, code: str, *arguments: str, status: int = 0, timeout_s: float = 90) -> str:
    """Run a program; return what it printed."""
    command = [sys.executable, "-c", HOST + code, str(tmp_path / "a.seg"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == status, done.stderr[-3000:]
    return done.stdout


def whole(path: Path) -> Segment:
    """A segment that is there to its end."""
    segment = read_segment(path)
    assert (segment.torn, segment.missing) == (0, 0)
    assert segment.blocks > 2
    return segment


# ---- forks


def test_children_of_a_host_with_threads(tmp_path: Path) -> None:
    """They may leave at once, become another program, end like any interpreter, and have an engine of their own."""
    host(
        tmp_path,
        """
busy = [threading.Thread(target=lambda: [bytes(9999) for _ in range(100000)], daemon=True) for _ in range(3)]
for thread in busy:
    thread.start()
engine = made(node=True, queue=True, thread_pid=os.getpid())
for number in range(30):
    pid = os.fork()
    if pid == 0:
        if number % 4 == 0:
            os._exit(7)
        if number % 4 == 1:
            os.execv("/bin/sh", ["sh", "-c", "exit 7"])
        assert engine.statistics() == dict.fromkeys(engine.statistics(), 0)
        assert not engine.text(b"{}\\n") and engine.drain(0.1) == b"" and engine.add_tree(1) == -1
        assert engine.flush() == 0 and engine.members(0) == [] and not engine.alive(0)
        engine.stop()
        try:
            engine.start()
        except OSError as error:
            assert error.errno == errno.EALREADY
        if number % 4 == 2:
            own = made(f"{PATH}.{number}")
            ticking(own)
            own.stop()
            del own
        del engine
        sys.exit(7)
    assert status_of(pid) == 7, number
    ticking(engine, 1)
engine.stop()
""",
    )
    whole(tmp_path / "a.seg")
    assert len([whole(path) for path in tmp_path.glob("a.seg.*")]) == 7


def test_a_child_after_the_stop_ends(tmp_path: Path) -> None:
    """With several processes there was a second thread, which a fork does not have either."""
    host(
        tmp_path,
        """
child = subprocess.Popen(["sleep", "60"])
engine = made()
ticking(engine, 30)
engine.stop()
pid = os.fork()
if pid == 0:
    del engine
    sys.exit(7)
assert status_of(pid) == 7
child.kill()
""",
        timeout_s=30,
    )


def test_descriptors_and_locks_are_not_inherited(tmp_path: Path) -> None:
    host(
        tmp_path,
        """
before = set(os.listdir("/proc/self/fd"))
engine = made()
ticking(engine)
assert set(os.listdir("/proc/self/fd")) == before
with open(PATH, "rb") as file:  # closing it does not let go of the writer's lock
    file.read()
code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
locked = [sys.executable, "-c", code, PATH]
assert subprocess.run(locked, stderr=subprocess.DEVNULL).returncode != 0
engine.stop()
assert subprocess.run(locked).returncode == 0
""",
    )


# ---- ends


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(7)", 7),
        ("sys.exit(7)", 7),
        ("", 0),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -15),
        ("engine.stop(); engine.stop()", 0),
        ("engine.cycle = None", 1),
        ("sys.modules['kept'] = engine", 0),
        ("import atexit; atexit.register(engine.stop)", 0),
        ("threading.Thread(target=engine.drain, args=(60.0,), daemon=True).start()", 0),
    ],
)
def test_a_host_that_ends_without_a_stop(tmp_path: Path, end: str, status: int) -> None:
    host(tmp_path, f"engine = made(queue=True, node=True)\nticking(engine)\n{end}", status=status, timeout_s=30)
    whole(tmp_path / "a.seg")


# ---- signals


def test_many_threads_ask_at_once_and_beside_ticks(tmp_path: Path) -> None:
    """Who adds or finishes a tree keeps the GIL for a moment: nobody may wait for it who has the engine's lock."""
    code = """
engine = made(interval=0.001, node=True)
done, rounds = [], 300

def ask():
    for _ in range(rounds):
        number = engine.add_tree(os.getpid(), (), b"A=1")
        engine.text(b'{"type": "event"}\\n')
        done.append(number >= 0 and engine.finish(number) is not None)

threads = [threading.Thread(target=ask, daemon=True) for _ in range(5)]
for thread in threads:
    thread.start()
until = time.monotonic() + 60
while any(thread.is_alive() for thread in threads):
    assert time.monotonic() < until, "they wait for each other"
    engine.statistics()
engine.stop()
print(len(done) == 5 * rounds and all(done), engine.add_tree(os.getpid()), engine.finish(0))
"""
    assert host(tmp_path, code).split() == ["True", "-1", "None"]
    whole(tmp_path / "a.seg")


def test_a_storm_of_signals_is_the_main_threads(tmp_path: Path) -> None:
    host(
        tmp_path,
        """
seen, pipe = [], 0
def handler(number, frame):
    seen.append(threading.get_native_id())
signal.signal(signal.SIGALRM, handler)
engine = made()
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
ticking(engine, 50)
for _ in range(50):
    engine.flush()
    engine.tick()
signal.setitimer(signal.ITIMER_REAL, 0)
engine.stop()
assert len(seen) > 50 and set(seen) == {os.getpid()}, len(seen)
""",
    )
    whole(tmp_path / "a.seg")


def test_its_threads_take_no_signal(tmp_path: Path) -> None:
    host(
        tmp_path,
        """
before = set(os.listdir("/proc/self/task"))
child = subprocess.Popen(["sleep", "60"])
engine = made()
end = time.monotonic() + 10
while len(ours := set(os.listdir("/proc/self/task")) - before) < 2 and time.monotonic() < end:
    time.sleep(0.01)
assert len(ours) == 2  # the second reads PSS
for thread in ours:
    status = open(f"/proc/self/task/{thread}/status").read()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    for number in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD, signal.SIGPROF, signal.SIGXFSZ):
        assert blocked >> number - 1 & 1, number
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
child.kill()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    time.sleep(60)
except KeyboardInterrupt:
    engine.stop()
    sys.exit(7)
""",
        status=7,
        timeout_s=30,
    )


# ---- descriptors

#: no close_range(2), as in a container that filters it: the host's descriptors are shared then
WITHOUT_CLOSE_RANGE = """
import platform, struct
if platform.machine() not in ("x86_64", "aarch64"):
    sys.exit(0)
libc = ctypes.CDLL(None, use_errno=True)
rules = b"".join(struct.pack("<HBBI", *rule) for rule in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 436), (0x06, 0, 0, 0x00050000 | errno.ENOSYS), (0x06, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(rules)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(held))
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, program, 0, 0) != 0:
    sys.exit(0)
"""

FAMILY = """
children = [subprocess.Popen(["sleep", "60"]) for _ in range(60)]
def asleep(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"
while not all(asleep(child.pid) for child in children):  # they have loaded what they need
    time.sleep(0.01)
def free():
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        return len(held)
    finally:
        for fd in held:
            os.close(fd)
"""


@pytest.mark.parametrize("limit", [64, 256, 1024])
@pytest.mark.parametrize("shared", [False, True])
def test_the_hosts_limit_of_descriptors(tmp_path: Path, limit: int, shared: bool) -> None:
    host(
        tmp_path,
        (WITHOUT_CLOSE_RANGE if shared else "")
        + FAMILY
        + f"""
limit, shared = {limit}, {shared}
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
before = free()
engine = made(queue=True, node=True)
assert engine.statistics()["private_table"] != shared
ticking(engine)
now, row = engine.statistics(), last(engine)
kept = now["kept_descriptors"]
assert row["processes"] == 61 and row["rss_bytes"] > 61 << 19, row
assert kept <= max(0, limit - 64) and (kept == 0) == (limit == 64 or shared and limit < 1024), kept
taken = before - free()
assert taken == 0 if not shared else taken <= limit // 4 + 8, taken
for child in children:
    child.kill()
engine.stop()
""",
    )
    whole(tmp_path / "a.seg")


@pytest.mark.parametrize("shared", [False, True])
def test_a_limit_that_is_lowered_while_it_runs_loses_no_process(tmp_path: Path, shared: bool) -> None:
    host(
        tmp_path,
        (WITHOUT_CLOSE_RANGE if shared else "")
        + FAMILY
        + """
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1024))  # none are kept: each look opens
engine = made(queue=True)
ticking(engine)
before = last(engine)
# in a table that is shared, the host has taken all that there is
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 1024))
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
ticking(engine, 40)
after = last(engine)
assert engine.alive(0) and after["processes"] == before["processes"] == 61, after
assert before["cpu_ns"] <= after["cpu_ns"] < before["cpu_ns"] + 5_000_000_000
assert abs(after["rss_bytes"] - before["rss_bytes"]) < 30 << 20
for child in children:
    child.kill()
engine.stop()
""",
    )
    whole(tmp_path / "a.seg")


@pytest.mark.parametrize("shared", [False, True])
def test_a_host_without_standard_descriptors(tmp_path: Path, shared: bool) -> None:
    """What it writes to 1 and 2 by mistake must not land in the segment."""
    host(
        tmp_path,
        (WITHOUT_CLOSE_RANGE if shared else "")
        + """
os.closerange(0, 3)
engine = made(node=True, node_lock=os.fsencode(PATH + ".lock"))
for _ in range(20):
    for fd in (0, 1, 2):
        try:
            os.write(fd, b"by mistake")
        except OSError:
            pass
    ticking(engine, 1)
engine.stop()
os._exit(0)
""",
    )
    whole(tmp_path / "a.seg")
    assert (tmp_path / "a.seg.lock").read_bytes() == b""
