"""Jobs with known cost on the local executor, beside each other: what they say, and what we say of them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jumper.monitor.backends import native_built
from jumper.monitor.spawn import SPAWN
from tests.snakemake.conftest import CASES, PLAIN, Workflow

ENGINES = ["python", pytest.param("native", marks=pytest.mark.skipif(not native_built(), reason="not built"))]
MIB = 1 << 20
STOCK = ["s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time"]


@pytest.fixture(scope="module", params=ENGINES)
def truth(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """All cases, run once an engine."""
    folder = tmp_path_factory.mktemp(f"truth-{request.param}")
    shutil.copytree(CASES, folder, dirs_exist_ok=True)
    made = Workflow(folder)
    failed = made.call(
        "--keep-going",
        "all",
        "o/failing.txt",
        "o/killed.txt",
        logger=(*PLAIN, "--logger-jumper-backend", request.param),
    )
    assert failed.returncode == 1, failed.stderr
    assert f", in 13 attempts: `jumper summary {made.runs()[0].relative_to(folder)}`" in failed.stderr
    return made


def close(value: Any, truth: float, part: float, least: float) -> bool:
    return abs(float(value) - truth) <= max(part * truth, least)


def cpu(value: Any, truth_s: float) -> bool:
    return close(value, truth_s, 0.02, 0.02)


def times(file: Path) -> float:
    """Return what the shell says in `times` that it and its children used, in seconds (bash(1), "times")."""
    words = [word.rstrip("s").split("m") for word in file.read_text().split()]
    return sum(60 * float(minutes) + float(seconds) for minutes, seconds in words)


def benchmark(made: Workflow, case: str) -> dict[str, float]:
    """Return the row of a `benchmark:` file, by Snakemake's columns."""
    header, (values,) = _table(made.folder / f"b/{case}.tsv")
    assert header == STOCK
    return {name: float(value) for name, value in zip(header, values, strict=True) if name != "h:m:s"}


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(path.read_text().splitlines(), delimiter="\t")
    return header, rows


def test_short_children_are_counted(truth: Workflow) -> None:
    said = times(truth.folder / "o/kids.times")
    assert cpu(truth.task("kids")["cpu_s"], said)
    assert truth.task("kids")["processes"] >= 10  # type: ignore[operator]
    found = benchmark(truth, "kids")
    assert cpu(found["cpu_time"], said)
    assert close(found["mean_load"], 100 * said / found["s"], 0.03, 1)


def test_a_peak_at_the_very_end_is_seen(truth: Workflow) -> None:
    said = int((truth.folder / "o/late.peak").read_text())
    task = truth.task("late")
    assert close(task["memory_peak_bytes"], said, 0.01, 0)
    assert task["memory_peak_source"] in ("hwm", "pss", "rss")  # the last sample may have come upon it
    assert close(benchmark(truth, "late")["max_rss"], said / MIB, 0.01, 5)


def test_a_job_shorter_than_a_sample_has_its_cost(truth: Workflow) -> None:
    said = int((truth.folder / "o/brief.peak").read_text())
    assert close(truth.task("brief")["memory_peak_bytes"], said, 0.01, 0)
    assert cpu(truth.task("brief")["cpu_s"], times(truth.folder / "o/brief.times"))
    found = benchmark(truth, "brief")
    assert close(found["max_rss"], said / MIB, 0.01, 5)  # a sample that came just then adds the shell's
    assert found["mean_load"] > 0


@pytest.mark.skipif(not Path(SPAWN).exists(), reason="the program is not built")
def test_a_peak_below_snakemakes_own_is_seen(truth: Workflow) -> None:
    task = truth.task("small")
    # the kernel keeps RSS in batches per CPU: docs/numbers.md
    assert close(task["memory_peak_bytes"], int((truth.folder / "o/small.peak").read_text()), 0.01, MIB / 2)
    assert task["memory_peak_source"] in ("hwm", "pss", "rss")  # the last sample may have come upon it


def test_python_of_a_rule_has_its_own_cost_and_its_childrens(truth: Workflow) -> None:
    task = truth.task("python")
    said = float((truth.folder / "o/python.txt").read_text())
    assert said > 0.8
    assert cpu(task["cpu_s"], said)
    assert close(benchmark(truth, "python")["cpu_time"], float(task["cpu_s"]), 0, 0.006)  # type: ignore[arg-type]
    # its children of 9 MB may be there before it is known what they share
    assert set(task["flags"]) <= {"memory-estimated"}  # type: ignore[call-overload]
    assert task["memory_peak_bytes"] >= task["rss_start_bytes"] > 30 * MIB  # type: ignore[operator]


def test_a_child_that_detaches_stays_with_its_job(truth: Workflow) -> None:
    said = int((truth.folder / "o/detached.peak").read_text())
    task = truth.task("detached")
    assert close(task["memory_peak_bytes"], said, 0.01, 0)
    assert said / MIB <= benchmark(truth, "detached")["max_rss"] <= said / MIB + 20  # and the shell, and a sleep


def test_every_failed_attempt_has_its_cost_and_no_benchmark_file(truth: Workflow) -> None:
    for attempt in (1, 2):
        task = truth.task("failing", f"{attempt}.1.1")
        assert (task["state"], task["exit_code"], task["reason"]) == ("failed", 3, "exit status 3")
        assert (task["attempt"], task["memory_asked_bytes"]) == (attempt, attempt * 10**8)
        assert cpu(task["cpu_s"], times(truth.folder / f"o/failing.{attempt * 100}.times"))
    assert not (truth.folder / "b/failing.tsv").exists()


def test_a_job_that_is_killed_says_so(truth: Workflow) -> None:
    task = truth.task("killed")
    assert (task["state"], task["exit_code"], task["reason"]) == ("failed", -9, "ended by signal 9")


def test_each_repeat_is_a_row_here_and_in_the_file(truth: Workflow) -> None:
    lines = [json.loads(line) for line in (truth.folder / "b/script.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for repeat, line in enumerate(lines, 1):
        task = truth.task("script", f"1.1.{repeat}")
        assert 0.6 <= float(task["cpu_s"]) <= 0.8  # type: ignore[arg-type]
        assert line["cpu_time"] == pytest.approx(task["cpu_s"])
        assert line["s"] == pytest.approx(task["wall_s"], abs=1e-3)


def test_shared_pages_count_once_in_pss_and_uss(truth: Workflow) -> None:
    found = benchmark(truth, "readers")
    assert close(found["max_pss"], 200e6 / MIB, 0.06, 0)
    assert close(truth.task("readers")["memory_peak_bytes"], 200e6, 0.06, 0)
    assert found["max_rss"] > 4 * 200e6 / MIB
    assert found["max_uss"] <= found["max_pss"]


def test_bytes_through_system_calls_are_exact(truth: Workflow) -> None:
    assert close(truth.task("written")["write_chars"], 20 * MIB, 0, 4096)


def test_the_run_says_who_each_job_was(truth: Workflow) -> None:
    run = truth.run()
    assert run.info["kind"] == "snakemake"
    assert set(run.info["versions"]) == {"jumper", "python", "snakemake"}
    assert run.info["coverage"]["expected"] == run.info["coverage"]["came"] == len(run.tasks) == 13
    assert "all" not in set(run.tasks["key"])
    assert set(run.tasks["kind"]) == {"snakemake"}


def test_benchmarks_tsv_has_every_attempt_of_every_rule(truth: Workflow) -> None:
    header, rows = _table(truth.runs()[0] / "benchmarks.tsv")
    assert header[: len(STOCK)] == STOCK
    assert len(rows) == len(truth.run().tasks)
    kids = next(row for row in rows if row[header.index("rule")] == "kids")
    assert cpu(kids[header.index("cpu_time")], times(truth.folder / "o/kids.times"))
    for name in ("max_vms", "max_uss"):  # no high-water mark keeps these: as in the job's own file, or not known
        found = {(row[header.index("rule")], row[header.index("attempt")]): row[header.index(name)] for row in rows}
        for case in ("kids", "late", "python", "readers"):
            assert float(found[case, "1.1.1"]) == pytest.approx(benchmark(truth, case)[name], abs=0.011)
        for repeat, line in enumerate((truth.folder / "b/script.jsonl").read_text().splitlines(), 1):
            assert float(found["script", f"1.1.{repeat}"]) == pytest.approx(json.loads(line)[name], abs=0.011)
        assert found["small", "1.1.1"] == found["killed", "1.1.1"] == "NA"
    peaks = [f"{peak / MIB:.2f}" for peak in truth.run().tasks["memory_peak_bytes"]]
    assert sorted(row[header.index("max_pss")] for row in rows) == sorted(peaks)


def test_a_job_that_is_over_at_once_took_as_long_as_its_cpu_time(workflow: Callable[[str], Workflow]) -> None:
    flow = workflow(
        "rule all:\n    input: expand('{i}', i=range(12))\nrule one:\n    output: '{i}'\n    shell: ': > {output}'\n"
    )
    flow.done("-j1")
    tasks = flow.run().tasks
    assert len(tasks) == 12
    assert (tasks["wall_s"] >= tasks["cpu_s"]).all(), tasks[["wall_s", "cpu_s"]]


def test_memory_of_a_notebook_is_not_that_of_a_sibling(workflow: Callable[[str], Workflow]) -> None:
    pytest.importorskip("papermill")
    made = workflow("""
rule all:
    input: "notebook.txt", "sibling.txt"
rule notebook:
    output: "notebook.txt"
    benchmark: "notebook.tsv"
    notebook: "n.py.ipynb"
rule sibling:
    output: "sibling.txt"
    shell: "python -S -c 'held = bytearray(700_000_000); import os, time; t = time.time()\\n"
           "while not os.path.exists(\\"notebook.txt\\") and time.time() - t < 120: time.sleep(0.1)'; touch {output}"
""")
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
            "source": "open(snakemake.output[0], 'w').close()"}  # fmt: skip
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    (made.folder / "n.py.ipynb").write_text(
        json.dumps(
            {
                "cells": [cell],
                "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )
    made.done("-j2")
    task = made.task("notebook")
    assert task["memory_peak_bytes"] < 400e6  # type: ignore[operator]
    assert benchmark_of(made.folder / "notebook.tsv")["max_rss"] < 400e6 / MIB
    assert made.task("sibling")["memory_peak_bytes"] > 700e6  # type: ignore[operator]


def benchmark_of(path: Path) -> dict[str, float]:
    header, (values,) = _table(path)
    return {name: float(value) for name, value in zip(header, values, strict=True) if name != "h:m:s"}
