"""The magics in a real IPython shell: each is typed as a user types it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

from jumper.ipython import magics  # noqa: E402
from jumper.monitor.backends import ALIASES, BACKENDS  # noqa: E402


class Shell:
    """A shell of its own; `run` types a cell and returns what it showed."""

    def __init__(self, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell, self._capsys = shell, capsys

    def run(self, cell: str, fails: bool = False) -> str:
        self._capsys.readouterr()
        result = self.shell.run_cell(cell, store_history=True)
        shown = self._capsys.readouterr()
        assert result.success is not fails, (cell, shown.out, shown.err)
        return re.sub(r"\x1b\[[\d;]*m", "", shown.out + shown.err)

    @property
    def service(self) -> Any:
        return self.shell._jumper_magics.service


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    made = interactiveshell.InteractiveShell.instance()
    here = Shell(made, capsys)
    here.run("%load_ext jumper")
    yield here
    magics.unload(made)
    made.history_manager.end_session()
    interactiveshell.InteractiveShell.clear_instance()


def test_a_session_as_it_is_typed(shell: Shell, tmp_path: Path) -> None:
    assert "CPUs, memory up to" in shell.run("%perfmonitor_resources")
    assert shell.run("%perfmonitor_start 0.05 --monitor thread") == ""
    shell.run("import time\nheld = bytearray(b'x') * (100 << 20)\ntime.sleep(0.5)\ndel held")
    shell.run("until = time.thread_time() + 0.3\nwhile time.thread_time() < until: pass")
    report = shell.run("%perfmonitor_perfreport --text")
    assert report.startswith("Performance of ") and "4 cells" in report
    cells = shell.service.perfreport().cells.set_index("cell_index")
    assert cells["execution_count"].tolist()[:4] == [2, 3, 4, 5], "as in In [n]"
    assert 0.28 <= cells.loc[3, "cpu_s"] <= 0.4  # with what IPython does around the cell
    held = cells.loc[2, "memory_peak_bytes"] - cells.loc[3, "memory_peak_bytes"]
    assert held == pytest.approx(100 << 20, abs=20 << 20)
    assert "while" not in cells.loc[3, "code"] and cells.loc[3, "code"].startswith("until = ")
    one = shell.run("%perfmonitor_perfreport --text --cell -2 --level process")
    assert "1 cell," in one and "held" not in one and "until" in one
    shell.run("%perfmonitor_stop")
    assert not shell.service.monitor.running

    frame = shell.service.export_perfdata()
    assert f"{len(frame)} samples in perf.csv" in shell.run("%perfmonitor_export_perfdata perf.csv")
    assert "in the variable mine" in shell.run("%perfmonitor_export_perfdata --name mine --level system")
    assert len(shell.shell.user_ns["mine"]) == len(frame)
    assert set(pd.read_csv(tmp_path / "perf.csv")["cell_index"].dropna()) >= {1, 2, 3}
    assert "session in run.zip" in shell.run("%export_session run.zip")
    shell.run("%import_session run.zip")
    assert shell.service.monitor.is_imported
    assert "until = " in shell.run("%perfmonitor_perfreport --text --cell 3")
    shell.run("picture = %perfmonitor_plot --metrics cpu,memory --file picture.html")
    assert len(shell.shell.user_ns["picture"]) == 2
    assert (tmp_path / "picture.html").stat().st_size > 100_000
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    assert len(shell.service.cells) == 0, "cells of the session that was imported are not of this one"


def test_fault_23_the_positional_file_and_the_negative_range(shell: Shell) -> None:
    """What its README says and its command line refuses (fault 23, and `--check-sanity` without an interval)."""
    assert "sanity check of PerformanceMonitor: passed" in shell.run(
        "%perfmonitor_start --check-sanity --monitor thread"
    )
    assert shell.service.monitor.interval == 1.0
    shell.run("1 + 1")
    assert "samples in x.json" in shell.run("%perfmonitor_export_perfdata x.json")
    assert "samples in y.json" in shell.run("%perfmonitor_export_perfdata --file y.json")
    assert "1 + 1" in shell.run("%perfmonitor_perfreport --text --cell -3:")


def test_one_cell_is_measured_alone(shell: Shell) -> None:
    shown = shell.run("%%perfmonitor 0.05 --monitor thread --text\nx = sum(range(300_000))\nx + 1")
    assert "Out[" in shown and "44999850001" in shown
    assert "x = sum(range(300_000))" in shown and "1 cell," in shown
    assert shell.shell.user_ns["x"] == 44999850000
    assert not shell.service.monitor.running
    assert len(shell.service.cells) == 1, "the notebook's cell and the magic's are one"
    row = shell.service.perfreport().cells.iloc[-1]
    assert row["execution_count"] == 2
    shown = shell.run("%%perfmonitor --text --monitor thread\nraise ValueError('mine')", fails=True)
    assert "Traceback" in shown and "ValueError: mine" in shown, "what the user's code raises is not ours to shorten"
    assert not shell.service.monitor.running
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    assert "1 cell," in shell.run("%%perfmonitor --text\nimport time\ntime.sleep(0.1)")
    assert shell.service.monitor.running, "it was the user's"
    assert "[0, 1]" in shell.run("%%perfmonitor --text\n%time [*range(2)]"), "magics inside"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%perfmonitor_start soon", "argument interval: invalid float value: 'soon'; usage: %perfmonitor_start"),
        ("%perfmonitor_start 0", "the interval must be at least 0.001 s and finite"),
        ("%perfmonitor_start -1", "the interval must be at least 0.001 s and finite"),
        ("%perfmonitor_start --monitor natve", "unknown monitor 'natve'; known are default, thread"),
        ("%perfmonitor_start --moni", "unrecognized arguments: --moni"),
        ("%perfmonitor_start 'x", "No closing quotation"),
        ("%perfmonitor_perfreport", "nothing was measured yet"),
        ("%perfmonitor_plot --live", "nothing was measured yet"),
        ("%perfmonitor_plot --live 1 2 3", "--live takes the seconds between drawings and those shown"),
        ("%perfmonitor_export_perfdata x.xyz", "nothing was measured yet"),
        ("%export_session", "nothing was measured yet"),
        ("%import_session nowhere", "nowhere: there is no such session"),
        ("%import_session", "the following arguments are required: path"),
        ("%%perfmonitor --interval 1\npass", "unrecognized arguments: --interval"),
        ("%%perfmonitor 0\npass", "the interval must be at least"),
    ],
)
def test_a_mistake_is_one_line_and_an_error(shell: Shell, line: str, said: str) -> None:
    shown = shell.run(line, fails=True)
    assert shown.startswith("UsageError: ") and said in shown
    assert shown.count("\n") == 1


def test_fault_23_an_unknown_suffix_is_an_error(shell: Shell, tmp_path: Path) -> None:
    """Unknown extension: the package's export silently writes nothing (fault 23)."""
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    assert "expected a name that ends in .csv" in shell.run("%perfmonitor_export_perfdata x.xyz", fails=True)
    assert not (tmp_path / "x.xyz").exists()
    assert "there are cells 0 to" in shell.run("%perfmonitor_perfreport --cell 99", fails=True)
    assert "no level 'node' here" in shell.run("%perfmonitor_perfreport --level node", fails=True)
    assert "running already" in shell.run("%perfmonitor_start", fails=True)


def test_help_names_every_magic_and_every_monitor(shell: Shell) -> None:
    shown = shell.run("%perfmonitor_help")
    registered = shell.shell._jumper_magics.magics
    for name in registered["line"]:
        assert f"%{name}" in shown
    assert "%%perfmonitor " in shown
    for name in (*BACKENDS, *ALIASES):
        assert name in shown
    assert shell.run("%perfmonitor_start?") != ""


def test_cells_inside_cells_and_silent_ones_are_none(shell: Shell) -> None:
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    before = len(shell.service.cells)
    shell.run("get_ipython().run_cell('inner = 1')\nouter = 2")
    assert shell.shell.user_ns["inner"] == 1
    shell.shell.run_cell("unseen = 1", silent=True)
    assert len(shell.service.cells) == before + 1
    assert len(shell.service.cells.finished) == before + 1
    shell.run("1/0", fails=True)
    assert len(shell.service.cells.finished) == before + 2, "a cell that fails has ended, too"
    magics = shell.shell._jumper_magics
    magics.pre_run_cell(SimpleNamespace(store_history=True, silent=False, raw_cell="the shell never says that it ends"))
    shell.run("x = 1")
    assert shell.service.cells.finished[-1].raw_cell == "x = 1"
    assert len(shell.service.cells.finished) == before + 3


def test_it_is_loaded_twice_and_taken_away(shell: Shell) -> None:
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    monitor = shell.service.monitor
    shell.run("%reload_ext jumper")
    assert shell.service.monitor is None, "begun anew"
    assert not monitor.running
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    monitor = shell.service.monitor
    magics.load(shell.shell)
    assert shell.service.monitor is monitor
    shell.run("%unload_ext jumper")
    assert not monitor.running
    assert "not found" in shell.run("%perfmonitor_help", fails=True)
    shell.run("x = 1")


def test_a_live_picture_is_an_object_with_a_display(shell: Shell) -> None:
    shell.run("%perfmonitor_start 0.05 --monitor thread")
    shell.run("live = %perfmonitor_plot --metrics memory --live 0.1 30")
    live = shell.shell.user_ns["live"]
    assert not live.running, "nobody looks at it yet"
    live.start()
    shell.run("%perfmonitor_stop")
    deadline = time.monotonic() + 60
    while live.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not live.running and live.reason is None
    assert live._pipe.contents["data"]["time"].iloc[-1] == shell.service.export_perfdata()["time"].iloc[-1]
