"""Trees that come and go under one engine: each has its own rows and its own most, however short it lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jumper.analysis.series import Series, joined
from jumper.monitor.backends import native_built
from jumper.monitor.roots import Roots, roots
from jumper.monitor.zombie import await_end
from jumper.store.segments import read_segment

ENGINES = ["python", pytest.param("native", marks=pytest.mark.skipif(not native_built(), reason="not built"))]
HOLD = "import sys, time; held = bytearray({mb} << 20); print(flush=True); sys.stdin.read()"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Roots]:
    """An engine whose next tick is far away."""
    made = roots(request.param, 60.0, tmp_path, ["system"], {"kind": "test"})
    made.start()
    yield made
    made.stop()


def holder(mb: int, **environment: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD.format(mb=mb)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    return child


def rows(folder: Path) -> dict[int, list[int]]:
    """Return the RSS of each row, by target."""
    (path,) = folder.glob("*.seg")
    table = read_segment(path).table("process")
    found: dict[int, list[int]] = {}
    for pid, rss in zip(table["pid"][0].tolist(), table["rss_bytes"][0].tolist(), strict=True):
        found.setdefault(pid, []).append(rss)
    return found


def test_trees_come_and_go_each_with_its_own_most(engine: Roots, tmp_path: Path) -> None:
    small, large = holder(20), holder(80)
    numbers = {child: engine.add(child.pid) for child in (small, large)}
    most = {child: engine.finish(number) for child, number in numbers.items() if number is not None}
    for child, mb in ((small, 20), (large, 80)):
        assert mb << 20 < (most[child].rss or 0) < (mb + 20) << 20
        assert mb << 20 < (most[child].hwm or 0) < (mb + 20) << 20
        child.communicate()
    engine.stop()
    assert {small.pid, large.pid} <= rows(tmp_path).keys()


def test_a_zombies_cpu_is_that_of_its_whole_tree(engine: Roots) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    child = subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} -S -c '{burn}'; true"])
    number = engine.add(child.pid)
    ended = await_end(child.pid)
    assert number is not None and ended is not None and ended.cpu_user_ns is not None
    told = ended.cpu_user_ns + (ended.cpu_system_ns or 0)
    assert engine.finish(number).cpu_ns == pytest.approx(told, abs=2e7)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    assert told == pytest.approx((usage.ru_utime + usage.ru_stime) * 1e9, abs=1e4)
    assert ended.maxrss_bytes == usage.ru_maxrss * 1024


def test_what_has_the_tag_belongs_to_it_as_soon_as_it_is_new(tmp_path: Path) -> None:
    for name in ["python", *(["native"] if native_built() else [])]:
        made = roots(name, 0.1, tmp_path, (), {})
        made.start()
        child = holder(5)
        number = made.add(child.pid, "MARK=it")
        assert number is not None
        time.sleep(0.3)  # its first full scan is over
        stranger = holder(60, MARK="it")
        deadline = time.monotonic() + 8  # the next full scan is later
        while time.monotonic() < deadline and rss_of(made, tmp_path, child.pid) < 60 << 20:
            time.sleep(0.1)
        most = made.finish(number)
        made.stop()
        for each in (child, stranger):
            each.communicate()
        for path in tmp_path.glob("*.seg"):
            path.unlink()
        assert (most.rss or 0) > 60 << 20, name


@pytest.mark.skipif(not native_built(), reason="not built")
def test_a_tree_that_is_entered_just_before_another_ends_keeps_its_children(tmp_path: Path) -> None:
    made = roots("native", 60.0, tmp_path, (), {})
    made.start()
    ending = holder(1)
    first = made.add(ending.pid)
    time.sleep(0.1)  # the looks for new processes have come to rest
    pair = f"import os, sys; os.fork(); {HOLD.format(mb=30)}"
    child = subprocess.Popen([sys.executable, "-S", "-c", pair], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == [b"\n"] * 2
    number = made.add(child.pid, soon=True)
    assert first is not None and number is not None
    made.finish(first)  # its last look sees the new processes of all
    child.communicate()
    most = made.finish(number)
    ending.communicate()
    made.stop()
    assert (most.rss or 0) > 60 << 20


@pytest.mark.skipif(not native_built(), reason="not built")
def test_a_new_tree_is_read_early_whatever_the_looks_at_others_cost(tmp_path: Path) -> None:
    made = roots("native", 60.0, tmp_path, (), {})
    made.start()
    crowd = "import os, sys\nfor _ in range(9): os.fork()\nprint(flush=True); sys.stdin.read()"
    large = subprocess.Popen([sys.executable, "-S", "-c", crowd], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert large.stdout is not None
    for _ in range(512):
        large.stdout.readline()
    first = made.add(large.pid)
    time.sleep(0.1)  # from now on looks rest for seconds: reading so many has cost as much as they may
    small = holder(50)
    number = made.add(small.pid, soon=True)
    time.sleep(0.5)
    small.communicate()
    assert first is not None and number is not None
    most = made.finish(number)
    large.communicate()
    made.stop()
    assert 50 << 20 < (most.rss or 0) < 70 << 20


def rss_of(engine: Roots, folder: Path, pid: int) -> int:
    engine.tick()
    return max(rows(folder).get(pid, [0]))


def test_a_series_ends_where_the_next_begins() -> None:
    columns = {"cpu_ns": np.array([5.0, 7.0, 90.0]), "rss_bytes": np.array([1.0, float("nan"), 80.0])}
    first, second = Series(np.array([1, 2]), columns), Series(np.array([1]), columns, 2)
    assert first.last("cpu_ns", 0, 3) == 7
    assert first.last("rss_bytes", 1, 3) is None
    assert first.last("rss_bytes", 0, 3) == first.highest("rss_bytes", 0, 9) == 1
    assert first.part(2, None).highest("cpu_ns", 0, 9) == 7
    assert second.last("rss_bytes", 0, 1) == 80


def test_series_that_follow_one_another_are_one_whose_counters_go_on() -> None:
    nan = float("nan")
    first = Series(np.array([1, 2]), {"cpu_ns": np.array([5.0, 7.0]), "rss_bytes": np.array([1.0, 2.0])})
    second = Series(np.array([4, 5]), {"cpu_ns": np.array([1.0, 4.0]), "rss_bytes": np.array([9.0, nan])})
    both = joined([first, Series(np.array([], "int64"), {}), second])
    assert both is not None
    assert both.mono.tolist() == [1, 2, 4, 5]
    assert both.columns["cpu_ns"].tolist() == [5, 7, 8, 11]
    assert both.highest("rss_bytes", 0, 4) == 9
    assert joined([]) is None
