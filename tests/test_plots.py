"""`run.plot`: every picture draws the numbers of the tables, composes, and says what it lacks."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jumper.analysis.units import human_bytes
from jumper.core.run import Run
from jumper.report import charts, plots
from jumper.report.plots import Plots
from jumper.schema.errors import RunError
from tests import made

hv = pytest.importorskip("holoviews")
DOCS = Path(__file__).resolve().parent.parent / "docs"
#: Every picture, as a user calls it.
PICTURES = ("timeline", "tasks", "cpu", "memory", "io", "network", "gpu", "nodes", "distribution", "asked_vs_used")


@pytest.fixture(scope="module")
def run() -> made.Made:
    """A run whose nodes have a device each, half busy."""
    found = made.make(30, workers=1)
    system = found.streams["system"]
    system["gpu_0_busy_ns"] = (system["time_ns"] - made.START_NS) // 2
    return found


@pytest.fixture(scope="module")
def drawn(run: made.Made) -> dict[str, Any]:
    return {name: getattr(Plots(run), name)() for name in PICTURES}


@pytest.mark.parametrize("name", PICTURES)
def test_each_picture_lays_out_and_is_drawn_over(name: str, drawn: dict[str, Any]) -> None:
    beside, over = drawn[name] + drawn["cpu"], drawn[name] * hv.HLine(1)
    assert isinstance(beside, hv.Layout) and len(beside) > 1
    assert isinstance(over, hv.Layout if name == "timeline" else hv.Overlay)
    assert hv.render(over, backend="bokeh") is not None


@pytest.mark.parametrize("name", ["tasks", "cpu", "memory"])
def test_a_legend_names_the_colours_of_the_groups(name: str, drawn: dict[str, Any]) -> None:
    from bokeh.models import Legend

    (legend,) = hv.render(drawn[name], backend="bokeh").select({"type": Legend})
    named = {item.label.value: item.renderers[0].glyph.fill_color for item in legend.items}
    assert set(named) == set(made.PROFILE) and len(set(named.values())) == 5


def test_pictures_of_other_things_have_axes_of_their_own(run: made.Made) -> None:
    from bokeh.models import Plot

    plots = Plots(run)
    for pair in (plots.asked_vs_used() + plots.asked_vs_used("threads"),
                 plots.distribution() + plots.distribution("cores")):  # fmt: skip
        first, second = hv.render(pair, backend="bokeh").select({"type": Plot})
        assert first.x_range.end != second.x_range.end


def test_a_distribution_has_the_quartiles_of_the_table(run: made.Made, drawn: dict[str, Any]) -> None:
    done = run.tasks[run.tasks["state"] == "done"]
    shown = drawn["distribution"].dframe().groupby("group")["wall_s"]
    assert shown.count().to_dict() == done.groupby("group").size().to_dict()
    truth = done.groupby("group")["wall_s"]
    for part in (0.25, 0.5, 0.75):
        assert shown.quantile(part).to_dict() == pytest.approx(truth.quantile(part).astype(float).to_dict())


def test_a_hundred_thousand_values_are_drawn_by_their_quantiles() -> None:
    values = np.random.default_rng(3).lognormal(0, 1, 100_000)
    thinned = charts._thinned(values)
    assert len(thinned) == charts.MOST_VALUES and {values.min(), values.max()} <= set(thinned)
    assert np.quantile(thinned, [0.25, 0.5, 0.75]) == pytest.approx(np.quantile(values, [0.25, 0.5, 0.75]), rel=2e-3)


def test_groups_whose_long_names_differ_in_the_middle_are_not_one() -> None:
    long = [f"{'align' * 4}_{number}_{'reads' * 4}" for number in (1, 2)]
    shown = Plots(made.make(20, names=long, samples=False)).distribution().dframe()
    assert shown["group"].nunique() == 2 and shown["group"].str.len().max() < 30


def test_what_was_asked_for_lies_beside_what_was_used(run: made.Made) -> None:
    rows = Plots(run)._rows
    table = charts.asked_rows(rows, "memory").set_index("group")
    done = run.tasks[run.tasks["state"] == "done"].groupby("group")["memory_peak_bytes"]
    assert table["highest"].to_dict() == done.max().astype(float).to_dict()
    assert table["median"].to_dict() == done.median().astype(float).to_dict()
    assert set(table["asked"]) == {4.0 * made.GIB}  # asked for by one group, allowed to the others
    cores = charts.asked_rows(rows, "threads").set_index("group")
    assert cores.loc["compress", "highest"] == pytest.approx(0.95) and set(cores["asked"]) == {1.0}


def test_the_most_wasteful_group_is_on_top(run: made.Made) -> None:
    table = charts.asked_rows(Plots(run)._rows, "memory")
    waste = (table["asked"] - table["highest"]) * table["attempts"]
    assert list(waste) == sorted(waste, reverse=True) and len(table) == 5


def test_the_gpu_is_as_busy_as_its_counter_says(drawn: dict[str, Any]) -> None:
    assert drawn["gpu"].dimension_values("busy") == pytest.approx(50, abs=1)


@pytest.mark.parametrize("name", [name for name in PICTURES if name != "timeline"])
def test_a_run_that_holds_nothing_says_so_in_one_line(name: str) -> None:
    empty = Plots(made.make(0, samples=False))
    with pytest.raises(RunError, match="this run has nothing to draw for") as raised:
        getattr(empty, name)()
    assert "\n" not in str(raised.value)
    with pytest.raises(RunError, match="neither attempts nor samples"):
        empty.timeline()


def test_what_cannot_be_drawn_lists_what_can(run: made.Made) -> None:
    with pytest.raises(RunError, match=r"'flags' has no distribution; there are queued_s, wall_s.*cores"):
        Plots(run).distribution("flags")
    with pytest.raises(RunError, match="memory, threads, runtime; not 'gpus'"):
        Plots(run).asked_vs_used("gpus")
    with pytest.raises(RunError, match="runtime asked for and used"):
        Plots(run).asked_vs_used("runtime")


def test_names_that_are_code_are_text(run: made.Made) -> None:
    hostile = "<script>{x} $$y$$"
    odd = made.make(12, names=(hostile, "b"))
    for name in ("distribution", "asked_vs_used", "tasks", "cpu"):
        assert hv.render(getattr(Plots(odd), name)(), backend="bokeh") is not None
    assert any("<script>{x}" in group for group in Plots(odd).distribution().dframe()["group"])


def test_the_examples_of_the_docstrings_run(run: made.Made, monkeypatch: pytest.MonkeyPatch) -> None:
    import jumper

    opened = Run(run.path, run.info)
    opened.__dict__.update(tasks=run.tasks, events=run.events)
    monkeypatch.setattr(opened, "samples", run.samples)
    monkeypatch.setattr(jumper, "open_run", lambda path: opened)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = [Plots, *(member for name, member in inspect.getmembers(Plots, inspect.isfunction) if name[0] != "_")]
    for thing in found:
        text = re.sub(r" *# doctest: \+SKIP", "", inspect.getdoc(thing) or "")
        assert ">>>" in text, thing
        example = doctest.DocTestParser().get_doctest(text, {"run": opened}, thing.__name__, plots.__file__, 0)
        runner.run(example)
    assert runner.summarize().failed == 0 and runner.tries >= len(found)


def test_the_document_draws_every_picture(run: made.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "notebooks.md").read_text()
    named = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    assert named == [name for name in vars(Plots) if name[0] != "_"]
    made.write(made.make(12), tmp_path / "RUN")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/notebooks.md", "exec"), names)
    assert names["run"].path.name == "RUN"


def test_a_run_shows_itself_in_a_cell_and_at_a_prompt(tmp_path: Path) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    import jumper

    run = jumper.open_run(made.write(made.make(60), tmp_path / "run"))
    html, text = formatters.HTMLFormatter()(run), formatters.PlainTextFormatter()(run)
    peak = human_bytes(float(run.tasks["memory_peak_bytes"].max()))
    failed = next(one for one in run.findings() if one.subject == "aggregate")
    for shown in (html, text):
        assert peak in shown and all(group in shown for group in made.PROFILE)
        assert failed.text[:30] in re.sub(r"\s+", " ", shown)
    # the first sentence stands before the figures, and these before the groups
    assert html.index(failed.text[:30]) < html.index("60 tasks") < html.index("<table")
    assert text.startswith(repr(run)) and max(map(len, text.splitlines()[1:])) <= 160


def test_a_group_that_only_failed_has_no_box(run: made.Made) -> None:
    failed = made.make(20, state="failed")
    with pytest.raises(RunError, match="nothing to draw"):
        Plots(failed).distribution()
    assert pd.notna(failed.tasks["wall_s"]).all()
