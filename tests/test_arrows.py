"""The arrows between the rooms: what stands left may import what stands right of it, and nothing else."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
DISTRIBUTED = ("jumper", "jumper_dask", "jumper_snakemake", "snakemake_logger_plugin_jumper",
               "snakemake_report_plugin_jumper")  # fmt: skip

#: From left to right. Rooms of one line are neighbours: none may import the other.
ORDER = (
    ("jumper.__main__",),
    ("jumper_dask", "jumper_snakemake", "jumper.cli", "jumper.doctor", "jumper.ipython", "jumper",
     "snakemake_logger_plugin_jumper", "snakemake_report_plugin_jumper"),
    ("jumper.core",),
    ("jumper.report",),
    ("jumper.analysis",),
    ("jumper.adapters.session",),
    ("jumper.store",),
    ("jumper.monitor",),
    ("jumper.config",),
    ("jumper.adapters",),
    ("jumper.schema",),
)  # fmt: skip
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
#: Anyone may import it; it imports nothing of ours.
LEAF = "jumper.utilities"

#: Between neighbours, inside a function only: (who, whom) and why.
LAZY = {
    ("jumper.cli", "jumper.doctor"): "a command is imported when it is called",
    ("jumper.cli", "jumper_dask"): "`jumper demo dask` lives in the front end that it shows",
    ("jumper.cli", "jumper_snakemake"): "`jumper demo snakemake` lives in the front end that it shows",
    ("jumper.doctor", "jumper_snakemake"): "the names that its hook needs are declared there",
    ("jumper", "jumper.ipython"): "`%load_ext jumper` calls the package",
    ("jumper.cli", "jumper"): "the public names are what the commands use",
    ("jumper_dask", "jumper"): "the public names are what `collect` returns",
    ("jumper_snakemake", "jumper"): "the public names are what the command line uses",
    ("snakemake_logger_plugin_jumper", "jumper_snakemake"): "the plugin is a name under which Snakemake finds us",
    ("snakemake_report_plugin_jumper", "jumper_snakemake"): "the plugin is a name under which Snakemake finds us",
}

SCHEDULERS = {"dask", "distributed", "snakemake"}
#: Rooms below the front ends that may name a scheduler's package inside a function.
SCHEDULERS_ALLOWED: dict[tuple[str, str], str] = {}

STDLIB_ONLY = ("jumper.schema", LEAF)


class Import(NamedTuple):
    """`importer` imports `imported` at a line; lazily: inside a function or for the type checker only."""

    importer: str
    imported: str
    line: int
    lazy: bool


def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in DISTRIBUTED:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(name: str, source: str, is_package: bool = False) -> Iterator[Import]:
    """Yield every import of a module, wherever it stands in its text."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield Import(name, whole if whole in MODULES else base, node.lineno, lazy)
        for child in ast.iter_child_nodes(node):
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from visit(child, lazy or inside or checked)

    yield from visit(ast.parse(source), False)


def all_imports() -> list[Import]:
    return [
        each
        for name, path in MODULES.items()
        for each in imports_of(name, path.read_text(), path.name == "__init__.py")
    ]


def room(module: str) -> str | None:
    """Return the room that a module of ours is in, else None."""
    if module == LEAF:
        return LEAF
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in RANK and (prefix != "jumper" or length == len(parts)):
            return prefix
    return None


def fault(each: Import) -> str | None:
    """Return what is wrong with an import between rooms, or None."""
    here, there = room(each.importer), room(each.imported)
    if each.imported.split(".")[0] not in DISTRIBUTED or here == there:
        return None
    where = f"{each.importer}:{each.line} imports {each.imported}"
    if here is None or there is None:
        return f"{where}: one of them is in no room; name it in ORDER"
    if there == LEAF:
        return None
    if here == LEAF:
        return f"{where}: {LEAF} is a leaf"
    if RANK[here] < RANK[there]:
        # `import jumper` must stay light, whatever comes after it
        return None if here != "jumper" or each.lazy or there == "jumper.schema" else f"{where}: only lazily"
    if (here, there) in LAZY:
        return None if each.lazy else f"{where}: only inside a function ({LAZY[here, there]})"
    return f"{where}: {there} stands left of {here} or beside it"


def test_every_module_is_in_a_room() -> None:
    assert [m for m in MODULES if room(m) is None] == []


def test_arrows_point_to_the_right() -> None:
    assert [f for each in all_imports() if (f := fault(each))] == []


def test_the_core_knows_no_scheduler() -> None:
    found = [
        f"{i.importer}:{i.line} imports {i.imported}"
        for i in all_imports()
        if i.importer.split(".")[0] == "jumper" and (package := i.imported.split(".")[0]) in SCHEDULERS
        if not (i.lazy and (i.importer, package) in SCHEDULERS_ALLOWED)
    ]
    assert found == []


def test_what_every_room_imports_needs_the_standard_library_only() -> None:
    found = [
        f"{i.importer}:{i.line} imports {i.imported}"
        for i in all_imports()
        if room(i.importer) in STDLIB_ONLY and (top := i.imported.split(".")[0]) not in sys.stdlib_module_names
        if top not in DISTRIBUTED
    ]
    assert found == []


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("jumper.schema.columns", "import jumper.monitor.segment"),
        ("jumper.schema.columns", "def f():\n    from jumper.monitor import segment"),
        ("jumper.store.merge", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jumper.core import run"),
        ("jumper.monitor.agent", "from ..store import merge"),
        ("jumper.adapters.data", "from jumper.adapters.session import export"),
        ("jumper.cli", "from jumper_dask.demo import run_demo"),
        ("jumper_dask.collect", "import jumper_snakemake"),
        ("jumper.monitor.agent", "from jumper import open_run"),
        ("jumper", "from jumper.core.run import open_run"),
        ("jumper.utilities", "from jumper.schema.errors import JumperError"),
        ("jumper.cli", "import jumper.nowhere"),
    ],
)
def test_a_wrong_import_is_found(importer: str, source: str) -> None:
    (wrong,) = (f for each in imports_of(importer, source) if (f := fault(each)))
    assert importer in wrong


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("jumper.core.run", "from jumper.schema.columns import COLUMNS\nimport jumper.store.merge"),
        ("jumper.cli", "def demo():\n    from jumper_dask.demo import run_demo"),
        ("jumper.monitor.agent", "from . import segment\nfrom jumper.utilities import node_name"),
        ("jumper_dask.plugin", "import jumper.monitor.agent_process"),
    ],
)
def test_a_right_import_passes(importer: str, source: str) -> None:
    assert [f for each in imports_of(importer, source) if (f := fault(each))] == []
