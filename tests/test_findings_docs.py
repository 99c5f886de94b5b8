"""docs/findings.md: its table of thresholds is the code's, its example is printed, its lines run (-m writes)."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from jumper import cli
from jumper.analysis.findings import findings, thresholds
from jumper.analysis.units import human_bytes
from jumper.report.found import FindingsText
from tests import made
from tests.test_findings import FAULTS, GB, node_samples, slowed, workflow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "findings.md"
TABLE = re.compile(r"(?<=<!-- from jumper/analysis/findings/thresholds.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
EXAMPLE = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def table() -> str:
    """The thresholds as Markdown."""
    rows = ["| threshold | finding | value | is |", "|---|---|---|---|"]
    for name, one in thresholds.THRESHOLDS.items():
        named = ", ".join(f"`{finding}`" for finding in one.finding.split(", ")) if one.finding else "all"
        value = human_bytes(one) + one.unit[1:] if one.unit[0] == "B" else f"{float(one):g} {one.unit}"
        rows.append(f"| `{name}` | {named} | {value} | {one.meaning} |")
    return "\n".join(rows) + "\n"


def example() -> str:
    """What three made runs with a fault each print."""
    runs = (
        workflow(memory_asked_bytes=20 * GB),
        workflow(wall_s=slowed("n2", 100.0), cpu_s=57.0),
        node_samples(workflow(), 3.9, 0.95),
    )
    out = io.StringIO()
    Console(file=out, width=120).print(FindingsText([one for run in runs for one in findings(run)]))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def as_it_should_be() -> str:
    return EXAMPLE.sub(lambda _: example(), TABLE.sub(lambda _: table(), PAGE.read_text()))


def test_thresholds_and_example_are_those_of_the_code() -> None:
    assert PAGE.read_text() == as_it_should_be(), "run `python -m tests.test_findings_docs`"


def test_each_finding_is_explained_and_has_its_thresholds() -> None:
    explained = set(re.findall(r"`([\w-]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE))))
    names = {name for name, *_ in FAULTS.values()} | {"leak", "missing"}
    assert names <= explained
    read = {name for one in thresholds.THRESHOLDS.values() for name in one.finding.split(", ") if name}
    assert read <= names and names - read <= {"failed", "missing", "oom-kills"}


def test_the_lines_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(made.make(60, threads=1, samples=False), tmp_path / "RUN")
    monkeypatch.chdir(tmp_path)
    (lines,), (code,) = (re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL) for kind in ("sh", "python"))
    for line in lines.splitlines():
        assert cli.main(shlex.split(line)[1:]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "ValueError: bad header" in said, line
    exec(compile(code, "docs/findings.md", "exec"), {})
    assert "high failed" in capsys.readouterr().out


if __name__ == "__main__":
    PAGE.write_text(as_it_should_be())
