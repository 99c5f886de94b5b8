"""What an import costs: the packages of a worker load nothing heavy, and do nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = {"pandas", "numpy", "pyarrow", "holoviews", "bokeh", "matplotlib", "panel", "IPython"}
SCHEDULERS = {"dask", "distributed", "snakemake"}
#: each costs an agent several ms of its start
SLOW = {"rich", "click", "psutil", "yaml", "msgspec", "pathlib", "inspect", "dataclasses", "subprocess", "tempfile"}

LOOK = """
import json, os, sys, threading
sys.path[:0] = [{repository!r}]
for name in {blocked!r}:
    sys.modules[name] = None
before = set(os.listdir({folder!r}))
known = set(sys.modules)
import {module}
print(json.dumps({{
    "modules": sorted({{name.partition(".")[0] for name in sys.modules.keys() - known if sys.modules[name]}}),
    "threads": threading.active_count(),
    "files": sorted(set(os.listdir({folder!r})) - before),
}}))
"""


def look(module: str, folder: Path, blocked: tuple[str, ...] = ()) -> dict[str, object]:
    """Import a module in a fresh interpreter; return what it loaded and left."""
    code = LOOK.format(repository=str(REPOSITORY), module=module, folder=str(folder), blocked=blocked)
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert done.stdout.count("\n") == 1, "an import prints nothing"
    return found


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("jumper", HEAVY | SCHEDULERS | {"psutil", "rich", "click"}),
        ("jumper.cli", HEAVY | SCHEDULERS | {"psutil"}),
        ("jumper.schema", HEAVY | SCHEDULERS | {"psutil", "yaml", "msgspec"}),
        ("jumper.core.service", HEAVY | SCHEDULERS | {"rich", "click"}),
        ("jumper.utilities", HEAVY | SCHEDULERS | {"psutil", "yaml", "msgspec"}),
        ("jumper.monitor.agent", HEAVY | SCHEDULERS | SLOW),
        ("jumper.monitor.backends.native", SLOW),
        ("jumper.monitor.sampling", SLOW),
        ("jumper.monitor.agent_process", HEAVY | SCHEDULERS | {"rich", "click"}),
        # dask is that package's own business, and may need numpy
        ("jumper_dask", HEAVY - {"numpy"}),
        # every Snakemake process imports it, whether it measures or not
        ("snakemake_logger_plugin_jumper", HEAVY | SCHEDULERS | {"psutil", "jumper", "jumper_snakemake"}),
    ],
)
def test_an_import_loads_nothing_heavy_and_does_nothing(module: str, never: set[str], tmp_path: Path) -> None:
    found = look(module, tmp_path)
    assert never & set(found["modules"]) == set()  # type: ignore[call-overload]
    assert found["threads"] == 1
    assert found["files"] == []


def test_the_agent_is_there_without_psutil(tmp_path: Path) -> None:
    look("jumper.monitor.agent", tmp_path, blocked=("psutil",))
