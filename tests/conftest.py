"""What all tests share: a spool of their own, and the markers of what a machine may lack."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Take SIGINT as a shell in the foreground gives it: `make test &` has it ignored, and all that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the user's spool, collectors and Slurm job out of the tests, and the tests out of them."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("JUMPER_SPOOL", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    for name in [*os.environ]:
        if name.startswith("SLURM") or name == "JUMPER_COLLECTORS":
            monkeypatch.delenv(name)
    yield


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; where there is none, the test is skipped."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    pytest.skip("no Chromium on this machine")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A headless Chromium, driven by Playwright; where either is missing, the test is skipped."""
    driver = pytest.importorskip("playwright.sync_api")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with driver.sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=flags)
        yield started
        started.close()


@pytest.fixture(scope="session")
def shim() -> Path:
    """The launcher program; where it is not built, the test is skipped."""
    path = REPOSITORY / "jumper" / "monitor" / "_shim"
    if not path.exists():
        pytest.skip("the launcher is not built (no compiler); `make clean test` builds it")
    return path
