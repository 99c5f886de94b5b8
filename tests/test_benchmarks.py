"""The benchmarks run and print their rows; what they find is not a matter of tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks.measuring import TINY, NotPossible, Row, interval_of, row
from jumper.monitor.backends import native_built

ROWS = {
    "tick": [
        "back to back: bare C loop",
        "back to back: psutil",
        "20 Hz: bare C loop",
        "1 of them running",
        "1024 descriptors",
    ],
    "peer": ["thread", "native_c"],
    "schedule": ["longest gap", "99 % late"],
    "cost": ["that sleep", "PSS", "that all run"],
    "slowdown": ["CPU-bound", "allocation-bound"],
    "agent": ["native engine, CPU time", "python engine, resident"],
    "run": ["wall time", "CPU time"],
    "dask": ["peaks on", "peaks off"],
    "dask-scheduler": ["a note", "workers push", "memory grows"],
    "dask-tasks": ["wall time", "CPU of the worker", "CPU of scheduler"],
    "snakemake": ["CPU a job", "add to a start", "reported, wall time", "reported, memory peak"],
    "advice": ["advice"],
    "report": ["built", "size"],
    "merge": ["merged", "resident", "open_run"],
}


#: those that start many interpreters or a browser even for a tiny round
LONG = ("snakemake", "dask-tasks", "dask-scheduler", "report")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in command.BENCHMARKS]
)
def test_each_runs_and_gives_its_rows(name: str) -> None:
    if not native_built():
        pytest.skip("the native engine is not built")
    found = command.measure([name], TINY, Console(quiet=True))
    for part in ROWS[name]:
        assert [r for r in found if part in r.figure], f"no row {part!r} in {[r.figure for r in found]}"
    assert all(r.ours or "not measured" in r.ratio for r in found)


def test_what_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(size: object) -> list[Row]:
        raise NotPossible("no such thing here")

    monkeypatch.setitem(command.BENCHMARKS, "run", nothing)
    (only,) = command.measure(["run"], TINY, Console(quiet=True))
    assert only.ratio == "not measured: no such thing here" and only.reached is None


def test_a_ratio_is_of_pairs_and_knows_its_limit() -> None:
    cheaper = row("x", [1, 2, 4], [30, 30, 100], " us", least=20)
    assert cheaper.ratio == "25.00 (20.00 to 27.50)" and cheaper.reached
    dearer = row("x", [13, 26, 39], [10, 20, 30], " us", most=1.2)
    assert dearer.ratio == "1.30 (1.30 to 1.30)" and dearer.reached is False


def test_the_interval_of_a_median_holds_it_and_is_narrower_than_the_values() -> None:
    values = [1 + i / 1000 for i in range(101)]
    middle, low, high = interval_of(values)
    assert min(values) < low < middle == 1.05 < high < max(values)


def test_the_table_replaces_the_one_that_a_document_has(tmp_path: Path) -> None:
    document = tmp_path / "b.md"
    document.write_text("before\n<!-- from benchmarks -->\nold\n<!-- end -->\nafter\n")
    command.write(document, command.markdown([Row("a|b", "1", "2", "0.5", "at most 1", True)], "here"))
    text = document.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("<!-- end -->\nafter\n")
    assert r"| a\|b | 1 | 2 | 0.5 | at most 1 | yes |" in text
    with pytest.raises(ValueError, match="no marks"):
        command.write(Path(__file__), "")


def test_a_benchmark_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "no benchmark 'nothing'; there are tick, peer" in capsys.readouterr().err
