"""The clock of a shared directory's server: asked right, and only where a server sets the times."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jumper.monitor import serverclock
from jumper.monitor.filesystems import filesystem_of
from jumper.monitor.serverclock import clock_record, exchange


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
