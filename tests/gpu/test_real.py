"""The script for a real GPU: what it compares, on a stand-in of the library and of nvidia-smi; and here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.standin import A100, GIB, OTHER, REPOSITORY, Node, device, process

#: prints what was asked for, as nvidia-smi does, of two devices
SMI = """#!/bin/sh
case "$*" in
*compute-apps*) echo "11, {A100}, 2048" ;;
*--query-gpu=uuid\\ *) printf "{A100}\\n{OTHER}\\n" ;;
*) printf "{A100}, 81920, {used}, 61, 250.0\\n{OTHER}, 81920, 10240, 41, [N/A]\\n" ;;
esac
"""


@pytest.mark.parametrize(("used", "status"), [(2048, 0), (4096, 1)])
def test_figures_that_lie_apart_are_told(node: Callable[..., Node], tmp_path: Path, used: int, status: int) -> None:
    there = node(
        device(used=2 * GIB, celsius=61, mw=250_000)
        + device(OTHER, used=10 * GIB, celsius=41, mw=-1)
        + process(11, 2 * GIB)
    )
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(A100=A100, OTHER=OTHER, used=used))
    smi.chmod(0o755)
    environment = {**there.environment, "PATH": f"{smi.parent}:{there.environment['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.real"], env=environment, cwd=REPOSITORY, capture_output=True, text=True
    )
    apart = [line for line in done.stdout.splitlines() if "APART" in line]
    assert done.returncode == status == len(apart), done.stdout + done.stderr
    assert all("memory.used" in line for line in apart)
    assert sum("memory of processes" in line for line in done.stdout.splitlines()) == 2


def test_here() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.gpu.real"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(("not compared: ", "figure"))
