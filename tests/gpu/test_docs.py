"""docs/gpu.md: its lines run on a node with a stand-in of NVML, its entry is a collector, its levels are there."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from jumper.monitor.pipeline import load_config_text
from jumper.monitor.sampling import sampling
from tests.gpu.standin import A100, GIB, Node, device

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "gpu.md").read_text()


def block(kind: str) -> str:
    (text,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def test_the_lines_of_the_page_run(node: Callable[..., Node], tmp_path: Path) -> None:
    there = node(device(used=3 * GIB, busy=50))
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1.5)\n")
    for line in block("sh").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "jumper"
        arguments = [sys.executable if word == "python" else word for word in arguments]
        there.run(["env", "-C", str(tmp_path), sys.executable, "-m", "jumper", *arguments])
    said = there.run(["env", "-C", str(tmp_path), sys.executable, "-c", block("python")]).stdout
    assert f"0 {A100} NVIDIA-A100 True" in said and str(3 * GIB) in said.replace(".0", "")


def test_a_group_without_a_limit_is_watched_where_it_is_asked_for() -> None:
    config = load_config_text(block("yaml"), "mine.yaml")
    (entry,) = [entry for entry in config.entries if entry.name == "cgroup"]
    one = sampling("python", 1, 1.0, ("process",), config)
    assert "cgroup" in one.sampler.pipeline.names
    assert entry.origin == "mine.yaml"
