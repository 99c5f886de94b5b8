"""The report: models with one time axis, a page that asks for nothing and escapes everything, runs of all kinds."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from jumper.analysis import timeline
from jumper.analysis.findings import Finding, findings
from jumper.analysis.units import digits, human_bytes, human_seconds, percent
from jumper.report import charts, terminal
from jumper.report.card import repr_html, repr_text
from jumper.report.data import OTHER_GROUPS, RunRows
from jumper.report.elements import MOST_BARS
from jumper.report.found import FindingsText, as_json, found_in, lead
from jumper.report.page import builder, figures, tables, write_report
from jumper.report.page import charts as page_charts
from jumper.report.plots import Plots
from jumper.report.theme import DARK, LIGHT
from jumper.schema.errors import JumperError, RunError
from tests import made

HOSTILE = "</script><script>pwned=1</script><img src=x onerror=pwned=2>\"'`${pwned=3}&lt;@{key}$$x^2$$"


def _run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    root = Path(__file__).resolve().parent.parent
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout


def _figures(run: made.Made) -> list[Any]:
    from bokeh.models import Plot

    layout = figures.linked(RunRows(run), LIGHT)
    assert layout is not None
    return list(layout.select({"type": Plot}))


def _glyphs(run: made.Made, kind: str) -> list[Any]:
    from bokeh.models.renderers import GlyphRenderer

    return [r for f in _figures(run) for r in f.select({"type": GlyphRenderer}) if type(r.glyph).__name__ == kind]


@pytest.fixture(scope="module")
def run() -> made.Made:
    return made.make(60)


@pytest.fixture(scope="module")
def drawn(run: made.Made) -> list[Any]:
    return _figures(run)


def test_all_rows_share_one_time_axis_and_are_drawn_on_canvas(drawn: list[Any]) -> None:
    [brush] = [f for f in drawn if f.title.text.startswith("Running tasks")]
    rows = [f for f in drawn if f is not brush]
    assert len(rows) == 8 and len({f.x_range.id for f in rows}) == 1
    assert brush.x_range.id != rows[0].x_range.id
    assert {f.output_backend for f in drawn} == {"canvas"}
    assert len({(f.min_border_left, f.min_border_right) for f in rows}) == 1
    assert sum(type(tool).__name__ == "RangeTool" for tool in brush.tools) == 1


def test_every_attempt_is_a_bar_with_naive_times(run: made.Made) -> None:
    data = next(r.data_source.data for r in _glyphs(run, "Quad") if "number" in r.data_source.data)
    assert sorted(data["number"]) == list(range(60)) and (data["right"] > data["left"]).all()
    assert str(data["left"].dtype).startswith("datetime64[") and not {"time", "end", "low"} & set(data)
    assert len(set(data["fill"])) == 5


def test_the_line_of_what_was_asked_for_is_named_above_the_picture_not_across_it() -> None:
    from bokeh.models.annotations import Label

    asked = made.make(60)
    asked.tasks["memory_asked_bytes"] = pd.array([made.GIB] * 60, dtype="Int64")
    found = {figure.title.text.split(" by ")[0]: figure for figure in _figures(asked)}
    for name in ("CPU", "Memory"):
        assert "line: asked by tasks" in found[name].title.text
        assert "asked by tasks" not in {label.text for label in found[name].select({"type": Label})}


def test_rows_without_data_are_not_drawn(run: made.Made) -> None:
    assert [len(_figures(r)) for r in (run, made.make(60, custom=False), made.make(10, samples=False))] == [9, 8, 3]


def test_a_custom_column_has_a_row_of_its_own(run: made.Made) -> None:
    assert any(f.title.text == "room_temperature of the node" for f in _figures(run))
    run.streams["process"]["queue_length"] = 3.0
    titles = [f.title.text for f in _figures(run)]
    del run.streams["process"]["queue_length"]
    assert "queue_length of the process" in titles


def test_a_level_that_is_all_zero_gives_way_to_one_with_data() -> None:
    run = made.make(10)
    run.streams["process"]["room_temperature"] = 0.0
    assert [(m.metric, m.level) for m in RunRows(run).custom] == [("room_temperature", "system")]


def test_many_groups_share_the_last_colour() -> None:
    rows = RunRows(made.make(60, names=[f"g{i}" for i in range(12)]))
    assert len(rows.colour) == 8 and list(rows.colour)[-1] == OTHER_GROUPS
    assert rows.cpu is not None and OTHER_GROUPS in rows.cpu.layers
    total = sum(line.sum() for line in rows.cpu.layers.values()) * rows.grid.width_s
    assert total == pytest.approx(float(rows.run.tasks["cpu_s"].sum()) + 0.02 * 4 * rows.grid.width_s * 600, rel=1e-3)


def test_ten_thousand_attempts_are_drawn_in_two_levels_of_detail() -> None:
    run = made.make(10_000, nodes=4, workers=4, threads=4, interval_s=30.0)
    bars = next(r.data_source.data for r in _glyphs(run, "Quad") if "number" in r.data_source.data)
    assert len(bars["number"]) == MOST_BARS
    failed = set(np.flatnonzero(run.tasks["state"] == "failed"))
    assert failed <= set(bars["number"].tolist())
    text = builder.page(run)
    assert "The 5,000 longest and failed of 10,000 attempts" in text and len(text) < 8e6


@pytest.mark.parametrize(
    "run",
    [made.make(0), made.make(0, samples=False), made.make(1), made.make(30, state="failed"), made.make_command(),
     made.make(40, nodes=1, workers=12, threads=1)],
    ids=["no tasks", "nothing", "one task", "all failed", "command", "many workers"],
)  # fmt: skip
def test_runs_of_all_kinds_have_a_page(run: made.Made, tmp_path: Path) -> None:
    text = write_report(run, tmp_path / "r.html").read_text()
    words = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert text.count("<h2 ") >= 3 and not re.search(r"&lt;NA|\b(nan|None|inf)\b", words)
    assert repr_html(run).startswith("<div")


def test_tasks_without_times_or_nodes_are_said_to_be_left_out() -> None:
    run = made.make(12, samples=False)
    for column in ("start_ns", "stop_ns", "node", "cpu_s", "wall_s"):
        run.tasks.loc[:3, column] = None
    assert "4 attempts have no start time" in builder.page(run)


def test_the_page_asks_for_nothing(run: made.Made, tmp_path: Path) -> None:
    text = write_report(run, tmp_path, "dark").read_text()
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert "panel" not in text.replace(builder._bokeh_js(), "").replace("--panel", "")
    assert "default-src 'none'" in text and len(text) < 2_000_000
    assert (tmp_path / "report.html").exists() and [p.name for p in tmp_path.iterdir()] == ["report.html"]


def hostile() -> made.Made:
    """A run in which everything that a stranger can name is an attack."""
    run = made.make(8, nodes=1, names=(HOSTILE, "<b>group</b>"))
    run.tasks["key"] = [f"{HOSTILE}{i}" for i in range(8)]
    run.tasks["reason"] = run.tasks["worker"] = HOSTILE
    run.tasks["annotations"] = json.dumps({"a": HOSTILE})
    run.tasks["node"] = HOSTILE
    for frame in run.streams.values():
        frame["node"] = HOSTILE
    run.streams["system"][f"{HOSTILE}}}{{0}}"] = 1.5
    run.info |= {"run": HOSTILE, "command": [HOSTILE], "nodes": {HOSTILE: {"num_cpus": 2, "kernel": HOSTILE}},
                 "versions": {HOSTILE: HOSTILE}, "coverage": {"missing": [{HOSTILE: HOSTILE}]}}  # fmt: skip
    return run


def test_names_are_text_everywhere() -> None:
    run = hostile()
    text = builder.page(run)
    bokeh = builder._bokeh_js()
    ours = text.replace(bokeh, "")
    assert len(re.findall(r"</script", ours)) == len(re.findall(r"<script", ours)) == 4
    assert "<img" not in ours and "<b>group" not in ours
    card = repr_html(run)
    assert "<script" not in card and "<img" not in card and "\n" not in repr_text(run)


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write the report to .*choose another place"):
        write_report(made.make(1, samples=False), tmp_path / "no" / "such.html")
    with pytest.raises(JumperError, match="light, dark"):
        write_report(made.make(1, samples=False), tmp_path / "r.html", "pink")


def test_plots_compose_and_carry_the_names_of_their_metrics(run: made.Made) -> None:
    import holoviews as hv

    plots = Plots(run)
    assert isinstance(plots.cpu() + plots.memory(), hv.Layout)
    assert isinstance(plots.timeline(), hv.Layout) and len(plots.timeline()) == 8
    assert hv.render(plots.tasks() * hv.VLine(0), backend="bokeh") is not None
    for element in (plots.io(), plots.metric("room_temperature"), plots.metric("cpu_ns", "process")):
        assert hv.render(element, backend="bokeh").output_backend == "canvas"
    with pytest.raises(RunError, match=r"no values of 'humidity'.*room_temperature"):
        plots.metric("humidity")
    with pytest.raises(RunError, match="nothing to draw for 'memory'"):
        Plots(made.make(2, samples=False)).memory()


def test_the_timeline_of_a_notebook_is_linked_too(run: made.Made) -> None:
    import holoviews as hv
    from bokeh.models import Plot

    found = list(hv.render(Plots(run).timeline(), backend="bokeh").select({"type": Plot}))
    assert len({f.x_range.id for f in found}) == 1 and len({f.y_range.id for f in found}) == len(found)


def test_the_session_keeps_its_backend() -> None:
    out = _run("""
        import holoviews as hv
        hv.extension("matplotlib")
        from jumper.report.plots import Plots
        from tests import made
        Plots(made.make(3)).cpu()
        print(hv.Store.current_backend)
    """)
    assert out.split()[-1] == "matplotlib"


def test_the_card_is_light_and_small(run: made.Made) -> None:
    out = _run("""
        import sys
        from jumper.report.card import repr_html
        from tests import made
        print(len(repr_html(made.make(5))), *{"holoviews", "bokeh", "matplotlib", "panel"} & set(sys.modules))
    """)
    assert len(out.split()) == 1 and int(out) < 6000
    assert repr_text(run) == "<jumper run 'dask-7f3a': dask, 60 tasks, 2 nodes, " + repr_text(run).split("nodes, ")[1]


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "bokeh.py").write_text("raise ModuleNotFoundError(\"No module named 'bokeh'\", name='bokeh')\n")
    out = _run("""
        import sys
        sys.path.insert(0, sys.argv[1])
        from jumper.report.page import builder
        from tests import made
        try:
            builder.page(made.make(1))
        except ImportError as error:
            print(type(error).__name__, error, sep=": ")
    """, str(tmp_path))  # fmt: skip
    expected = "MissingExtraError: this needs bokeh, which is not installed; pip install 'jumper-workflows[report]'"
    assert out == expected + "\n"


def test_the_drill_down_knows_the_curve_of_an_attempt(run: made.Made) -> None:
    found = tables.tasks(RunRows(run))
    longest = str(int(np.argmax(run.tasks["wall_s"].to_numpy(dtype=float))))
    curve = found["curves"][longest]["cpu"]
    assert curve["top"] == pytest.approx(0.8, rel=0.01) and max(curve["points"]) == 100
    assert found["total"] == 60 and "span" not in found["values"]


def test_page_terminal_and_tables_say_the_same() -> None:
    run = made.make(60)
    run.tasks["memory_asked_bytes"] = pd.array([16 * made.GIB] * 60, dtype="Int64")
    text, out = builder.page(run), io.StringIO()
    Console(file=out, width=200).print(terminal.summary_table(run))
    printed = {line.split()[0]: line for line in out.getvalue().splitlines() if line.strip()}
    document, truth = terminal.summary_json(run), run.tasks.groupby("group")
    part = text.split('id="groups"')[1].split("</table>")[0]
    shown = {}
    for row in re.findall(r"<tr>(<th scope=.row.*?)</tr>", part, flags=re.S):
        name, *cells = [
            re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.S)
        ]
        shown[name] = cells
    assert set(shown) == {g["group"] for g in document["groups"]} == set(truth.groups)
    for group in document["groups"]:
        rows = truth.get_group(group["group"])
        assert group["cpu_s"] == pytest.approx(float(rows["cpu_s"].sum()))
        assert group["memory_peak_bytes"] == rows["memory_peak_bytes"].max() and group["attempts"] == len(rows)
        for said in (human_seconds(group["cpu_s"]), human_bytes(group["memory_peak_bytes"]),
                     human_seconds(group["wall_median_s"]), human_bytes(group["read_chars"])):  # fmt: skip
            assert said in shown[group["group"]] and said in printed[group["group"]], said
    key = document["headline"]
    for said in (human_seconds(key["wall_s"]), digits(key["busy_cores"]), percent(key["memory_used_share"])):
        assert f"<b>{said}</b>" in text and said in out.getvalue(), said
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.S)[1])  # type: ignore[index]
    for column in ("cpu_s", "wall_s", "memory_peak_bytes", "write_chars"):
        assert sum(data["values"][column]) == pytest.approx(float(run.tasks[column].sum()), rel=1e-5), column
    found = as_json(run)["findings"]
    assert found
    words = " ".join(html.unescape(re.sub("<[^>]+>", " ", text)).split())
    out = io.StringIO()
    Console(file=out, width=200).print(FindingsText(found_in(run)))
    said = " ".join(out.getvalue().split())
    for one in found:
        assert one["text"] in words and one["text"] in said, one["text"]


def test_what_attempts_asked_for_differently_is_a_range_and_never_what_none_of_them_asked_for() -> None:
    """An attempt that was killed, asked for 100 MB; the next one for 200 MB, and used 80 % of it."""
    mb = 10**6
    row = {"group": "sort", "kind": "snakemake", "node": "n1", "start_ns": made.START_NS, "wall_s": 1.0, "cpu_s": 1.0}
    run = made.make(0)
    run.tasks = made.tasks_table([
        {**row, "key": f"sort{part}", "attempt_id": f"{part}.1.{attempt}", "attempt": attempt, "threads_asked": attempt,
         "state": state, "memory_asked_bytes": attempt * 100 * mb, "memory_peak_bytes": peak * mb}
        for part in range(3) for attempt, state, peak in ((1, "failed", 100), (2, "done", 160))
    ])  # fmt: skip
    rows = RunRows(run)
    [group] = tables.groups(rows)
    assert (group["asked"], group["used_text"], group["busy_text"]) == ("95.4 to 191 MiB", "80%", "1.00 of 1 to 2")
    chart = page_charts.asked(rows)
    assert chart is not None
    [drawn] = chart["rows"]
    assert drawn["text"] == "asked 95.4 to 191 MiB, highest peak 153 MiB (80%)"
    assert drawn["asked"] == chart["x"](200 * mb) and drawn["peak"] == chart["x"](160 * mb)
    for what, most in (("memory", 200 * mb), ("threads", 2)):
        [asked] = charts.asked_rows(rows, what)["asked"]
        assert asked == most


def test_the_first_sentence_is_the_change_that_is_worth_most() -> None:
    run = made.make(60)
    run.tasks["flags"] = [[] for _ in range(60)]
    run.tasks["memory_asked_bytes"] = pd.array([16 * made.GIB] * 60, dtype="Int64")
    first = lead(findings(run))
    assert first is not None and first.name == "memory-far" and first.snippet
    top = builder.page(run).split('id="lead">')[1].split("</header>")[0]
    assert html.escape(first.text) in top and first.snippet.splitlines()[0] in html.unescape(top)
    run.tasks["state"] = "done"
    run.tasks["memory_asked_bytes"] = run.tasks["memory_limit_bytes"] = pd.array([None] * 60, dtype="Int64")
    assert lead(findings(run)) is None and "Nothing stands out that a change would mend" in builder.page(run)


def test_memory_by_group_adds_up_to_what_was_measured(run: made.Made) -> None:
    rows = RunRows(run)
    assert rows.memory is not None
    total = sum(rows.memory.layers.values())
    highest = timeline.total_gauge(run.samples("process"), "memory_bytes", rows.grid, 1.0)
    assert total == pytest.approx(highest) and set(rows.memory.layers) >= set(made.PROFILE)
    late = rows.memory.layers["write"]
    first = run.tasks.loc[run.tasks["group"] == "write", "start_ns"].min()
    assert late[rows.grid.edges[1:] < (first - rows.grid.start_ns) / 1e9].max() == 0
    assert rows.memory.asked is not None and rows.memory.asked.max() == pytest.approx(8 * 4 * made.GIB, rel=0.3)


def test_what_limits_a_group_is_said_where_a_finding_or_its_cpu_says_so() -> None:
    rows = RunRows(made.make(60))
    waits = Finding("info", "write", "waits", name="io-bound")
    limits = {row["name"]: row["limit"] for row in tables.groups(rows, [waits])}
    assert limits == {"aggregate": "CPU", "compress": "CPU", "tokenise": "CPU", "write": "I/O", "read": ""}


def test_a_process_that_ran_one_job_gives_its_curves() -> None:
    run = made.make_command()
    run.info["kind"] = "snakemake"
    curves = tables.tasks(RunRows(run))["curves"]["0"]
    assert curves["cpu"]["top"] == pytest.approx(1.5) and curves["memory"]["top"] == pytest.approx(made.GIB, rel=1e-3)


def test_gpus_have_a_row_where_there_are_any() -> None:
    run = made.make(30)
    assert RunRows(run).gpus == {}
    system = run.streams["system"]
    at = (system["time_ns"] - made.START_NS) / 1e9
    system["gpu_0_busy_ns"] = (0.25e9 * at).astype("int64")
    system["gpu_1_busy_ns"] = pd.array(np.where(at < 10, 0, np.nan), dtype="Float64")
    rows = RunRows(run)
    assert list(rows.gpus) == ["n1 GPU 0", "n1 GPU 1", "n2 GPU 0", "n2 GPU 1"]
    assert np.nanmean(rows.gpus["n1 GPU 0"]) == pytest.approx(25, abs=0.1) and np.isnan(rows.gpus["n2 GPU 1"]).any()
    text = builder.page(run)
    assert "mean GPU utilisation" in text and "GPUs, n1 GPU 0: busy 25 % on average." in text


def test_both_themes_name_the_same_colours() -> None:
    assert LIGHT.panel != DARK.panel and len(LIGHT.ramp) == len(DARK.ramp)


def test_real_segments_give_the_same_report(run: made.Made, tmp_path: Path) -> None:
    import jumper

    opened = jumper.open_run(made.write(run, tmp_path / "run"))
    ours, truth = opened.summary(), RunRows(run)
    assert ours["cpu_s"].to_dict() == pytest.approx(run.tasks.groupby("group")["cpu_s"].sum().to_dict(), rel=1e-6)
    again = RunRows(opened)
    assert abs(again.grid.start_ns - truth.grid.start_ns) < 1000 and again.cpu is not None and truth.cpu is not None
    for name, line in truth.cpu.layers.items():
        assert again.cpu.layers[name] == pytest.approx(line, abs=0.02), name
    assert [m.metric for m in again.custom] == ["room_temperature"]
    assert opened.report().name == "report.html"
