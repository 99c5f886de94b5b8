"""Clocks and counters that go back: the rows still come on time, and what only grows does not shrink."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from tests.native.conftest import Build
from tests.native.test_crowds import fake, root
from tests.native.test_safety import host, whole

S = 1_000_000_000
#: a wall clock that somebody sets; it stands before libc's own
WALL = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
long shift_s;
int clock_gettime(clockid_t id, struct timespec *t)
{
    int failed = (int)syscall(SYS_clock_gettime, id, t);
    if (!failed && id == CLOCK_REALTIME)
        t->tv_sec += shift_s;
    return failed;
}
"""


def test_a_wall_clock_that_is_set_back(tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wall.c").write_text(WALL)
    library = build("wall.so", [tmp_path / "wall.c"], "-shared", "-fPIC")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    host(
        tmp_path,
        """
engine = made()
shift = ctypes.c_long.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "shift_s")
for seconds in (0, -3600, 0, 3600):
    shift.value = seconds
    engine.text(b'{"type": "mark"}\\n')  # gets the clocks of its block
    ticking(engine)
engine.stop()
""",
    )
    segment = whole(tmp_path / "a.seg")
    marks = [record for record in segment.records if record["type"] == "mark"]
    mono, wall = zip(*((mark["mono_ns"], mark["wall_ns"]) for mark in marks), strict=True)
    steps = [round((b - a) / S, -2) for a, b in itertools.pairwise(wall)]
    assert steps == [-3600, 3600, 3600]
    times = segment.table("process")["mono_ns"][0].tolist()
    assert list(mono) == sorted(mono) and times == sorted(set(times))
    assert segment.table("monitor")["ticks"][0].tolist() == list(range(1, len(times) + 1))


@root
def test_counters_of_the_kernel_that_go_back(tmp_path: Path) -> None:
    """User and system time are scaled from the exact total, and can shrink; what is published does not."""
    fake(
        tmp_path,
        """
pid = 5_000_001
proc.put(pid, user=5 * SECOND, system=SECOND, dead_user=3 * SECOND, chars=5000)
mount()
engine = Engine(1000.0, queue=True)
engine.start()
engine.add_tree(pid)
engine.go()
seen = [last(engine)]
for user, dead, chars in ((4, 2, 4000), (6, 3, 6000)):
    proc.put(pid, user=user * SECOND, dead_user=dead * SECOND, chars=chars)
    engine.tick()
    seen.append(last(engine))
engine.stop()
assert [row["cpu_ns"] // 10**9 for row in seen] == [9, 9, 10], seen
assert [row["cpu_user_ns"] // 10**9 for row in seen] == [8, 8, 9], seen
assert [row["read_chars"] for row in seen] == [5000, 5000, 6000], seen
""",
    )
