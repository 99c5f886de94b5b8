"""The pages on the service, on sessions and on the magics: their code runs, their lists are those of the code."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from jumper.adapters.session import FORMAT, MOST_BYTES, export_session
from jumper.analysis import level
from jumper.core.service import PerfmonitorService
from jumper.report.levelplot import GROUPS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["service.md", "sessions.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for block in re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE):
            exec(compile(block, page, "exec"), names)
    shown = capsys.readouterr().out
    assert "Performance of " in shown and "sort" in shown
    assert (tmp_path / "today.zip").exists()
    if page == "service.md":
        assert "sanity check of " in shown and "passed" in shown
        assert (tmp_path / "perf.csv").exists() and (tmp_path / "perf.html").exists()


def test_the_page_on_the_service_lists_its_methods_tags_and_groups() -> None:
    page = (DOCS / "service.md").read_text()
    listed = set(re.findall(r"`(\w+)\(", page.partition("## The report")[0]))
    public = {name for name, value in vars(PerfmonitorService).items() if not name.startswith("_") and callable(value)}
    assert listed >= public - {"close", "start_cell", "end_cell"}
    for tag in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', Path(level.__file__).read_text()):
        assert f"`{tag}`" in page, tag
    for group in (*GROUPS, "cpu_all", "gpu_all", "gpu_mem_all"):
        assert f"`{group}`" in page, group


def test_the_page_on_sessions_names_what_is_in_one(tmp_path: Path) -> None:
    page = (DOCS / "sessions.md").read_text()
    assert f"The version is `{FORMAT}`" in page
    assert f"more than {MOST_BYTES >> 30} GiB" in page
    from jumper.monitor.backends.thread import PerformanceMonitor

    monitor = PerformanceMonitor()
    monitor.start(0.05)
    monitor.stop()
    export_session(tmp_path / "s", monitor)
    for file in (tmp_path / "s").iterdir():
        assert f"`{re.sub('perf_.*csv', 'perf_<level>.csv', file.name)}`" in page


def test_the_page_on_magics_has_their_usage_as_they_say_it() -> None:
    pytest.importorskip("IPython")
    from jumper.ipython import magics

    page = (DOCS / "ipython.md").read_text()
    listed = " ".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    for kind, mark in (("line", "%"), ("cell", "%%")):
        for name in magics.PerfmonitorMagics.magics[kind]:
            assert f"`{mark}{name}" in listed, name
    for parser in (magics.START, magics.REPORT, magics.PLOT, magics.EXPORT, magics.CELL):
        (row,) = (each for each in re.findall(r"`([^`]+)`", listed) if each.split()[0] == parser.prog)
        options = {option for action in parser._actions for option in action.option_strings}
        said = set(re.findall(r"--[a-z-]+", row))
        assert said <= options and options - said <= {"--file"}, "which may stand without its name"
