"""Processes, their tree and their ledger on a /proc whose every number is known."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from jumper.monitor.metrics.process.ledger import PATIENCE, Ledger
from jumper.monitor.metrics.process.source import OwnerSource, TreeSource
from jumper.monitor.metrics.process.tree import Tree
from tests.fakeproc import MIB, SECOND, FakeProc


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A /proc with process 10 and nothing else."""
    made = FakeProc(tmp_path)
    made.put(10)
    return made


def source(proc: FakeProc, **more: object) -> TreeSource:
    return TreeSource(10, proc.fs, **more)  # type: ignore[arg-type]


def cpu_s(counters: dict[str, int | None]) -> float:
    value = counters["cpu_ns"]
    assert value is not None
    return value / 1e9


def rescan(watched: TreeSource) -> None:
    """Let the next look be a full scan, as it is every ten seconds."""
    watched.tree._next_scan = 0.0


def test_the_tree_is_summed(proc: FakeProc) -> None:
    proc.put(10, user=SECOND, system=2 * SECOND, dead_user=4 * SECOND, dead_system=8 * SECOND, threads=3, chars=5)
    proc.put(11, ppid=10, user=16 * SECOND, written=7, swap=2)
    proc.put(12, ppid=11, system=32 * SECOND)
    proc.put(13, ppid=1, user=64 * SECOND)
    counters = source(proc).update()
    assert cpu_s(counters) == 63.0
    assert (counters["cpu_user_ns"], counters["cpu_system_ns"]) == (21 * 10**9, 42 * 10**9)
    assert (counters["processes"], counters["threads"], counters["swap_bytes"]) == (3, 5, 2 * MIB)
    assert (counters["read_chars"], counters["write_chars"]) == (5, 7)
    assert (counters["read_bytes"], counters["write_bytes"]) == (5, 7)


def test_a_child_that_its_parent_collected_is_not_counted_twice(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=3 * SECOND, written=100)
    watched = source(proc)
    assert cpu_s(watched.update()) == 3.0
    proc.drop(11)
    proc.put(10, dead_user=3 * SECOND, written=100)
    counters = watched.update()
    assert (cpu_s(counters), counters["write_chars"], counters["lost_cpu_ns"]) == (3.0, 100, 0)


def test_what_a_child_used_after_it_was_last_read_comes_with_the_wait(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=3 * SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    proc.put(10, dead_user=5 * SECOND)
    assert cpu_s(watched.update()) == 5.0


def test_a_child_that_dies_between_the_reads_of_parent_and_child_is_late_and_never_twice(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=3 * SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)  # the parent was read just before: its ledger has nothing yet
    assert cpu_s(watched.update()) == 3.0
    proc.put(10, dead_user=4 * SECOND)
    assert cpu_s(watched.update()) == 4.0


def test_parents_are_read_before_their_children(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the child has the lower pid, and was found before."""
    proc.put(5, ppid=11)
    proc.put(11, ppid=10)
    watched = source(proc)
    watched.update()
    order: list[int] = []
    stat = proc.fs.stat
    monkeypatch.setattr(proc.fs, "stat", lambda pid: order.append(pid) or stat(pid))
    watched.tree.read()
    assert order == [10, 11, 5]


def test_a_whole_branch_that_is_gone_comes_with_the_grandparents_wait(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=SECOND)
    proc.put(12, ppid=11, user=2 * SECOND, start=101)
    watched = source(proc)
    assert cpu_s(watched.update()) == 3.0
    proc.drop(12)
    proc.drop(11)
    assert cpu_s(watched.update()) == 3.0
    proc.put(10, dead_user=3 * SECOND)
    for _ in range(PATIENCE + 1):
        counters = watched.update()
        assert (cpu_s(counters), counters["lost_cpu_ns"]) == (3.0, 0)


@pytest.mark.parametrize("maker_is_left", [True, False])
def test_who_lost_its_parent_unseen_is_known_by_the_session_that_a_member_made(
    proc: FakeProc, maker_is_left: bool
) -> None:
    proc.put(11, ppid=10, session=11, user=SECOND)
    watched = source(proc)
    if not maker_is_left:
        watched.update()
        proc.drop(11)
        watched.update()
    proc.put(12, ppid=1, session=11, user=2 * SECOND)
    proc.put(13, ppid=1, session=10, user=4 * SECOND)  # the root's own session has others in it
    rescan(watched)
    assert cpu_s(watched.update()) == 3.0


def test_a_session_is_over_when_another_process_has_its_number(proc: FakeProc) -> None:
    proc.put(11, ppid=10, session=11, user=SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    watched.update()
    proc.put(11, ppid=1, session=11, start=500, user=2 * SECOND)
    proc.put(12, ppid=1, session=11, start=501, user=4 * SECOND)
    rescan(watched)
    assert cpu_s(watched.update()) == 1.0


def test_an_orphan_is_kept_when_it_is_gone(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=SECOND)
    proc.put(12, ppid=11, user=2 * SECOND, start=101)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    proc.put(12, ppid=1, user=4 * SECOND)
    proc.put(10, dead_user=SECOND)
    assert cpu_s(watched.update()) == 5.0
    proc.drop(12)
    counters = watched.update()
    assert (cpu_s(counters), counters["lost_cpu_ns"]) == (5.0, 0)


def test_a_parent_that_ignores_sigchld_gives_a_lower_bound_that_is_told(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=2 * SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    lost = []
    for _ in range(PATIENCE + 1):
        counters = watched.update()
        assert cpu_s(counters) == 2.0
        lost.append(counters["lost_cpu_ns"])
    assert lost == [0] * (PATIENCE - 1) + [2 * 10**9] * 2


def test_what_a_wait_lacks_through_rounding_is_not_lost_cpu(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    proc.put(10, dead_user=SECOND - 2)  # shown in whole ticks
    for _ in range(PATIENCE + 1):
        counters = watched.update()
    assert counters["lost_cpu_ns"] == 0


def test_one_child_collected_does_not_hide_that_another_was_not(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=2 * SECOND)
    proc.put(12, ppid=10, user=3 * SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    proc.drop(12)
    proc.put(10, dead_user=3 * SECOND)
    for _ in range(PATIENCE + 1):
        counters = watched.update()
    assert (cpu_s(counters), counters["lost_cpu_ns"]) == (5.0, 2 * 10**9)


def test_a_pid_that_is_anothers_now_is_another_process(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=2 * SECOND, start=150)
    watched = source(proc)
    watched.update()
    proc.put(11, ppid=1, user=900 * SECOND, start=151)
    proc.put(10, dead_user=2 * SECOND)
    counters = watched.update()
    assert (cpu_s(counters), counters["processes"]) == (2.0, 1)
    proc.put(11, ppid=10, user=5 * SECOND, start=152)
    rescan(watched)
    counters = watched.update()
    assert (cpu_s(counters), counters["processes"]) == (7.0, 2)
    assert watched.tree.seen == 3


def test_a_total_never_goes_back(proc: FakeProc) -> None:
    proc.put(10, user=5 * SECOND, chars=100)
    watched = source(proc)
    watched.update()
    proc.put(10, user=4 * SECOND, chars=50)
    counters = watched.update()
    assert (cpu_s(counters), counters["read_chars"]) == (5.0, 100)


def read_young(watched: TreeSource, *pids: int) -> None:
    """Read these between two ticks, as if they were young."""
    watched._young = [(0.0, 1.0, pid) for pid in pids]
    watched._read_young()


def test_a_child_that_was_buried_between_ticks_before_its_parent_is_not_lost(proc: FakeProc) -> None:
    proc.put(11, ppid=10, start=101, user=SECOND)
    proc.put(12, ppid=11, start=102, user=2 * SECOND)
    watched = source(proc)
    watched.update()
    proc.put(12, user=3 * SECOND)
    read_young(watched, 12)
    proc.drop(12)
    read_young(watched, 12)
    proc.drop(11)
    proc.drop(10)  # nobody is left to collect them
    assert cpu_s(watched.update()) == 4.0


def test_a_child_that_its_parent_collected_between_ticks_is_not_counted_twice(proc: FakeProc) -> None:
    proc.put(11, ppid=10, start=101)
    proc.put(12, ppid=11, start=102, user=2 * SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(12)
    proc.put(11, dead_user=2 * SECOND)
    read_young(watched, 11)  # its ledger has the child, whose death is not noticed yet
    proc.drop(11)
    proc.put(10, dead_user=2 * SECOND)
    for _ in range(PATIENCE + 1):
        counters = watched.update()
        assert (cpu_s(counters), counters["lost_cpu_ns"]) == (2.0, 0)


def test_a_child_that_its_new_parent_collected_before_the_first_row_is_not_counted_twice(proc: FakeProc) -> None:
    watched = source(proc)
    watched.update()
    proc.put(11, ppid=10, start=101)
    proc.put(12, ppid=11, start=102, user=2 * SECOND)
    rescan(watched)
    watched.tree.look()
    proc.drop(12)
    proc.put(11, dead_user=2 * SECOND)
    for _ in range(PATIENCE + 1):
        counters = watched.update()
        assert (cpu_s(counters), counters["lost_cpu_ns"]) == (2.0, 0)
    watched.close()


def test_what_a_parent_had_collected_before_it_was_watched_stands_for_nobody(proc: FakeProc) -> None:
    proc.put(10, dead_user=9 * SECOND)
    proc.put(11, ppid=10, user=2 * SECOND)
    watched = source(proc)
    watched.tree.look()
    read_young(watched, 11)
    proc.drop(11)
    assert cpu_s(watched.update()) == 11.0
    proc.put(10, dead_user=11 * SECOND)
    assert cpu_s(watched.update()) == 11.0
    watched.close()


def test_a_zombie_has_no_memory_and_keeps_its_counters(proc: FakeProc) -> None:
    proc.put(10, user=SECOND, chars=100, rss=9)
    watched = source(proc)
    watched.update()
    proc.put(10, state="Z", user=2 * SECOND, io=False, chars=0)
    (proc.root / "10" / "io").unlink()
    counters = watched.update()
    assert (cpu_s(counters), counters["read_chars"], counters["rss_bytes"]) == (2.0, 100, 0)


def test_io_that_may_not_be_read_is_null(proc: FakeProc) -> None:
    (proc.root / "10" / "io").unlink()
    counters = source(proc).update()
    assert [counters[name] for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")] == [None] * 4


def test_the_kept_io_of_a_zombie_is_read_through_its_descriptor(proc: FakeProc) -> None:
    watched = source(proc)
    watched.keep_io(os.open(proc.root / "10" / "io", os.O_RDONLY))
    proc.put(10, state="Z", written=77)
    assert watched.update()["write_chars"] == 77


def test_the_monitors_own_cpu_is_left_out_of_its_host(proc: FakeProc) -> None:
    proc.put(10, user=5 * SECOND)
    assert cpu_s(source(proc, own_cpu_ns=lambda: 2 * 10**9).update()) == 3.0


def test_peaks_are_of_the_time_since_the_last_row(proc: FakeProc) -> None:
    proc.put(10, rss=100, hwm=100, anon=100)
    watched = source(proc)
    watched.update()
    proc.put(10, rss=300, hwm=300, anon=300)
    read_young(watched, 10)
    watched._measure()
    proc.put(10, rss=50, anon=50)
    counters = watched.update()
    assert (counters["rss_bytes"], counters["rss_peak_bytes"]) == (50 * MIB, 300 * MIB)
    assert (counters["memory_peak_bytes"], counters["hwm_bytes"]) == (300 * MIB, 300 * MIB)
    counters = watched.update()
    assert (counters["rss_peak_bytes"], counters["memory_peak_bytes"]) == (50 * MIB, 50 * MIB)


def test_a_high_water_mark_between_two_looks_comes_on_top_of_the_others(proc: FakeProc) -> None:
    proc.put(10, rss=100, hwm=100, anon=100)
    proc.put(11, ppid=10, rss=20, hwm=20, anon=20)
    watched = source(proc)
    watched.update()
    proc.put(11, hwm=520)
    counters = watched.update()
    assert counters["memory_peak_bytes"] == 620 * MIB
    assert (counters["hwm_max_bytes"], counters["hwm_bytes"]) == (520 * MIB, 620 * MIB)
    assert watched.update()["memory_peak_bytes"] == 120 * MIB, "told once"
    watched.close()


def test_a_high_water_mark_outlives_its_process_for_one_row(proc: FakeProc) -> None:
    proc.put(11, ppid=10, hwm=500)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    assert watched.update()["hwm_max_bytes"] == 500 * MIB
    assert watched.update()["hwm_max_bytes"] == MIB
    watched.close()


def test_faults_of_children_that_were_never_seen_are_told(proc: FakeProc) -> None:
    proc.put(10, cminflt=1000)
    proc.put(11, ppid=10, minflt=300)
    watched = source(proc)
    assert watched.update()["unseen_faults"] == 1000
    proc.drop(11)
    proc.put(10, cminflt=1300)
    assert watched.update()["unseen_faults"] == 1000, "the child that was seen is none of them"
    watched.close()


# --- the tree ---------------------------------------------------------------------------------


def test_a_process_once_seen_stays_when_its_parent_is_gone(proc: FakeProc) -> None:
    proc.put(11, ppid=10)
    proc.put(12, ppid=11)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    proc.put(12, ppid=1, rss=7)
    watched.update()
    assert watched.pids == {10, 12}
    watched.close()


def test_who_is_left_out_is_left_out_with_its_children(proc: FakeProc) -> None:
    proc.put(11, ppid=10)
    proc.put(12, ppid=11)
    tree = Tree(proc.fs, 10, exclude=[11])
    tree.look()
    assert set(tree.members) == {10}


def test_the_children_of_an_adopter_belong_and_the_adopter_does_not(proc: FakeProc) -> None:
    proc.put(9)
    proc.put(10, ppid=9)
    proc.put(14, ppid=9)
    proc.put(15, ppid=14)
    tree = Tree(proc.fs, 10, parents=[9], exclude=[9])
    tree.look()
    assert set(tree.members) == {10, 14, 15}


def test_processes_are_known_by_their_tag(proc: FakeProc) -> None:
    proc.put(11, environ="A=1\0TAG=1\0B=2\0")
    proc.put(12, environ="TAG=12\0")
    proc.put(13, environ="XTAG=1\0")
    proc.put(14, ppid=11)
    tree = Tree(proc.fs, 10, tag="TAG=1")
    tree.look()
    assert set(tree.members) == {10, 11, 14}


def cheap(proc: FakeProc, tree: Tree, last: int) -> None:
    (proc.root / "loadavg").write_text(f"0 0 0 1/2 {last}\n")
    tree._cheap = True


def test_the_last_pid_tells_whether_anything_forked(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(proc.fs, 10)
    cheap(proc, tree, 20)
    tree.look()
    proc.put(21, ppid=10)
    proc.put(22, ppid=21)
    proc.put(24, ppid=21, tgid=21)  # a thread answers to its own number too
    proc.put(25, ppid=1)
    cheap(proc, tree, 25)
    monkeypatch.setattr(proc.fs, "pids", lambda: pytest.fail("a full scan"))
    assert [p.pid for p in tree.look()] == [21, 22]
    assert tree.look() == []


def test_a_pid_that_is_counted_before_it_is_visible_is_looked_at_again(proc: FakeProc) -> None:
    tree = Tree(proc.fs, 10)
    cheap(proc, tree, 20)
    tree.look()
    cheap(proc, tree, 22)
    proc.put(22, ppid=21)  # its parent is not visible yet
    assert tree.look() == []
    proc.put(21, ppid=10)
    assert [p.pid for p in tree.look()] == [21, 22]


@pytest.mark.parametrize("last", [5, 20_000])
def test_pids_that_begin_anew_or_are_too_many_are_scanned(proc: FakeProc, last: int) -> None:
    tree = Tree(proc.fs, 10)
    cheap(proc, tree, 20)
    tree.look()
    cheap(proc, tree, last)
    proc.put(5, ppid=10)
    assert [p.pid for p in tree.look()] == [5]


# --- all processes of somebody ------------------------------------------------------------------


def test_an_owners_processes_are_summed_and_its_dead_kept(proc: FakeProc) -> None:
    proc.put(11, ppid=10, start=101, user=SECOND, rss=3)
    proc.put(12, ppid=1, start=50, user=100 * SECOND)
    watched = OwnerSource(proc.fs, lambda pid: pid != 12)
    counters = watched.update()
    assert (cpu_s(counters), counters["processes"], counters["rss_bytes"]) == (1.0, 2, 4 * MIB)
    proc.drop(11)
    proc.put(10, dead_user=SECOND)
    assert cpu_s(watched.update()) == 1.0
    proc.put(12, start=200)  # a stranger's number, now one of ours
    watched.accepts = lambda pid: True
    assert watched.update()["processes"] == 2


def test_a_ledger_of_nothing_is_zero() -> None:
    assert set(Ledger().settle({}, [])) == {0}


def test_the_dead_children_of_the_reader_itself_are_known_to_the_microsecond() -> None:
    """Not in whole clock ticks: 20 children of some 3 ms each."""
    watched = TreeSource(os.getpid())
    first, truth = watched.update(), time.process_time_ns() + children_ns()
    for _ in range(20):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    second, now = watched.update(), time.process_time_ns() + children_ns()
    assert (second["cpu_ns"] or 0) - (first["cpu_ns"] or 0) == pytest.approx(now - truth, abs=8_000_000)
    assert watched.ledger.carry[0] + watched.tree.members[os.getpid()].dead[0] == pytest.approx(children_ns(), abs=1000)
    watched.close()


def children_ns() -> int:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def test_a_new_process_is_read_soon_and_then_less_and_less_often(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watched = source(proc, longest_s=0.1)
    watched.tree._cheap = True
    (proc.root / "loadavg").write_text("0 0 0 1/2 10\n")
    looks = []
    stat = proc.fs.stat
    monkeypatch.setattr(proc.fs, "stat", lambda pid: looks.append(round(clock[0] - 1000, 3)) or stat(pid))
    watched.poll()
    looks.clear()
    for _ in range(250):
        clock[0] += 0.001
        watched._read_young()
    assert looks == pytest.approx([0.005, 0.015, 0.035, 0.075, 0.155], abs=0.006)


def test_a_peak_between_two_ticks_is_measured_by_the_looks_between_them(proc: FakeProc) -> None:
    watched = source(proc)
    watched.update()
    watched._young = [(0.0, 1.0, 10)]
    proc.put(10, rss=300, anon=300)
    watched.poll()
    proc.put(10, rss=5, anon=5)
    assert watched.update()["rss_peak_bytes"] == 300 * MIB


def test_a_young_process_that_is_gone_before_its_look_is_no_trouble(proc: FakeProc) -> None:
    proc.put(11, ppid=10, user=SECOND)
    watched = source(proc)
    watched.update()
    proc.drop(11)
    watched.update()
    watched._young = [(0.0, 0.01, 11)]
    watched.poll()
    assert cpu_s(watched.update()) == 1.0
    watched.close()
