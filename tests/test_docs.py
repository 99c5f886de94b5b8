"""The documents hold what the schema says; their tables are made from it (`python -m tests.test_docs` writes them)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jumper.schema import COLUMNS, DERIVED, DEVICE_COLUMNS, STREAMS, TASK_COLUMNS

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


TABLES = {"numbers.md": samples_table, "run.md": tasks_table}
MARKS = re.compile(r"<!-- from jumper/schema -->\n.*?<!-- end -->", re.DOTALL)


def with_table(name: str) -> str:
    """The document with its table as it should be."""
    text = (DOCS / name).read_text()
    table = f"<!-- from jumper/schema -->\n{TABLES[name]()}\n<!-- end -->"
    assert MARKS.search(text), f"docs/{name} has lost the marks of its table"
    return MARKS.sub(lambda _: table, text)


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_the_schemas(name: str) -> None:
    assert (DOCS / name).read_text() == with_table(name), "run `python -m tests.test_docs`"


def test_the_documents_name_every_flag_that_the_code_sets() -> None:
    said = (DOCS / "numbers.md").read_text()
    code = Path(DOCS.parent / "jumper/analysis/attribution.py").read_text()
    for flag in re.findall(r'\["flags"\]\.append\("([\w-]+)"\)', code):
        assert f"| `{flag}` |" in said, flag


if __name__ == "__main__":
    for document in TABLES:
        (DOCS / document).write_text(with_table(document))
