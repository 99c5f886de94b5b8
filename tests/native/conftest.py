"""Compiled for the tests alone: the engine's C sources as a shared library, a fuzzer and a driver under sanitizers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.native.twins import Twins

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SOURCES = sorted((REPOSITORY / "ext" / "native").glob("*.c"))
INCLUDE = [f"-I{REPOSITORY / 'ext'}", f"-I{REPOSITORY / 'jumper' / 'include'}"]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that compiles sources with flags into a file."""
    if COMPILER is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("compiled")

    def compiled(name: str, sources: list[Path], *flags: str) -> Path:
        path = folder / name
        command = [COMPILER, *WARNINGS, *flags, *INCLUDE, *map(str, sources), "-o", str(path), "-pthread", "-ldl"]
        subprocess.run(command, check=True)
        return path

    return compiled


@pytest.fixture(scope="session")
def sanitized(build: Build) -> Build:
    """Return a function that compiles a program with the engine's sources under sanitizers."""

    def compiled(name: str, *more: Path, sanitizers: Sequence[str] = SANITIZERS) -> Path:
        try:
            return build(name, [*SOURCES, *more], "-g", "-O1", *sanitizers)
        except subprocess.CalledProcessError:
            probe = HERE / "fuzz" / "empty.c"
            try:
                build("probe", [probe], *sanitizers)
            except subprocess.CalledProcessError:
                pytest.skip("the C compiler of this machine has no sanitizers")
            raise

    return compiled


@pytest.fixture(scope="session")
def native(build: Build) -> ctypes.CDLL:
    """The engine's C sources as a shared library, not the extension module."""
    library = build("libnative.so", SOURCES, "-O2", "-shared", "-fPIC")
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def twins(native: ctypes.CDLL) -> Twins:
    """The functions of that library."""
    return Twins(native)
