"""Our monitors in the real jumper-extension 0.4.1: its report, plot, export and session, where it is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from jumper.adapters.session import import_session
from jumper.monitor.backends import native_built
from tests.peer.environment import PEER, as_nobody, environment, run

BACKENDS = ["thread", "subprocess", *(["native"] if native_built() else [])]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the other user may write to."""
    with tempfile.TemporaryDirectory(prefix="jumper-peer-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, Any]:
    """What the real package made of each of our monitors."""
    try:
        subprocess.run([*as_nobody(), "true"], check=True)
        environment()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no user of its own can be had here: {error}")
    except RuntimeError as error:
        pytest.skip(f"{PEER} cannot be had: {error}")
    return run(folder, "ours", *BACKENDS)


@pytest.fixture(params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_our_monitors_are_its_monitors(answers: dict[str, Any], name: str) -> None:
    assert answers[name]["isinstance"] and answers[name]["attached"]
    assert "skipping sanity check" in answers[name]["check"]


def test_its_report_has_what_our_monitor_measured(answers: dict[str, Any], name: str) -> None:
    cpu, memory = (
        float(found) for found in re.findall(r"^(?:CPU|Memory).*?  +([\d.]+) ", answers[name]["text"], re.MULTILINE)
    )
    assert 0 < cpu <= 100
    assert 64 / 1024 < memory < 4  # the cell held 64 MiB
    assert "HTML" in answers[name]["html"]
    assert re.search(r"CPUs: [1-9]", answers[name]["resources"])


def test_its_plot_draws_our_samples(answers: dict[str, Any], name: str) -> None:
    assert answers[name]["lines"] and min(answers[name]["lines"]) >= 2


def test_its_export_has_our_columns(answers: dict[str, Any], name: str, folder: Path) -> None:
    frame = pd.read_csv(folder / f"{name}.csv")
    assert len(frame) >= 5
    assert {"cpu_util_avg", "memory", "io_write", "memory_bytes", "cell_index"} <= set(frame)
    assert frame["cell_index"].dropna().isin([0, 1]).all()


def test_its_sessions_of_our_monitors_come_back_in_both(answers: dict[str, Any], name: str, folder: Path) -> None:
    rows = answers[name]["rows"]
    assert {level: shape[0] for level, shape in answers[name]["imported"].items()} == rows
    assert answers[name]["ours_imported"] == rows, "it reads what we write"
    monitor, cells = import_session(folder / f"{name}.zip")
    assert len(monitor.data.view("process")) == rows["process"]
    assert len(cells.finished) == 2


def test_it_is_in_no_environment_of_ours() -> None:
    """The real package is never imported by ours; what works with it does so by shape."""
    assert importlib.util.find_spec("jumper_extension") is None
