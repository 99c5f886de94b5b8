"""Levels that are switched while an engine samples: both engines alike, the node's lock, and nothing piled up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native extension is not built")

from jumper.monitor.backends.native._engine import Engine
from jumper.monitor.sampling import sampling
from jumper.store.segments import read_segment
from tests.native.test_engine import resident

#: takes the lock of a folder if it can
TAKER = "import sys; from jumper.monitor.nodelock import NodeLock; print(NodeLock(sys.argv[1]).held())"


def lock_is_free(folder: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", TAKER, str(folder)], capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.parametrize("engine", ["python", "native"])
def test_both_engines_switch_alike(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick after each switch has these levels, the segment says so, and who takes no `system` holds no lock."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    steps = (["process"], ["system", "process"], ["user", "slurm"], [], ["process", "user", "slurm", "system"])
    one: Any = sampling(engine, os.getpid(), 60.0, steps[0], spool=tmp_path, node_lock=True)
    one.start()
    assert lock_is_free(tmp_path)
    moments = []
    for levels in steps[1:]:
        moments.append(time.monotonic_ns())
        one.set_levels(levels)
        one.flush()
        assert lock_is_free(tmp_path) == ("system" not in levels)
    one.stop()
    segment = read_segment(one.ready["segment_path"])
    ends = [*moments, time.monotonic_ns()]
    for level in ("process", "user", "slurm", "system"):
        times = segment.table(level)["mono_ns"][0].tolist() if level in segment.streams else []
        counts = [sum(a < at < b for at in times) for a, b in zip([0, *moments], ends, strict=True)]
        last = 1 + (level in steps[-1])  # and the one at the stop
        assert counts == [int(level in levels) for levels in steps[:-1]] + [last], level
    said = [record["text"] for record in segment.records if record.get("kind") == "levels"]
    assert said == [f"from here on: {', '.join(levels) or 'no level'}" for levels in steps[1:]]


def test_levels_that_go_and_come_leave_nothing_behind_and_keep_the_schedule(tmp_path: Path) -> None:
    engine = Engine(0.01, in_target=True, node=True, node_lock=os.fsencode(tmp_path / "lock"))
    engine.start()
    engine.add_tree(os.getpid())
    engine.go()

    def switch(times: int) -> int:
        for number in range(times):
            owner = engine.add_owner(2, os.getuid())
            engine.node(number % 2 == 0)
            before, deadline = engine.statistics()["ticks"], time.monotonic() + 30
            while number % 20 == 0 and engine.statistics()["ticks"] == before:  # by itself: nobody asks for it
                assert time.monotonic() < deadline
                time.sleep(0.002)
            engine.remove(owner)
        return resident()

    switch(40)
    memory = switch(40)
    assert switch(160) - memory < 1 << 20
    engine.stop()
