"""The real jumper-extension 0.4.1 in an environment of its own, on top of that of the tests.

`python -m tests.peer.environment` makes `tests/golden/jumper-extension-0.4.1.zip` anew: a session that it exported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any

PEER = "jumper-extension==0.4.1"
#: what it imports and the tests' own environment may lack; its kaleido, which it pins, is not imported
NEEDED = ("itables", "ipywidgets", "plotly", "pydantic>=2")
#: nobody's: where the tests run as root, it does not
OWN_UID = 23456
REPOSITORY = Path(__file__).resolve().parents[2]
PLACE = REPOSITORY / "build" / "peer"


def environment() -> Path:
    """Return its Python; made where it is not there yet.

    Raises
    ------
    RuntimeError
        Where it cannot be installed.
    """
    python = PLACE / "bin" / "python"
    made_for = PLACE / "made-for"
    wanted = f"{sys.prefix} {sys.version}"
    if made_for.exists() and made_for.read_text() == wanted:
        return python
    venv.create(PLACE, clear=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(PLACE)}))
    (packages / "tests-own.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    for what in (["--no-deps", PEER], list(NEEDED)):
        done = subprocess.run([*pip, *what], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{what} cannot be installed: {done.stderr.strip()[-300:]}")
    made_for.write_text(wanted)
    return python


def as_nobody() -> list[str]:
    """Return what comes before a command so that it runs as a user of its own, where this is root.

    It may read what root may, the Python that runs it among that, and may touch nobody's processes.
    """
    if os.geteuid() != 0:
        return []
    owner = ["--reuid", str(OWN_UID), "--regid", str(OWN_UID), "--clear-groups"]
    only = ["--inh-caps", "-all,+dac_override", "--ambient-caps", "-all,+dac_override", "--bounding-set"]
    return ["setpriv", *owner, *only, "-all,+dac_override"]


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run inside.py there, in a folder that everybody may write to; return what it answers."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "agg",
        **dict.fromkeys(("HOME", "JUMPER_LOG_DIR", "MPLCONFIGDIR", "IPYTHONDIR", "JUMPER_SPOOL"), str(folder)),
    }
    command = [*as_nobody(), str(environment()), str(Path(__file__).parent / "inside.py"), *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=200)
    if done.returncode:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        run(Path(name), "theirs")
        shutil.copyfile(Path(name) / "session.zip", REPOSITORY / "tests" / "golden" / "jumper-extension-0.4.1.zip")
