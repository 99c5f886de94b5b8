"""Trees to watch, the bare C loop that they are measured against, and our engine with a segment of its own."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import NotPossible, compiled, program
from jumper.monitor.backends import native_built

#: how often an active process of a tree runs
ACTIVE_PERIOD_US = 20_000
#: descriptors of the floor where nothing limits it; of an engine under the usual soft limit
ALL_KEPT, USUAL_LIMIT, KEPT_OF_USUAL = 1 << 20, 1024, 960


class Tree:
    """A process with children; see spawn.c."""

    def __init__(self, pid: int) -> None:
        self.pid = pid


@contextmanager
def tree(count: int, active: int = 0, uid: int | None = None) -> Iterator[Tree]:
    """Have a tree of so many children, of which some run every 20 ms."""
    command = [compiled("spawn"), count, active, ACTIVE_PERIOD_US]
    with program([str(c) for c in command], uid) as (_, answers, pid):
        if answers.readline() != b"ready\n":
            raise NotPossible(f"{count} processes cannot be started")
        yield Tree(pid)


class Floor:
    """The bare C loop; see floor.c."""

    def __init__(self, ask: object) -> None:
        self._ask = ask

    def hot(self, passes: int) -> float:
        """Return CPU us a pass, back to back."""
        (answer,) = self._ask(f"hot {passes}")  # type: ignore[operator]
        return int(answer[0]) / passes / 1e3

    def scheduled(self, interval_s: float, seconds: float) -> list[tuple[int, int, int]]:
        """Return lateness, gap and CPU of each tick of a schedule, in ns."""
        answer = self._ask(f"at {round(interval_s * 1e9)} {round(seconds / interval_s)}")  # type: ignore[operator]
        return [(late, gap, cpu) for late, gap, cpu in answer]


@contextmanager
def floor(pid: int, kept: int = ALL_KEPT) -> Iterator[Floor]:
    """Have the bare C loop for a tree."""
    with program([compiled("floor"), str(pid), str(kept)]) as (to, answers, _):

        def answer() -> list[tuple[int, ...]]:
            lines = []
            while line := answers.readline().strip():
                lines.append(tuple(int(word) for word in line.split()))
            return lines

        def ask(command: str) -> list[tuple[int, ...]]:
            to.write(f"{command}\n".encode())
            to.flush()
            return answer()

        answer()
        yield Floor(ask)


class Engine:
    """Our engine, with the CPU time that it took."""

    def __init__(self, engine: object) -> None:
        self._engine = engine

    def cpu(self) -> tuple[int, int, int]:
        """Return CPU ns of the sampling thread, of the thread that reads PSS, and ticks."""
        now = self._engine.statistics()  # type: ignore[attr-defined]
        return now["cpu_ns"] - now["pss_cpu_ns"], now["pss_cpu_ns"], now["ticks"]

    def hot(self, passes: int, everything: bool = True) -> float:
        """Return CPU us a tick, back to back; ``everything``: one that also reads processes that did not run."""
        before = self.cpu()
        for _ in range(passes):
            self._engine.tick(everything)  # type: ignore[attr-defined]
        return (self.cpu()[0] - before[0]) / passes / 1e3

    def scheduled(self, seconds: float) -> float:
        """Return CPU us a tick of its own schedule."""
        before = self.cpu()
        time.sleep(seconds)
        now = self.cpu()
        return (now[0] - before[0]) / max(1, now[2] - before[2]) / 1e3


@contextmanager
def engine(pid: int, interval_s: float, soft_limit: int | None = None) -> Iterator[Engine]:
    """Have the native engine watch a tree and write a segment.

    Parameters
    ----------
    pid : int
    interval_s : float
        Of its schedule; where it is measured hot, a long one.
    soft_limit : int, optional
        Of descriptors while it starts; default: the hard one.
    """
    if not native_built():
        raise NotPossible("the native engine is not built; `jumper doctor` says why")
    from jumper.monitor.backends.native import Engine as Native

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory(prefix="jumper-bench-") as folder:
        segment = Path(folder, "bench.seg")
        native = Native(interval_s, schema=b"{}", segment=bytes(segment), in_target=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit or hard, hard))
        try:
            native.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            native.add_tree(pid)
            native.go()
            time.sleep(min(1.0, 2 * interval_s))  # young processes are looked at more often
            yield Engine(native)
        finally:
            native.stop()
