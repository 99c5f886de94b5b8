"""`jumper demo snakemake`: a real workflow whose run shows what the front end is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

import jumper
from jumper.cli import main
from jumper.schema.errors import RunError
from jumper_snakemake import demo


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("JUMPER_SNAKEMAKE", "JUMPER_SNAKEMAKE_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(jumper.__file__).parents[1]))
    return tmp_path


def test_the_demo_leaves_a_run_with_its_report(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SOURCES", 60)
    (elsewhere / "jumper-demo").mkdir()
    (elsewhere / "jumper-demo" / "mine").touch()
    assert main(["demo", "snakemake"]) == 0
    run = jumper.open_run("jumper-demo-2")
    tasks = run.tasks
    assert (run.path / "report.html").stat().st_size > 10_000
    assert tasks.groupby("group").size().to_dict() == {"compress": 6, "count": 6, "merge": 2, "total": 1}
    merge = tasks[tasks["group"] == "merge"].set_index("attempt_id")
    assert merge["state"].to_dict() == {"1.1.1": "failed", "2.1.1": "done"}
    assert merge.loc["2.1.1", "memory_peak_bytes"] > 120e6
    count = tasks[tasks["group"] == "count"]
    assert (count["memory_peak_bytes"] < count["memory_asked_bytes"] / 20).all()
    assert (tasks.loc[tasks["group"] == "compress", "cpu_s"] > 0).all()
    assert run.info["interval_s"] == 0.1  # its jobs are too short for the usual one to show a curve
    said = capsys.readouterr().out
    assert main(["advise", "jumper-demo-2", "--format", "snakemake-profile"]) == 0
    assert re.search(r'"count":\n(?: +#.*\n)* +mem_mb: \d+\n', capsys.readouterr().out)
    assert "report: jumper-demo-2/report.html" in said
    assert "steps" not in said


def test_a_place_that_cannot_be_written_is_told_before_anything_runs(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "snakemake", "-o", "/proc/jumper-demo"]) == 2
    said = capsys.readouterr()
    assert said.err == "jumper: cannot write /proc/jumper-demo: No such file or directory; choose another place\n"
    assert said.out == ""


def test_a_workflow_that_fails_is_told_in_one_line(elsewhere: Path) -> None:
    (elsewhere / "Snakefile").write_text("rule one:\n    input: 'nowhere.txt'\n")
    with pytest.raises(RunError, match=r"snakemake ended with status 1: .*nowhere.txt"):
        demo.execute(elsewhere, Console(quiet=True))
