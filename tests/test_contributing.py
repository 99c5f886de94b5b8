"""What CONTRIBUTING shows works as it stands: its collector's column is in a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jumper

REPOSITORY = Path(__file__).resolve().parent.parent
TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()


def block(language: str) -> str:
    """Return the one code block of a language, without the indent of its list."""
    (found,) = re.findall(rf"^   ```{language}\n(.*?)^   ```$", TEXT, re.DOTALL | re.MULTILINE)
    return re.sub(r"^   ", "", found, flags=re.MULTILINE)


def test_the_collector_that_it_shows_is_measured(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(block("python"))
    (tmp_path / "mine.yaml").write_text(block("yaml"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tmp_path)])}
    command = [sys.executable, "-m", "jumper", "run", "--interval", "0.1", "--collectors", "mine.yaml", "-o", "r"]
    done = subprocess.run(
        [*command, "--", "sleep", "1"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    load = jumper.open_run(tmp_path / "r").samples("system")["load_1min"].dropna()
    assert len(load) > 1 and (load >= 0).all()


def test_the_files_that_it_names_are_there() -> None:
    named = re.findall(r"`([\w./]+/[\w.]*)`", TEXT) + re.findall(r"\]\(([\w./]+)\)", TEXT)
    ours = [n for n in named if n.split("/")[0] in {"jumper", "tests", "docs", "ext", "changelog.d", ".ci"}]
    assert ours
    assert [name for name in ours if not (REPOSITORY / name).exists()] == []
