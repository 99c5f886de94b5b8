"""Runs that are odd or damaged: each has a page, a summary and findings that read well, and nothing is hidden."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import jumper
from jumper.analysis.timeline import FAR_NS, span_of
from jumper.report import terminal
from jumper.report.data import RunRows
from jumper.report.elements import dominant
from jumper.report.found import as_json
from jumper.report.page import builder, charts, tables
from jumper.schema import RUN_SCHEMA
from jumper.schema.errors import RunError
from tests import made

SCRIPT = "</script><script>pwned=1</script>"
#: What no reader should ever see.
UGLY = re.compile(r"\b(nan|None|NaN|inf|NaT|&lt;NA&gt;)\b")


def words(run: made.Made) -> str:
    """Return what a reader of the page sees, one space between words; fails where it reads badly."""
    text = builder.page(run)
    seen = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S)
    alternatives = " ".join(re.findall(r'aria-label="([^"]*)"', seen))
    seen = " ".join((re.sub(r"<[^>]+>", " ", seen) + alternatives).split())
    assert not UGLY.search(seen), UGLY.search(seen)
    out = io.StringIO()
    Console(file=out, width=140).print(terminal.summary_table(run))
    assert not UGLY.search(out.getvalue()), out.getvalue()
    json.dumps([terminal.summary_json(run), as_json(run)], allow_nan=False)
    return seen


def test_a_run_without_samples_says_so_and_draws_what_its_tasks_say() -> None:
    seen = words(made.make(30, samples=False))
    assert "This run has no samples" in seen and "30 attempts on 2 nodes" in seen


def test_a_run_without_tasks_says_so() -> None:
    seen = words(made.make(0))
    assert "This run has no tasks." in seen and "Task groups" not in seen
    assert "neither attempts nor samples" in words(made.make(0, samples=False))


def test_one_task_has_its_figures_and_no_distribution() -> None:
    run = made.make(1)
    seen = words(run)
    assert "1 task, none failed" in seen and "Duration" not in seen and charts.boxes(RunRows(run)) == []
    assert "1 attempt on 1 node;" in seen
    assert "Memory: allowed (tick)" in seen and "read: allowed 4.00 GiB" in seen, "nobody asked for it"


def test_where_all_failed_the_first_sentence_says_what_failed() -> None:
    run = made.make(30, state="failed")
    seen = words(run)
    assert "30 tasks, 30 failed or lost" in seen and "ValueError: bad header" in seen.split("What stands out")[0]


def test_a_silent_node_is_missing_and_not_idle() -> None:
    run = made.make(60)
    run.streams = {name: frame[frame["node"] != "n2"] for name, frame in run.streams.items()}
    rows = RunRows(run)
    assert rows.silent == ["n2"] and np.isnan(rows.node_cpu["n2"]).all() and not np.isnan(rows.node_cpu["n1"]).all()
    seen = words(run)
    assert "No samples came from n2." in seen and "CPU of the nodes, n2: no samples at all." in seen
    assert {n["name"]: n["silent"] for n in tables.nodes(rows)} == {"n1": False, "n2": True}
    assert "no samples" in seen.split("What ran where")[1]


def test_a_gap_in_the_samples_is_told_in_words_and_drawn_in_its_colour() -> None:
    run = made.make(60)
    system = run.streams["system"]
    at = (system["time_ns"] - made.START_NS) / 1e9
    run.streams["system"] = system[(system["node"] != "n2") | (at < 20) | (at > 40)]
    line = RunRows(run).node_cpu["n2"]
    assert 0.2 < np.isnan(line).mean() < 0.45
    assert re.search(r"n2: busy \d+ % on average, no samples in \d+% of the time", words(run))


@pytest.mark.parametrize("years", [-30, 10])
def test_a_clock_that_jumped_by_years_does_not_squeeze_the_rest(years: int) -> None:
    run = made.make(60)
    late = run.tasks.index[:2]
    for column in ("start_ns", "stop_ns"):
        run.tasks.loc[late, column] += years * 365 * 86_400 * made.SECOND
    process = run.streams["process"]
    process.loc[process.index[:3], "time_ns"] += years * 365 * 86_400 * made.SECOND
    first, last = span_of(run) or (0, 0)
    assert last - first < 1000 * made.SECOND < FAR_NS
    assert "2 attempts lie more than a month from the others" in words(run)


def test_clocks_that_run_backwards_give_no_negative_times() -> None:
    run = made.make(40)
    run.tasks.loc[5, "stop_ns"] = run.tasks.loc[5, "start_ns"] - 10 * made.SECOND
    for frame in run.streams.values():
        half = frame["time_ns"] > made.START_NS + 20 * made.SECOND
        frame.loc[half, "time_ns"] -= 15 * made.SECOND
    rows = RunRows(run)
    assert all(line.min() >= 0 for line in rows.cpu_lines.values()) and (rows.bars["stop"] >= rows.bars["start"]).all()
    words(run)


def test_a_group_that_is_a_script_stays_text_in_every_picture() -> None:
    run = made.make(40, names=(SCRIPT, "b"))
    run.tasks["memory_asked_bytes"] = pd.array([16 * made.GIB] * 40, dtype="Int64")
    text = builder.page(run).replace(builder._bokeh_js(), "")
    assert len(re.findall(r"<script", text)) == len(re.findall(r"</script", text)) == 4
    assert text.count("&lt;/script&gt;") >= 5  # legend, table, first sentence, pictures and their words


@pytest.mark.parametrize("times", [1_000, pytest.param(25_000, marks=pytest.mark.slow)], ids=["40,000", "a million"])
def test_many_tasks_have_a_bounded_page_that_says_what_it_leaves_out(times: int) -> None:
    run = made.make(40, nodes=4, workers=2, threads=1)
    table = run.tasks.iloc[np.tile(np.arange(40), times)].reset_index(drop=True)
    table["attempt_id"] = pd.Series(range(len(table))).astype("string")
    table["group"] = [f"group-{i}" for i in range(1000)] * (len(table) // 1000)
    for column in ("start_ns", "stop_ns"):
        table[column] += np.repeat(np.arange(times) * 60 * made.SECOND, 40)
    run.tasks = table
    text = builder.page(run)
    assert len(text) < 5_000_000
    for said in (f"The table holds the 5,000 longest and failed of {40 * times:,} attempts", "200 of 1,000 groups",
                 "tasks.parquet"):  # fmt: skip
        assert said in text, said


def test_of_many_lanes_several_share_a_row() -> None:
    run = made.make(3000, nodes=3, workers=20, threads=10, interval_s=60.0)
    rows = RunRows(run)
    assert rows.folded
    lanes, spans = rows.lanes
    height = max(end for _, end in spans.values())
    assert height <= 400 and lanes.max() < height
    image = dominant(rows, rows.bars, height)
    names = list(rows.colour)
    for row in range(0, height, 37):
        for where in (50, 300, 550):
            at = rows.grid.start_ns + int((where + 0.5) * rows.grid.width_s * 1e9)
            here = rows.bars[(lanes == row) & (rows.bars["start"] <= at) & (rows.bars["stop"] > at)]
            if len(here):
                assert image[row, where] >= 0 and names[image[row, where]] in set(rows.bars["type"])
    assert "a row stands for several lanes" in words(run)


def test_an_older_run_that_lacks_columns_and_keys_reads_well(tmp_path: Path) -> None:
    run = made.make(30)
    opened = jumper.open_run(made.write(run, tmp_path / "run"))
    table = pd.read_parquet(opened.path / "tasks.parquet")
    few = ["key", "attempt_id", "group", "node", "start_ns", "stop_ns", "state"]
    for segment in (opened.path / "spool").iterdir():
        segment.unlink()
    table[few].to_parquet(opened.path / "tasks.parquet")
    info = json.loads((opened.path / "run.json").read_text())
    kept = {name: info[name] for name in ("schema", "run", "files")}
    (opened.path / "run.json").write_text(json.dumps(kept))
    old = jumper.open_run(opened.path)
    assert old.report().stat().st_size > 10_000
    assert "30 tasks" in words(old)  # type: ignore[arg-type]


def test_a_newer_run_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema": RUN_SCHEMA + 1, "run": "x"}))
    with pytest.raises(RunError, match=rf"newer jumper \(schema {RUN_SCHEMA + 1}, this one reads up to {RUN_SCHEMA}\)"):
        jumper.open_run(tmp_path)
