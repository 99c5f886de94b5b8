"""One tick over a tree: against a bare C loop that reads the same files, and against psutil doing the same work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import psutil

from benchmarks.measuring import NotPossible, Row, Size, row
from benchmarks.watched import KEPT_OF_USUAL, USUAL_LIMIT, Engine, Floor, Tree, engine, floor, tree

HOT, COLD_S, NEVER_S = "back to back", 0.05, 3600.0
#: part of the processes that run, where most are idle
FEW = 0.1


def ticks(size: Size) -> Iterator[Row]:
    """Yield the rows of jumper against the floor and against psutil."""
    for count in size.trees:
        yield from _hot(size, count)
        yield from _cold(size, count)
        yield _idle(size, count)
    yield _usual_limit(size, max(size.trees))


def _hot(size: Size, count: int) -> Iterator[Row]:
    with tree(count) as watched, floor(watched.pid) as bare, engine(watched.pid, NEVER_S) as ours:
        settle()
        engines, floors = zip(
            *((ours.hot(size.passes), bare.hot(size.passes)) for _ in range(size.rounds)), strict=True
        )
        yield row(f"tick, {count} processes, {HOT}: bare C loop", engines, floors, " us", most=1.2)
        rounds = [
            (ours.hot(size.passes), bare.hot(size.passes), ours.hot(size.passes, False), psutil_pass(watched))
            for _ in range(size.rounds)
        ]
        engines, floors, stills, theirs = zip(*rounds, strict=True)
        name = f"tick, {count} processes, {HOT}"
        yield row(f"{name}: psutil", engines, theirs, " us", least=25)
        yield row(f"{name}, where they sleep: psutil", stills, theirs, " us", least=25)
        beside = row("", floors, theirs, " us", least=25)
        yield Row(
            f"the bare C loop in our place, {count} processes: psutil", beside.ours, beside.against, beside.ratio, ""
        )


def _cold(size: Size, count: int) -> Iterator[Row]:
    with tree(count, count) as watched, floor(watched.pid) as bare, engine(watched.pid, COLD_S) as ours:
        settle()
        engines, floors = at_20_hz(size, ours, bare)
        yield row(f"tick, {count} processes, 20 Hz: bare C loop", engines, floors, " us", most=1.2)
        engines, theirs = [], []
        for _ in range(size.rounds):
            engines.append(ours.scheduled(size.round_s))
            theirs.append(psutil_scheduled(watched, size.round_s))
        yield row(f"tick, {count} processes, 20 Hz: psutil", engines, theirs, " us", least=12)


def _idle(size: Size, count: int) -> Row:
    active = max(1, round(count * FEW))
    with tree(count, active) as watched, floor(watched.pid) as bare, engine(watched.pid, COLD_S) as ours:
        settle()
        engines, floors = at_20_hz(size, ours, bare)
    return row(f"tick, {count} processes, {active} of them running, 20 Hz: bare C loop", engines, floors, " us", most=1)


def _usual_limit(size: Size, count: int) -> Row:
    with (
        tree(count) as watched,
        floor(watched.pid, KEPT_OF_USUAL) as bare,
        engine(watched.pid, NEVER_S, USUAL_LIMIT) as ours,
    ):
        settle()
        engines, floors = zip(
            *((ours.hot(size.passes), bare.hot(size.passes)) for _ in range(size.rounds)), strict=True
        )
    name = f"tick, {count} processes, {HOT}, at most {USUAL_LIMIT} descriptors: C loop, open and read past them"
    return row(name, engines, floors, " us", most=1.2)


def settle() -> None:
    """Let new processes become old: young ones are looked at more often."""
    time.sleep(0.5)


def at_20_hz(size: Size, ours: Engine, bare: Floor) -> tuple[list[float], list[float]]:
    """Return CPU us a tick of both, in turn."""
    engines, floors = [], []
    for _ in range(size.rounds):
        engines.append(ours.scheduled(size.round_s))
        floors.append(statistics.fmean(cpu for _, _, cpu in bare.scheduled(COLD_S, size.round_s)) / 1e3)
    return engines, floors


def psutil_pass(watched: Tree) -> float:
    """Return CPU us of psutil for the tree, CPU, memory and I/O of a tree."""
    began = time.thread_time_ns()
    root = psutil.Process(watched.pid)
    for process in (root, *root.children(recursive=True)):
        try:
            process.cpu_times()
            process.memory_info()
            process.io_counters()
        except psutil.Error as error:
            raise NotPossible(f"psutil: {error}") from error
    return (time.thread_time_ns() - began) / 1e3


def psutil_scheduled(watched: Tree, seconds: float) -> float:
    """Return its CPU us a pass at 20 Hz, or as often as it can."""
    found = []
    due = time.monotonic()
    end = due + seconds
    while due < end:
        found.append(psutil_pass(watched))
        due = max(due + COLD_S, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    return statistics.fmean(found)
