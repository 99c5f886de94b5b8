"""Collectors of other packages: found by their entry points, never in the user's way, and never in the others'."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jumper
from jumper.config import CollectorConfig
from jumper.config.packages import GROUP
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.common import CollectorConfigError
from jumper.monitor.pipeline import load_config

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "collector_package"
SCALAR = "{{_target_: jumper.monitor.metrics.handlers.ScalarHandler, column: {}}}"
TARGET = "class Mine:\n    def collect(self, level, context):\n        return 42\n"
BUILT_IN = ["process", "node", "cpu", "memory", "io", "network", "gpu_counters", "gpu", "energy", "cgroup",
            "network_namespaces"]  # fmt: skip
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package into a folder of its own, as pip leaves it, with one entry point; give its folder."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(REPOSITORY)]))
    made: list[str] = []

    def make(name: str, init: str, yaml: str | None = None, module: str = TARGET, attribute: str = "HERE") -> Path:
        folder = site / name
        folder.mkdir()
        (folder / "__init__.py").write_text(init)
        (folder / "mine.py").write_text(module)
        if yaml is not None:
            (folder / "collectors.yaml").write_text(yaml)
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name}_point = {name}:{attribute}\n")
        made.append(name)
        return folder

    yield make
    for name in [*sys.modules]:
        if name.partition(".")[0] in made:
            del sys.modules[name]


def entry(column: str, package: str, name: str = "mine") -> str:
    return f"collectors: {{{name}: {{_target_: {package}.mine.Mine, handler: {SCALAR.format(column)}}}}}\n"


def names(config: CollectorConfig) -> list[str]:
    return [each.name for each in config.entries]


def refusals(config: CollectorConfig) -> list[str]:
    return [each.text for each in config.refused]


# ---- what works ------------------------------------------------------------------------------------------------------

MAPPING = {"collectors": {"mine": {"_target_": "pkg_a.mine.Mine", "handler": {
    "_target_": "jumper.monitor.metrics.handlers.ScalarHandler", "column": "a"}}}}  # fmt: skip
VALUES = {
    "a relative path": "HERE = 'collectors.yaml'",
    "a whole path": "import pathlib\nHERE = pathlib.Path(__file__).parent / 'collectors.yaml'",
    "a function": "def HERE():\n    return 'collectors.yaml'",
    "a mapping": f"HERE = {MAPPING!r}",
}


@pytest.mark.parametrize("what", VALUES)
def test_an_entry_point_is(what: str, install: Install) -> None:
    install("pkg_a", VALUES[what], entry("a", "pkg_a"))
    config = load_config()
    assert names(config) == [*BUILT_IN, "mine"] and config.refused == ()
    mine = config.entries[-1]
    assert mine.package == "pkg_a" and mine.origin.startswith("package pkg_a (entry point pkg_a_point)")
    assert CollectorConfig.from_json(json.loads(json.dumps(config.to_json()))).entries == config.entries


@pytest.mark.parametrize("place", ["thread", "subprocess", "native"])
def test_it_is_measured_everywhere(place: str, install: Install) -> None:
    if place == "native" and not native_built():
        pytest.skip("the native engine is not built")
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    monitor = create_monitor(place, levels=["process"])
    monitor.start(0.05)
    monitor.stop()
    assert set(monitor.data.data["process"]["a"].dropna()) == {42}
    assert monitor.events == []


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
@pytest.mark.skipif(not native_built(), reason="the native engine is not built")
def test_a_package_brings_a_library(install: Install) -> None:
    from jumper.config import get_include

    folder = install("pkg_c", "HERE = 'collectors.yaml'", "collectors: {switches: {library: switches.so}}")
    source = REPOSITORY / "examples" / "c_collector" / "switches.c"
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{get_include()}", "-o", folder / "switches.so", source], check=True)
    monitor = create_monitor("native", levels=["process"])
    monitor.start(0.05)
    monitor.stop()
    assert (monitor.data.data["process"]["switches_voluntary"] > 0).all()


def test_a_user_s_file_replaces_and_removes(install: Install, tmp_path: Path) -> None:
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    install("pkg_b", "HERE = 'collectors.yaml'", entry("b", "pkg_b", "other"), "raise RuntimeError('broken')")
    install("pkg_c", "HERE = 'collectors.yaml'", entry("c", "pkg_c"))
    assert sorted(each.name for each in load_config().refused) == ["mine", "other"]
    own = tmp_path / "own.yaml"
    own.write_text(f"collectors:\n  mine: {{_target_: os.getpid, handler: {SCALAR.format('c')}}}\n  other: null\n")
    config = load_config(own)
    assert names(config) == [*BUILT_IN, "mine"]
    assert (config.entries[-1].target, config.entries[-1].package) == ("os.getpid", None)
    assert config.refused == (), "what the user replaced is nobody's trouble any more"


@pytest.mark.parametrize("kind", ["a folder", "an egg", "an archive", "a finder of its own"])
def test_it_is_found_wherever_python_finds_packages(kind: str, install: Install, tmp_path: Path) -> None:
    folder = install("pkg_a", f"HERE = {MAPPING!r}")
    site = folder.parent
    before, place = "", site
    if kind == "an egg":
        place = site.rename(tmp_path / "pkg_a.egg")
        (place / "pkg_a-1.0.dist-info").rename(place / "EGG-INFO")
        (place / "EGG-INFO" / "METADATA").rename(place / "EGG-INFO" / "PKG-INFO")
    elif kind == "an archive":
        place = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", site))
    elif kind == "a finder of its own":
        before = (
            "import importlib.metadata as m\n"
            "class Finder:\n"
            "    find_spec = lambda *_: None\n"
            f"    find_distributions = lambda *_: [m.Distribution.at({str(site / 'pkg_a-1.0.dist-info')!r})]\n"
            f"sys.meta_path.append(Finder()); sys.path.remove({str(site)!r})\n"
            f"sys.modules['pkg_a'] = type(sys)('pkg_a'); sys.modules['pkg_a'].HERE = {MAPPING!r}\n"
            f"sys.modules['pkg_a'].__path__ = [{str(folder)!r}]\n"
        )
    code = f"import sys\n{before}from jumper.config.load import load_config\nprint(load_config().entries[-1].package)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place), str(REPOSITORY)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("pkg_a\n", "")


def test_where_none_brings_any_the_search_costs_little() -> None:
    code = (
        "import sys\nfrom jumper.config.load import load_config\nload_config()\n"
        "print(sorted({'importlib.metadata', 'email', 'zipfile'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# ---- what is broken --------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "the module raises": ({"init": "raise RuntimeError('no licence')"}, r"pkg_b:HERE: RuntimeError: no licence"),
    "the attribute is missing": ({"attribute": "GONE"}, r"pkg_b:GONE: AttributeError"),
    "the function raises": ({"init": "def HERE():\n    return 1 / 0"}, r"pkg_b:HERE: ZeroDivisionError"),
    "the value is a number": ({"init": "HERE = 3"}, r"expected the path of a collectors\.yaml or a mapping .* int"),
    "the file is missing": ({"init": "HERE = 'gone.yaml'"}, r"gone\.yaml: cannot be read: No such file"),
    "the file is no YAML": ({"yaml": "a: [b"}, r"collectors\.yaml: line 1.*no valid YAML"),
    "the mapping has another key": ({"init": "HERE = {'colectors': {}}"}, r"the key `collectors`"),
    "an entry has no handler": (
        {"yaml": "collectors: {other: {_target_: a.B}}"},
        r"collectors\.other\.handler: missing",
    ),
    "the target is missing": ({"yaml": entry("b", "pkg_gone", "other")}, r"other\._target_: cannot import pkg_gone"),
    "the target raises": ({"module": "1 / 0"}, r"other\._target_: cannot import .*ZeroDivisionError"),
    "a column is taken": (
        {"yaml": entry("a", "pkg_b", "other")},
        r"'a' is written by collectors\.mine of package pkg_a",
    ),
    "a column is ours": ({"yaml": entry("memory", "pkg_b", "other")}, r"'memory' is written by collectors\.memory"),
    "a name is taken": ({"yaml": entry("b", "pkg_b", "mine")}, r"collectors\.mine: the name is taken by package pkg_a"),
    "a name is ours": ({"yaml": entry("b", "pkg_b", "cpu")}, r"collectors\.cpu: the name is taken by jumper itself"),
    "it removes one": ({"yaml": "collectors: {cpu: null}"}, r"collectors\.cpu: null; a package cannot remove"),
    "a library is missing": (
        {"yaml": "collectors: {other: {library: gone.so}}"},
        r"other\.library: .*gone\.so: No such",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_one_that_is_broken_stops_nobody(what: str, install: Install) -> None:
    keys, said = BROKEN[what]
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    install("pkg_b", **{"init": "HERE = 'collectors.yaml'", "yaml": entry("b", "pkg_b", "other"), **keys})
    config = load_config()
    assert names(config) == [*BUILT_IN, "mine"]
    (text,) = refusals(config)
    assert re.search(said, text), text
    assert text.startswith("package pkg_b (entry point pkg_b_point)") and "\n" not in text
    monitor = create_monitor("thread", levels=["process"])
    monitor.start(0.05)
    monitor.stop()
    (event,) = monitor.events
    assert (event["kind"], event["text"]) == ("collector-off", text)
    assert set(monitor.data.data["process"]["a"].dropna()) == {42}


@pytest.mark.parametrize("place", ["thread", "native"])
def test_one_that_cannot_be_made_is_left_out(place: str, install: Install) -> None:
    if place == "native" and not native_built():
        pytest.skip("the native engine is not built")
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    install("pkg_b", "HERE = 'collectors.yaml'", entry("b", "pkg_b", "other"),
            "class Mine:\n    def __init__(self):\n        raise OSError('no meter')\n")  # fmt: skip
    monitor = create_monitor(place, levels=["process"])
    monitor.start(0.05)
    monitor.stop()
    (event,) = monitor.events
    assert event["collector"] == "other" and event["text"].endswith("OSError: no meter")
    assert set(monitor.data.data["process"]["a"].dropna()) == {42}


def test_a_user_s_file_that_is_broken_is_still_an_error(install: Install, tmp_path: Path) -> None:
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    (tmp_path / "own.yaml").write_text(entry("b", "pkg_gone", "own"))
    with pytest.raises(CollectorConfigError, match=r"own\.yaml: collectors\.own\._target_: cannot import pkg_gone"):
        load_config(tmp_path / "own.yaml")


def test_the_commands_name_what_is_left_out(install: Install, tmp_path: Path) -> None:
    install("pkg_a", "HERE = 'collectors.yaml'", entry("a", "pkg_a"))
    install("pkg_b", "HERE = 'gone.yaml'")
    (text,) = refusals(load_config())
    jumper_command = [sys.executable, "-m", "jumper"]
    done = subprocess.run(
        [*jumper_command, "run", "-o", tmp_path / "run", "--", "true"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, f"jumper: {text}\n")
    run = jumper.open_run(tmp_path / "run")
    assert run.events["text"].tolist() == [text] and set(run.samples("process")["a"].dropna()) == {42}
    said = subprocess.run([*jumper_command, "doctor", "--json"], capture_output=True, text=True, check=True)
    (check,) = [check for check in json.loads(said.stdout)["checks"] if check["name"] == "collectors"]
    assert check["status"] == "limited" and text in check["found"]
    assert "mine (package pkg_a (entry point pkg_a_point), " in check["found"]


# ---- the example -----------------------------------------------------------------------------------------------------


def test_the_page_shows_the_example_s_entry_point() -> None:
    page = (REPOSITORY / "docs" / "collectors.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    assert tomllib.loads(shown)["project"]["entry-points"] == project["entry-points"]


def test_the_example_is_found_once_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install .` of its README, into a folder that stands for site-packages, and without what it depends on."""
    source, site, programs = tmp_path / "source", tmp_path / "site", tmp_path / "bin"
    shutil.copytree(EXAMPLE, source)
    programs.mkdir()
    offline = f"-m pip install --quiet --no-deps --no-build-isolation --disable-pip-version-check --target {site}"
    lines = {"pip": f'{sys.executable} {offline} "$2"', "jumper": f'{sys.executable} -m jumper "$@"'}
    for name, line in lines.items():
        (programs / name).write_text(f"#!/bin/sh\nexec {line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(REPOSITORY)]))
    (shown,) = re.findall(r"```sh\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(["sh", "-ec", textwrap.dedent(shown)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "jumper-example-load" in done.stdout
    assert jumper.open_run(source / "load.run").samples("system")["load_1min"].notna().any()
