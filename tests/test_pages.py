"""What README and the documents show works as it stands; no code block of theirs is without a test that runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jumper

REPOSITORY = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PAGES = [
    path for name in ("README.md", "CONTRIBUTING.md", "docs/*.md", "examples/*/*.md") for path in REPOSITORY.glob(name)
]
#: (page, language) -> the tests that run its blocks; a block without a language is a picture of a folder or of output
RUN_BY = {
    ("README.md", "sh"): "tests/test_pages.py",
    ("README.md", "python"): "tests/test_pages.py",
    ("CONTRIBUTING.md", "python"): "tests/test_contributing.py",
    ("CONTRIBUTING.md", "yaml"): "tests/test_contributing.py",
    ("docs/advice.md", "python"): "tests/test_cli_advice.py",
    ("docs/advice.md", "sh"): "tests/test_cli_advice.py",
    ("docs/collectors.md", "python"): "tests/test_documents.py",
    ("docs/collectors.md", "yaml"): "tests/test_documents.py",
    ("docs/collectors.md", "sh"): "tests/test_pages.py",
    ("docs/collectors.md", "c"): "tests/test_c_collectors.py",
    ("docs/collectors.md", "toml"): "tests/test_entry_points.py",
    ("docs/compare.md", "python"): "tests/test_cli_advice.py",
    ("docs/compare.md", "sh"): "tests/test_cli_advice.py",
    ("docs/compare.md", "text"): "tests/test_cli_advice.py",
    ("docs/dask.md", "python"): "tests/dask/test_docs.py",
    ("docs/dask.md", "sh"): "tests/dask/test_preload.py",
    ("docs/dask.md", "yaml"): "tests/dask/test_config.py",
    ("docs/export.md", "python"): "tests/test_export.py",
    ("docs/export.md", "sh"): "tests/test_cli_advice.py",
    ("docs/findings.md", "python"): "tests/test_findings_docs.py",
    ("docs/findings.md", "sh"): "tests/test_findings_docs.py",
    ("docs/findings.md", "text"): "tests/test_findings_docs.py",
    ("docs/gpu.md", "python"): "tests/gpu/test_docs.py",
    ("docs/gpu.md", "sh"): "tests/gpu/test_docs.py",
    ("docs/gpu.md", "yaml"): "tests/gpu/test_docs.py",
    ("docs/notebooks.md", "python"): "tests/test_plots.py",
    ("docs/numbers.md", "python"): "tests/test_pages.py",
    ("docs/report.md", "sh"): "tests/test_pages.py",
    ("docs/run.md", "python"): "tests/test_pages.py",
    ("docs/segment.md", "json"): "tests/test_pages.py",
    ("docs/slurm.md", "python"): "tests/cluster/test_slurm_multinode.py",
    ("docs/service.md", "python"): "tests/documents/test_pages.py",
    ("docs/sessions.md", "python"): "tests/documents/test_pages.py",
    ("docs/slurm.md", "sh"): "tests/snakemake/test_slurm.py",
    ("docs/slurm.md", "yaml"): "tests/snakemake/test_slurm.py",
    ("docs/snakemake.md", "sh"): "tests/snakemake/test_docs.py",
    ("examples/c_collector/README.md", "sh"): "tests/test_c_collectors.py",
    ("examples/collector_package/README.md", "sh"): "tests/test_entry_points.py",
    ("examples/custom_collector/README.md", "sh"): "tests/test_pages.py",
    ("examples/dask/README.md", "sh"): "tests/test_examples.py",
    ("examples/snakemake/README.md", "sh"): "tests/snakemake/test_example.py",
}


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    found = BLOCK.findall((REPOSITORY / page).read_text())
    return [textwrap.dedent(text) for _, name, text in found if name == language]


def section(page: str, title: str, language: str) -> str:
    """Return the one code block of a language below a heading of a page."""
    text = (REPOSITORY / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    (found,) = [text for _, name, text in BLOCK.findall(text) if name == language]
    return found


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run lines of a shell in a folder of their own, with `jumper` and `python` of this environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {"jumper": "-m jumper", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {line} "$@"\n')
        (programs / name).chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(lines: str) -> str:
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, env=environment, timeout=200)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
        return done.stdout

    run.programs = programs  # type: ignore[attr-defined]
    return run


def test_every_code_block_is_run_by_some_test() -> None:
    shown = {
        (str(page.relative_to(REPOSITORY)), name) for page in PAGES for _, name, _ in BLOCK.findall(page.read_text())
    }
    assert {key for key in shown if key[1]} - set(RUN_BY) == set(), "name the test that runs it in RUN_BY"
    for (page, language), test in RUN_BY.items():
        assert Path(page).stem in (REPOSITORY / test).read_text(), f"{test} does not read the {language} of {page}"


def test_the_files_that_the_pages_name_are_there() -> None:
    gone = []
    for page in PAGES:
        text = BLOCK.sub("", page.read_text())
        links = [name for name in re.findall(r'(?:\]\(|src(?:set)?=")([^)#"]+)', text) if "://" not in name]
        named = re.findall(r"`((?:jumper\w*|tests|docs|examples|benchmarks|ext|changelog\.d)/[\w./]*[\w/])`", text)
        gone += [f"{page.name}: {name}" for name in links if not (page.parent / name).exists()]
        gone += [f"{page.name}: {name}" for name in named if not (REPOSITORY / name).exists()]
    assert gone == []


def test_the_two_commands_are_targets_that_set_themselves_up() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    named = re.findall(r"`make ([a-z]+)", "\n".join(p.read_text() for p in PAGES))
    for target in {*named, "demo", "test"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine")
    for target in re.findall(r"^make (\w+)", section("README.md", "The two commands", "sh"), re.MULTILINE):
        plan = subprocess.run([make, "-n", "-B", target], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert plan.returncode == 0 and "-m venv" in plan.stdout and "pip install" in plan.stdout, plan.stderr


def test_the_readme_s_command_is_measured(shell: Any) -> None:
    out = shell(section("README.md", "Any command", "sh"))
    assert "sorted.run/report.html" in out and Path("sorted.run/report.html").stat().st_size > 10_000
    (task,) = jumper.open_run("sorted.run").tasks.to_dict("records")
    assert task["state"] == "done" and task["cpu_s"] > 0
    assert task["write_chars"] >= Path("sorted.txt").stat().st_size


def test_the_readme_s_dask_lines_measure_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.submit(sum, [1]).result()
        before, after = section("README.md", "Dask", "python").split("...\n")
        space = {"client": client}
        exec(before, space)
        client.submit(sum, [1, 2], key="three").result()
        exec(after, space)
    assert "three" in set(space["run"].tasks["key"])  # type: ignore[attr-defined]
    assert (space["run"].path / "report.html").exists()  # type: ignore[attr-defined]
    Path("RUN").symlink_to(space["run"].path)  # type: ignore[attr-defined]
    exec(*blocks("docs/numbers.md", "python"), {})
    assert "cpu_unattributed_ns" in capsys.readouterr().out


def test_the_readme_s_slurm_lines_give_one_run_of_all_ranks(shell: Any) -> None:
    """srun(1) as far as it matters here: so many copies at once, each with its rank in the environment."""
    each = 'SLURM_JOB_ID=7 SLURM_NTASKS=$n SLURM_PROCID=$i "$@"'
    programs = {
        shell.programs / "srun": f"n=${{1#-n}}; shift\nfor i in $(seq 0 $((n - 1))); do {each} & done\nwait\n",
        Path("solver"): "exit 0\n",
    }
    for program, lines in programs.items():
        program.write_text("#!/bin/bash\n" + lines)
        program.chmod(0o755)
    out = shell(section("README.md", "Slurm", "sh").replace("-n64", "-n4"))
    assert "solver" in out
    tasks = jumper.open_run("solver.run").tasks
    assert tasks.attempt_id.nunique() == len(tasks) == 4 and set(tasks.state) == {"done"}


def test_the_example_s_lines_leave_its_column_in_the_report(shell: Any) -> None:
    shutil.copytree(REPOSITORY / "examples" / "custom_collector", ".", dirs_exist_ok=True)
    (lines,) = blocks("examples/custom_collector/README.md", "sh")
    shell(lines)
    assert jumper.open_run("open-files.run").samples("process")["open_files"].max() >= 100
    assert "open_files" in Path("open-files.run/report.html").read_text()


def test_the_line_of_the_page_on_collectors_finds_the_collector(shell: Any) -> None:
    page = "docs/collectors.md"
    Path("load.py").write_text(blocks(page, "python")[0])
    Path("collectors.yaml").write_text(*blocks(page, "yaml"))
    Path("my_script.py").write_text("import time; time.sleep(1.5)\n")
    shell(*blocks(page, "sh"))
    (run,) = Path("jumper-runs").iterdir()
    assert jumper.open_run(run).samples("system")["load_1min"].notna().any()


def test_the_page_on_runs_reads_one_with_pandas(shell: Any) -> None:
    shell("jumper run -o RUN -- sleep 0.2; jumper summary RUN")
    space: dict[str, Any] = {}
    exec(*blocks("docs/run.md", "python"), space)
    assert isinstance(space["samples"], pd.DataFrame) and len(space["samples"]) >= 2


def test_the_page_on_reports_writes_one_in_each_theme(shell: Any) -> None:
    (lines,) = blocks("docs/report.md", "sh")
    shell("jumper run -o RUN -- sleep 0.2\n" + lines)
    light, dark = Path("RUN/report.html").read_text(), Path("night.html").read_text()
    assert 'data-theme="light"' in light and 'data-theme="dark"' in dark


def test_the_schema_block_that_the_page_on_segments_shows_is_one_that_is_read(tmp_path: Path) -> None:
    from jumper.store.segments import read_segment
    from tests.test_segment import block

    (text,) = blocks("docs/segment.md", "json")
    shown = json.loads(text)
    rows = struct.pack("<HHI", 1, 3, 1) + b"\1\1\1" + bytes(5) + struct.pack("<3q", 10, 4711, 100)
    file = tmp_path / f"{shown['segment']}.seg"
    file.write_bytes(block(1, 0, text.encode()) + block(2, 1, rows))
    read = read_segment(file)
    assert read.header["node"] == "n1"
    assert read.table("process")["cpu_ns"][0].tolist() == [100]
