"""Shared pages counted once, on a /proc whose every number is known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jumper.monitor.metrics.process import sharing as sharing_module
from jumper.monitor.metrics.process.ledger import Process
from jumper.monitor.metrics.process.procfs import ProcFS, Rollup
from jumper.monitor.metrics.process.sharing import Memory, Sharing, used_since
from tests.fakeproc import MIB, FakeProc


class Known(Sharing):
    """Readings as a test says."""

    def __init__(self, **readings: tuple[int, int, int]) -> None:
        super().__init__(ProcFS("/nonexistent"))
        self._sweep = {(int(name[1:]), 0): Rollup(*(part * MIB for part in r)) for name, r in readings.items()}


def process(pid: int, rss: int, anon: int, stack: int = 0) -> Process:
    made = Process(pid)
    made.rss, made.anon, made.exec_stack = rss * MIB, anon * MIB, stack
    return made


def of(processes: list[Process], sharing: Sharing) -> tuple[float, float, float | None, int]:
    """Return (RSS, used, PSS in MiB, how many are not known)."""
    memory = Memory(processes, sharing)
    return memory.rss / MIB, memory.used / MIB, None if memory.pss is None else memory.pss / MIB, memory.missing


def test_nothing_holds_nothing() -> None:
    assert of([], Known()) == (0, 0, None, 0)
    assert of([process(1, 0, 0)], Known()) == (0, 0, None, 0)


def test_a_single_process_has_its_rss() -> None:
    assert of([process(1, 100, 60)], Known()) == (100, 100, None, 0)


def test_a_zombie_beside_it_changes_nothing() -> None:
    assert of([process(1, 100, 60), process(2, 0, 0)], Known()) == (100, 100, None, 0)


def test_pages_of_several_count_by_their_share() -> None:
    sharing = Known(p1=(50, 90, 10), p2=(50, 90, 10))
    assert of([process(1, 90, 10), process(2, 90, 10)], sharing) == (180, 100, 100, 0)


def test_what_grew_since_is_added_where_it_is_a_processes_own() -> None:
    sharing = Known(p1=(50, 90, 10), p2=(50, 90, 10))
    assert of([process(1, 190, 110), process(2, 190, 10)], sharing) == (380, 200, 100, 0)
    assert of([process(1, 190, 5), process(2, 90, 10)], sharing)[1] == 190, "never below the largest one"


@pytest.mark.parametrize(
    ("rss", "anon", "used"), [(90, 10, 50), (90, 30, 70), (60, 200, 60), (90, 0, 40)], ids=lambda v: str(v)
)
def test_an_estimate_stays_between_nothing_and_rss(rss: int, anon: int, used: int) -> None:
    assert used_since(process(1, rss, anon), Rollup(50 * MIB, 90 * MIB, 10 * MIB)) == used * MIB


def test_a_process_that_is_not_known_yet_counts_with_its_own_memory() -> None:
    sharing = Known(p1=(40, 90, 10))
    assert of([process(1, 90, 10), process(2, 50, 30)], sharing) == (140, 90, None, 1)
    assert of([process(1, 90, 10), process(2, 80, 70)], sharing) == (170, 110, None, 1)


def test_forks_share_their_parents_pages_until_they_exec() -> None:
    forks = [process(1, 500, 500, stack=7), process(2, 500, 500, stack=7), process(3, 510, 510, stack=7)]
    assert of(forks, Known())[1] == 510
    assert of([*forks, process(4, 100, 100, stack=8)], Known())[1] == 610
    unknown = [process(1, 500, 500), process(2, 500, 500)]  # without ptrace access the stack is 0
    assert of(unknown, Known())[1] == 1000


def test_a_fork_of_one_that_is_known_adds_what_it_has_beyond_it() -> None:
    sharing = Known(p1=(300, 500, 300))
    assert of([process(1, 500, 300, stack=7), process(2, 350, 340, stack=7)], sharing)[1] == 500
    assert of([process(1, 350, 300, stack=7), process(2, 380, 370, stack=7)], sharing)[1] == 380


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Two processes that share 80 of their 90 MiB."""
    made = FakeProc(tmp_path)
    for pid in (1, 2):
        made.put(pid, rss=90, anon=10, pss=50)
    return made


def read(proc: FakeProc, *pids: int) -> list[Process]:
    processes = [Process(pid) for pid in pids]
    assert all(p.read(proc.fs) for p in processes)
    return processes


def until(condition: object, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.005)
    return bool(condition())  # type: ignore[operator]


def test_pss_is_read_by_a_thread_of_its_own(proc: FakeProc) -> None:
    sharing = Sharing(proc.fs)
    members = read(proc, 1, 2)
    sharing.want(members)
    try:
        assert until(lambda: Memory(members, sharing).missing == 0)
        assert Memory(members, sharing).used == 100 * MIB
        assert sharing.cpu_ns > 0
        proc.put(1, rss=190, anon=110, pss=150)
        members = read(proc, 1, 2)
        sharing.want(members)
        assert until(lambda: Memory(members, sharing).pss == 200 * MIB), "more than it was: it is read again"
    finally:
        sharing.stop()
    assert sharing._thread is not None
    assert not sharing._thread.is_alive()


def test_a_sweep_in_which_memory_moved_does_not_count(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = Sharing(proc.fs)
    sharing._wanted = {(1, 100): 90 * MIB, (2, 100): 90 * MIB}
    pss = proc.fs.pss

    def moving(pid: int) -> Rollup | None:
        proc.put(1, rss=proc.known[1].rss + 10)
        return pss(pid)

    monkeypatch.setattr(proc.fs, "pss", moving)
    sharing._take()
    assert sharing._sweep == {}
    monkeypatch.undo()
    sharing._take()
    assert set(sharing._sweep) == {(1, 100), (2, 100)}


def test_a_reading_is_of_one_process_and_not_of_its_pid(proc: FakeProc) -> None:
    sharing = Sharing(proc.fs)
    sharing._wanted = {(1, 100): 90 * MIB}
    sharing._take()
    (member,) = read(proc, 1)
    assert sharing.known(member) is not None
    proc.put(1, start=101)
    (another,) = read(proc, 1)
    assert sharing.known(another) is None


def test_it_is_read_again_when_it_is_old_or_memory_changed_or_somebody_came(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing = Sharing(proc.fs)
    assert not sharing._due()
    sharing._wanted = {(1, 100): 90 * MIB, (2, 100): 90 * MIB}
    assert sharing._due()
    sharing._take()
    assert not sharing._due()
    sharing._wanted = {(1, 100): 95 * MIB, (2, 100): 90 * MIB}
    assert not sharing._due(), "5 of 180 is little"
    sharing._wanted = {(1, 100): 120 * MIB, (2, 100): 90 * MIB}
    assert sharing._due()
    sharing._wanted = {(1, 100): 90 * MIB, (3, 100): 90 * MIB}
    assert sharing._due()
    sharing._wanted = {(1, 100): 90 * MIB}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2.5)
    sharing._wanted = {(1, 100): 90 * MIB, (2, 100): 90 * MIB}
    assert sharing._due()


def test_reading_keeps_its_budget(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of 60 ms each: two from the credit, then half a percent of a core."""
    sharing = Sharing(proc.fs)
    taken: list[float] = []

    def slow() -> None:
        taken.append(time.monotonic())
        end = time.thread_time() + 0.06
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(sharing, "_take", slow)
    sharing.want(read(proc, 1, 2))
    time.sleep(1.0)
    sharing.stop()
    assert len(taken) == 2


def test_the_budget_grows_again(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing_module, "BUDGET", 0.5)
    sharing = Sharing(proc.fs)
    taken: list[int] = []

    def slow() -> None:
        taken.append(1)
        end = time.thread_time() + 0.12
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(sharing, "_take", slow)
    sharing.want(read(proc, 1, 2))
    assert until(lambda: len(taken) >= 3)
    sharing.stop()


def test_a_thread_that_has_nothing_to_read_waits(proc: FakeProc) -> None:
    sharing = Sharing(proc.fs)
    members = read(proc, 1, 2)
    sharing.want(members)
    assert until(lambda: Memory(members, sharing).missing == 0)
    assert sharing._thread is not None
    assert sharing._thread.ident is not None
    clock = time.pthread_getcpuclockid(sharing._thread.ident)
    sharing._wake.set()
    before = time.clock_gettime(clock)
    time.sleep(0.3)
    assert time.clock_gettime(clock) - before < 0.05
    sharing.stop()
    ended = sharing._thread
    sharing.want(members)
    assert sharing._thread is ended, "one that was stopped stays so"
