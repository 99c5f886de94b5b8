"""The clock of a shared directory's server: asked right, and only where a server sets the times."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jumper
from jumper.monitor import serverclock
from jumper.monitor.filesystems import filesystem_of
from jumper.monitor.serverclock import clock_record, exchange
from tests.clibrary import COMPILER, NEEDS

SHIM = Path(__file__).parent / "cluster/netns/clockshim.c"


def test_the_offset_is_that_of_who_sets_the_times_within_its_bound(tmp_path: Path) -> None:
    """Here that is this kernel, whose own clock is the truth."""
    before = time.time_ns() - time.monotonic_ns()
    found = exchange(tmp_path)
    after = time.time_ns() - time.monotonic_ns()
    truth = (before + after) // 2
    assert abs(found["offset_ns"] - truth) <= found["error_ns"] + abs(after - before)
    assert found["error_ns"] >= 5_000_000
    assert abs(found["mono_ns"] - time.monotonic_ns()) < 10**10
    assert os.listdir(tmp_path) == []


def test_a_server_that_keeps_whole_seconds_is_known_to_a_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    class Whole:
        def __init__(self, place: str) -> None:
            self.st_mtime_ns = real(place).st_mtime_ns // 10**9 * 10**9

    monkeypatch.setattr("jumper.monitor.serverclock.os.stat", Whole)
    found = exchange(tmp_path)
    monkeypatch.undo()
    assert abs(found["offset_ns"] - (time.time_ns() - time.monotonic_ns())) <= found["error_ns"] + 1_000_000
    assert 500_000_000 <= found["error_ns"] < 600_000_000


def test_only_a_server_that_sets_the_times_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock_record(tmp_path) is None
    monkeypatch.setattr(serverclock, "STAMPED", {filesystem_of(tmp_path)})
    assert clock_record(tmp_path) is not None
    assert clock_record(tmp_path / "none") is None, "nothing can be made there"


@NEEDS[0]
@NEEDS[1]
def test_ranks_of_one_run_are_placed_by_the_server_though_a_node_s_clock_is_wrong(tmp_path: Path) -> None:
    """Of two nodes by name one has a wall clock that is an hour ahead; the server is this kernel."""
    library, clock, run = tmp_path / "clock.so", tmp_path / "clock", tmp_path / "run"
    subprocess.run([str(COMPILER), "-O2", "-shared", "-fPIC", "-o", library, SHIM, "-ldl", "-lm"], check=True)
    clock.write_bytes(struct.pack("3d", 3600, 0, 0))
    stamped = f"from jumper.monitor import serverclock; serverclock.STAMPED = {{{filesystem_of(tmp_path)!r}}}"
    (tmp_path / "sitecustomize.py").write_text(stamped)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    lies = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(clock)}
    ranks = [("n1", "0", "0", {}), ("n2", "1", "0", lies), ("n2", "2", "1", lies)]
    command = ["sh", "-c", ': > "$0.began"; date +%s > "$0.said"; sleep 0.2; : > "$0.ended"']
    before = time.time_ns()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "jumper", "run", "-o", run, "--", *command, tmp_path / rank],
            env={**os.environ, **more, "PYTHONPATH": path.rstrip(os.pathsep), "SLURMD_NODENAME": node,
                 "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NTASKS": "3"},
        ) for node, rank, local, more in ranks
    ]  # fmt: skip
    assert [child.wait(60) for child in started] == [0, 0, 0]
    after = time.time_ns()
    made = jumper.open_run(run)
    tasks = made.tasks.set_index(made.tasks["attempt_id"].str[0])
    assert abs(int((tmp_path / "1.said").read_text()) - 3600 - (tmp_path / "1.said").stat().st_mtime) < 60
    errors = [state["error_ns"] for state in made.info["clocks"].values()]
    assert len(errors) == 3
    assert max(errors) < 10**9
    for node, rank, *_ in ranks:
        began, ended = ((tmp_path / f"{rank}.{name}").stat().st_mtime_ns for name in ("began", "ended"))
        close = max(errors) + 20_000_000  # a file's time is late by a tick of the kernel
        assert tasks.loc[rank, "node"] == node
        assert before - close <= tasks.loc[rank, "start_ns"] <= began + close
        assert ended - close <= tasks.loc[rank, "stop_ns"] <= after + close
