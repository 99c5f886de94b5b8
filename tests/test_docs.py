"""The documents hold what the schema says; their tables are made from it (`python -m tests.test_docs` writes them)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from jumper.schema import COLUMNS, DERIVED, DEVICE_COLUMNS, FLAGS, STREAMS, TASK_COLUMNS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def samples_table() -> str:
    """Columns of the samples, as Markdown."""
    rows = ["| column | unit | kind | streams | over processes, nodes, time | source |", "|---|---|---|---|---|---|"]
    for c in (*COLUMNS, *DEVICE_COLUMNS):
        adds = f"{c.over_processes}, {c.over_nodes}, {c.over_time}"
        rows.append(
            f"| `{c.name}` | {c.unit} | {c.kind} | {', '.join(c.scope)} | {adds} | {c.source} |".replace("#", "<i>")
        )
    rows += [
        "",
        "The documents' columns, derived when they are read:",
        "",
        "| column | unit | source |",
        "|---|---|---|",
    ]
    rows += [f"| `{c.name}` | {c.unit} | {c.source} |".replace("#", "<i>") for c in DERIVED]
    rows.append("| `cpu_util_<i>` | % | core i; for process, user and slurm the total over the CPUs, repeated |")
    rows.append("| `gpu_util_<i>`, `gpu_band_<i>`, `gpu_mem_<i>` | %, %, GiB | GPU i |")
    rows += ["", "Streams:", "", "| stream | rows |", "|---|---|"]
    rows += [f"| `{name}` | {meaning} |" for name, meaning in STREAMS.items()]
    return "\n".join(rows)


def tasks_table() -> str:
    """Columns of the tasks table, as Markdown."""
    rows = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    rows += [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in TASK_COLUMNS]
    return "\n".join(rows)


def flags_table() -> str:
    """What the flags of a task mean, as Markdown."""
    return "\n".join(
        ["| flag | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in FLAGS.items())]
    )


TABLES = {"samples": samples_table, "tasks": tasks_table, "flags": flags_table}
PAGES = {"numbers.md": {"flags", "samples"}, "run.md": {"tasks"}}
MARKS = re.compile(r"(<!-- from jumper/schema: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(name: str) -> str:
    """The document with its tables as they should be."""
    text = (DOCS / name).read_text()
    assert {found for _, found, _ in MARKS.findall(text)} == PAGES[name], f"docs/{name} has lost the marks of a table"
    return MARKS.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_are_the_schemas(name: str) -> None:
    assert (DOCS / name).read_text() == with_tables(name), "run `python -m tests.test_docs`"


def flags_in(code: ast.AST) -> set[str]:
    """The texts that a module puts into `flags`, or asks for there."""
    found: set[str] = set()
    for node in ast.walk(code):
        match node:
            case ast.Call(ast.Attribute(ast.Subscript(slice=ast.Constant("flags")), "append"), values):
                pass
            case ast.Call(ast.Attribute(attr="flagged"), values):
                pass
            case ast.Compare(ast.Constant() as text, comparators=[ast.Subscript(slice=ast.Constant("flags"))]):
                values = [text]
            case ast.Assign([ast.Attribute(attr="flags") | ast.Name("UNSURE" | "SHARED")], ast.Tuple(values)):
                pass
            case ast.Dict(keys, values):
                values = [
                    v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value == "flags"
                ]
            case _:
                continue
        within = [each for value in values for each in ast.walk(value)]
        found |= {each.value for each in within if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found - {"flags"}


def test_the_flags_that_the_code_sets_or_asks_for_are_those_that_the_documents_explain() -> None:
    packages = [DOCS.parent / name for name in ("jumper", "jumper_dask", "jumper_snakemake")]
    code = [ast.parse(path.read_text()) for package in packages for path in package.rglob("*.py")]
    assert set().union(*map(flags_in, code)) == FLAGS.keys() - {"nodes 1/2"}  # that one is put together


def test_the_kinds_of_events_are_those_that_the_documents_explain() -> None:
    packages = [DOCS.parent / name for name in ("jumper", "jumper_dask", "jumper_snakemake")]
    noted: dict[bool, set[str]] = {True: set(), False: {"torn-block", "missing-block"}}
    for path in (path for package in packages for path in package.rglob("*.py")):
        code = re.sub(r"^ *(>>>|\.\.\.) .*$", "", path.read_text(), flags=re.MULTILINE)
        called = re.findall(r'\._?event\((?:None, |self\.name, )?"([a-z]+-[a-z]+)"', code)
        noted[path.parent.name == "slurm_multinode"].update(
            called, re.findall(r'"type": "event",\s*"kind": "([a-z-]+)"', code)
        )
    section = (DOCS / "segment.md").read_text().split("### Events")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)} == noted[False]
    said = (DOCS / "slurm.md").read_text() + section
    assert {kind for kind in noted[True] if f"`{kind}`" not in said} == set()
    assert "log-lost" in noted[True]


if __name__ == "__main__":
    for document in PAGES:
        (DOCS / document).write_text(with_tables(document))
