"""The static picture: drawn without a browser, with what the tables hold, whatever names are in it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from jumper.report.exports import export, format_of
from jumper.report.picture import picture
from jumper.report.theme import DARK, LIGHT
from jumper.schema.errors import JumperError, RunError
from tests import made

image = pytest.importorskip("matplotlib.image")


@pytest.fixture(scope="module")
def run() -> made.Made:
    return made.make(40, nodes=2, workers=1)


def pixels(run: Any, theme: str = "light") -> Any:
    """Pixels as 24-bit numbers."""
    shown = np.round(image.imread(io.BytesIO(picture(run, "png", theme)))[..., :3] * 255).astype(int)
    return shown @ np.array([65536, 256, 1])


def share(shown: Any, colour: str) -> float:
    return float((shown == int(colour[1:], 16)).mean())


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_group_is_inked_in_its_colour(run: made.Made, theme: Any) -> None:
    from jumper.report.data import RunRows

    shown = pixels(run, theme.name)
    rows = RunRows(run)
    inked = {name: share(shown, colour) for name, colour in rows.colour.items()}
    assert len(inked) == 5 and min(inked.values()) > 0.002
    # what held the lanes and the cores longest has most of the ink
    held = (run.tasks.groupby("group")["wall_s"].sum()).to_dict()
    assert max(inked, key=lambda name: inked[name]) == max(held, key=lambda name: held[name])
    assert share(shown, theme.background) > 0.05 and share(shown, theme.panel) > 0.1


def test_missing_samples_have_a_colour_of_their_own(run: made.Made) -> None:
    assert share(pixels(run), LIGHT.gap) == 0
    silent = made.make(40)
    system = silent.streams["system"]
    silent.streams["system"] = system[(system["node"] == "n1") | (system.groupby("node").cumcount() < 10)]
    missing = share(pixels(silent), LIGHT.gap)
    assert missing > 0.005
    silent.streams["system"]["gpu_0_busy_ns"] = 0  # of the GPUs, the same is missing
    assert share(pixels(silent), LIGHT.gap) == pytest.approx(2 * missing, rel=0.2)


def test_memory_that_is_not_known_has_that_colour_too() -> None:
    late = made.make(40, nodes=2, workers=1)
    process = late.streams["process"]
    late.streams["process"] = process[process["time_ns"] > made.START_NS + 20 * made.SECOND]
    assert share(pixels(late), LIGHT.gap) > 0.005


def test_names_are_drawn_as_they_are_and_the_same_each_time() -> None:
    hostile = "<script>&$\\frac{$]]>"
    odd = made.make(12, names=(hostile, "b"))
    odd.tasks["node"] = hostile
    document = picture(odd, "svg").decode()
    ElementTree.fromstring(document)
    assert document == picture(odd, "svg").decode()
    assert "<script>" not in document and "&lt;script&gt;" in document


def test_runs_with_hardly_anything_in_them_are_drawn() -> None:
    for run in (made.make_command(), made.make(2, samples=False)):
        assert len(np.unique(pixels(run))) > 10
    with pytest.raises(RunError, match="neither attempts nor samples"):
        picture(made.make(0, samples=False), "png")


def test_many_tasks_are_one_image_in_the_drawing() -> None:
    """The bars of an SVG are pixels past five thousand; else its file would grow with the tasks."""
    few, many = (len(picture(made.make(count, samples=False), "svg")) for count in (4_000, 6_000))
    assert many < few


def test_the_name_of_the_file_says_the_format(run: made.Made, tmp_path: Path) -> None:
    path = tmp_path / "a.PNG"
    assert export(run, format_of(path), path).read_bytes().startswith(b"\x89PNG\r\n")
    assert [format_of(Path(name)) for name in ("t.json.gz", "m.prom", "b.tsv", "a.svg")] == [
        "perfetto", "openmetrics", "benchmark-tsv", "svg",
    ]  # fmt: skip
    with pytest.raises(JumperError, match=r"'run.pdf' says no format.*\.png is png"):
        format_of(tmp_path / "run.pdf")
