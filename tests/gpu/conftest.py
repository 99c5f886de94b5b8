"""The stand-in of NVML, in each version of its process lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.standin import Node, build


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    folder = tmp_path_factory.mktemp("nvml")
    built: dict[int, Path] = {}

    def library(abi: int) -> Path:
        if abi not in built:
            built[abi] = build(folder, abi)
        return built[abi]

    return library


@pytest.fixture
def node(libraries: Callable[[int], Path], tmp_path: Path) -> Callable[..., Node]:
    """Make a node with these devices; `abi`: the newest process lists that its driver has."""
    pytest.importorskip("pynvml", reason="the bindings of NVML: pip install 'jumper-workflows[gpu]'")
    return lambda state, abi=3: Node(libraries(abi), tmp_path, state)
