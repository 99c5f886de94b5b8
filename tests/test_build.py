"""The build: what a wheel and a development install hold, with and without a compiler; changelog fragments."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import jumper
from jumper.schema import VERSION

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PACKAGES = sorted(p.parent.name for p in REPOSITORY.glob("*/__init__.py") if p.parent.name not in ("tests",))
NOT_BUILT = shutil.ignore_patterns("*.so", "_shim", "_spawn", "__pycache__", ".*")
has_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what is needed to build, with nothing built in it."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "Makefile"):
        shutil.copy(REPOSITORY / name, copy)
    for name in ("ext", *PACKAGES):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=NOT_BUILT)
    return copy


def pip(*arguments: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def wheel(source: Path, **environment: str) -> zipfile.ZipFile:
    pip("wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", "made", cwd=source, **environment)
    (path,) = (source / "made").glob("jumper_workflows-*.whl")
    return zipfile.ZipFile(path)


def test_the_version_is_declared_once() -> None:
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "jumper.schema.VERSION"}
    assert jumper.__version__ == VERSION


def test_all_packages_are_distributed_and_typed() -> None:
    patterns = [p.removesuffix("*") for p in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
    for package in PACKAGES:
        if package in ("examples", "benchmarks"):
            continue
        assert any(package.startswith(p) for p in patterns), package
        if package in PROJECT["tool"]["mypy"]["packages"]:
            assert (REPOSITORY / package / "py.typed").exists()


def test_the_extra_all_is_all() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"[a-z]+", everything.partition("[")[2])) == set(extras) - {"all"}


@has_compiler
def test_a_wheel_holds_data_files_and_native_pieces(source: Path) -> None:
    with wheel(source) as built:
        names = set(built.namelist())
        assert re.search(r"-cp311-abi3-\w+\.whl$", built.filename or "")
        modes = [built.getinfo(f"jumper/monitor/{name}").external_attr >> 16 for name in ("_shim", "_spawn")]
    assert all(mode & stat.S_IXUSR and mode & stat.S_IXOTH for mode in modes)
    assert any(name.startswith("jumper/monitor/backends/native/_engine.") and name.endswith(".so") for name in names)
    data = {
        str(path.relative_to(source))
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".h", ".yaml", ".html", ".css", ".js", ".typed"} and "build" not in path.parts
    }
    wanted = {name for name in data if name.split("/")[0] not in ("examples", "benchmarks")}
    assert wanted <= names
    assert not {name for name in names if name.startswith(("tests", "ext", "examples", "benchmarks"))}


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler-here"])
def test_without_a_compiler_the_install_succeeds(source: Path, compiler: str) -> None:
    with wheel(source, CC=compiler) as built:
        names = built.namelist()
        assert str(built.filename).endswith("-py3-none-any.whl")
        built.extractall(source / "installed")
    assert "jumper/cli/__init__.py" in names
    assert not [name for name in names if name.endswith((".so", "_shim", "_spawn"))]
    done = subprocess.run(
        [sys.executable, "-m", "jumper", "doctor"], cwd=source / "installed", capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(source / "installed")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not built" in done.stdout and "gcc" in done.stdout


def test_a_development_install_is_found_by_walking_sys_path(source: Path, tmp_path: Path) -> None:
    # Snakemake looks for its plugins with pkgutil, which does not see what an import hook serves
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip("--python", python, "install", "--no-deps", "--no-build-isolation", "--editable", ".", cwd=source,
        PYTHONPATH=os.pathsep.join(p for p in sys.path if p.endswith("site-packages")))  # fmt: skip
    code = "import pkgutil; print(*sorted(m.name for m in pkgutil.iter_modules() if m.ispkg))"
    found = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {p for p in PACKAGES if p not in ("examples", "benchmarks")} <= set(found.split())


def test_make_says_which_python_it_needs(source: Path) -> None:
    done = subprocess.run(["make", "PYTHON=/bin/false", "test"], cwd=source, capture_output=True, text=True)
    assert done.returncode != 0
    assert "needs Python 3.11" in done.stderr and "make PYTHON=" in done.stderr
    assert not (source / ".venv").exists()


FRAGMENTS = [p for p in (REPOSITORY / "changelog.d").iterdir() if p.name != "README.md"]


def test_there_are_changelog_fragments() -> None:
    changelog = REPOSITORY / "CHANGELOG.md"
    assert FRAGMENTS or (changelog.exists() and f"## {VERSION} " in changelog.read_text())


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_changelog_fragment_has_a_type_and_a_sentence(fragment: Path) -> None:
    types = [entry["directory"] for entry in PROJECT["tool"]["towncrier"]["type"]]
    assert re.fullmatch(rf"\+?[a-z0-9-]+\.({'|'.join(types)})(\.\d+)?\.md", fragment.name)
    text = fragment.read_text().strip()
    assert text.endswith(".") and not text.startswith(("#", "-", "*"))
