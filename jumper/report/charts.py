"""Pictures by group, without time: how a figure is spread, and what was asked for against what was used.

They lie beside the rows of the timeline (:mod:`jumper.report.elements`) and look like them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.tables import floats
from jumper.analysis.units import digits, human_bytes, human_seconds, percent
from jumper.report.canvas import holoviews, plain
from jumper.report.data import RunRows
from jumper.report.theme import OTHER, Theme

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats

#: Values of one group that a distribution draws; of more, so many of their quantiles.
MOST_VALUES = 2000
#: Groups that are drawn: those that cost most.
MOST_GROUPS = 30
#: what is compared: the figure that was used; the columns that say what was asked for, else allowed
ASKED = {
    "memory": ("memory_peak_bytes", ("memory_asked_bytes", "memory_limit_bytes")),
    "threads": ("cores", ("threads_asked",)),
    "runtime": ("wall_s", ("runtime_asked_s",)),
}


def values(rows: RunRows, column: str) -> dict[str, Floats]:
    """Return a figure of the attempts that succeeded, by group, the most costly group first; shape (attempts,) each.

    ``cores`` is CPU time over wall time; every other name is a column of the tasks table.
    """
    tasks = rows.run.tasks
    if column == "cores":
        wall = floats(tasks, "wall_s")
        figure = floats(tasks, "cpu_s") / np.where(wall > 0, wall, np.nan)
    else:
        figure = floats(tasks, column)
    codes, names = rows.group
    kept = (rows.state == "done") & np.isfinite(figure)
    weight = np.bincount(codes, np.nan_to_num(floats(tasks, "wall_s")), minlength=len(names))
    costly = sorted(range(len(names)), key=lambda code: (-weight[code], names[code]))[:MOST_GROUPS]
    found = {names[code]: figure[kept & (codes == code)] for code in costly}
    return {name: line for name, line in found.items() if len(line)}


def distribution(rows: RunRows, theme: Theme, column: str) -> Any | None:
    """Draw boxes of a figure by group: quartiles, whiskers of 1.5 times the box, and what lies beyond."""
    found = values(rows, column)
    if not found:
        return None
    hv = holoviews()
    scale, unit = _scale(column, max(float(line.max()) for line in found.values()))
    drawn = {name: _thinned(line) / scale for name, line in reversed(found.items())}
    labels = _labels(drawn)
    frame = pd.DataFrame({
        "group": np.repeat(list(labels.values()), [len(line) for line in drawn.values()]),
        column: np.concatenate(list(drawn.values())),
    })  # fmt: skip
    fills = {label: rows.colour.get(name, OTHER) for name, label in labels.items()}
    counts = sum(len(line) for line in found.values())
    top = max(float(line.max()) for line in drawn.values()) or 1.0
    title = f"{_word(column)} of {counts:,} attempts that succeeded, by group"
    return _finish(
        hv.BoxWhisker(frame, "group", hv.Dimension(column, unit=unit or None)), theme, len(drawn), title,
        box_color=hv.dim("group").categorize(fills, OTHER), box_alpha=0.75, box_line_color=theme.text,
        whisker_color=theme.text, outlier_color=theme.muted, outlier_alpha=0.6, box_width=0.6,
        invert_axes=True, xlabel="", ylabel=_axis(column, unit), ylim=(0, 1.05 * top),
    )  # fmt: skip


def asked_of(rows: RunRows, what: str) -> dict[str, tuple[float, float, str]]:
    """Return the least and the most that attempts of each group asked for, and ``asked``.

    Of a group none of whose attempts did: what they were allowed, and ``allowed``. One that has neither is left out.
    An attempt that is tried again may ask for more, and one of a larger file, too: a mean of these nobody asked for.
    """
    codes, names = rows.group
    out: dict[str, tuple[float, float, str]] = {}
    for column, word in zip(ASKED[what][1], ("asked", "allowed"), strict=False):
        amount = pd.Series(floats(rows.run.tasks, column))
        bounds = amount.where(amount > 0).groupby(codes).agg(["min", "max"]).dropna()
        found = zip(bounds.index, bounds["min"], bounds["max"], strict=True)
        out = {**{names[code]: (float(least), float(most), word) for code, least, most in found}, **out}
    return out


def ranged(least: float, most: float, say: Callable[[float], str]) -> str:
    """Return a range as words, or the one value where both are said alike.

    Examples
    --------
    >>> ranged(2**20, 3 * 2**20, human_bytes), ranged(2**20, 2**30, human_bytes), ranged(2, 2, digits)
    ('1.00 to 3.00 MiB', '1.00 MiB to 1.00 GiB', '2.00')
    """
    low, high = say(least), say(most)
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if unit == high.partition(' ')[2] else low} to {high}"


def asked_rows(rows: RunRows, what: str) -> pd.DataFrame:
    """Return what groups used beside what they asked for, the most wasteful first; no row where a group says one only.

    Returns
    -------
    DataFrame
        ``group``, ``attempts``, ``lowest``, ``median``, ``highest`` (of the attempts that
        succeeded), ``asked``, ``least_asked``, ``word``: as of :func:`asked_of`.
    """
    used_of, _ = ASKED[what]
    bounds, table = asked_of(rows, what), []
    for name, line in values(rows, used_of).items():
        if name in bounds:
            least, most, word = bounds[name]
            table.append((name, len(line), line.min(), np.median(line), line.max(), most, least, word))
    names = ["group", "attempts", "lowest", "median", "highest", "asked", "least_asked", "word"]
    frame = pd.DataFrame(table, columns=names)
    waste = (frame["asked"] - frame["highest"]) * frame["attempts"]
    return frame.iloc[np.argsort(-waste.to_numpy(dtype=float), kind="stable")].reset_index(drop=True)


def asked_vs_used(rows: RunRows, theme: Theme, what: str) -> Any | None:
    """Draw by group the range that its attempts used, their median, and what they asked for."""
    table = asked_rows(rows, what)[::-1].reset_index(drop=True)
    if table.empty:
        return None
    hv = holoviews()
    from bokeh.models import HoverTool

    used_of, _ = ASKED[what]
    figures = ["lowest", "median", "highest", "asked"]
    top = float(table[figures].to_numpy(dtype=float).max()) or 1.0
    scale, unit = _scale(used_of, top)
    said = {f"{name}_said": [_said(used_of, value) for value in table[name]] for name in figures}
    between = zip(table["least_asked"], table["asked"], strict=True)
    said["asked_said"] = [ranged(*pair, lambda value: _said(used_of, value)) for pair in between]
    share = [percent(value) for value in table["highest"] / table["asked"]]
    row = np.arange(len(table)) + 0.5
    frame = (table[figures] / scale).assign(
        row=row, row_=row, group=table["group"], attempts=table["attempts"], share=share, **said
    )  # fmt: skip
    frame["first"], frame["last"] = frame[figures].min(axis=1), frame[figures].max(axis=1)
    frame["fill"] = [rows.colour.get(name, OTHER) for name in table["group"]]
    frame["tone"] = np.where(frame["highest"] > frame["asked"], theme.write, theme.text)
    tips = [("group", "@group"), ("attempts", "@attempts"), *((name, f"@{name}_said") for name in reversed(figures)),
            ("highest of asked", "@share")]  # fmt: skip
    more = ["group", "attempts", "share", *said]

    def dims(*names: str) -> list[Any]:  # pictures whose dimensions are alike would share their axes
        return [hv.Dimension(name, label=f"{name} of {what}") for name in names]

    layers = [
        hv.Segments(frame, dims("first", "row", "last", "row_"), []).opts(
            backend="bokeh", color=theme.muted, line_width=1.5, line_dash="dotted"
        ),
        hv.Segments(frame, dims("lowest", "row", "highest", "row_"), "fill").opts(
            backend="bokeh", color="fill", line_width=9, line_cap="butt"
        ),
        hv.Points(frame, dims("median", "row"), more).opts(
            backend="bokeh", color=theme.panel, line_color=theme.text, size=7, tools=[HoverTool(tooltips=tips)]
        ),
        hv.Points(frame, dims("asked", "row"), [*more, "tone"]).opts(
            backend="bokeh", marker="dash", angle=90, size=18, color="tone", line_width=2.5,
            tools=[HoverTool(tooltips=tips)],
        ),
    ]  # fmt: skip
    title = f"{_word(used_of)}: used (lowest, median, highest), asked (|)"
    return _finish(
        hv.Overlay(layers), theme, len(table), title, xlabel=_axis(used_of, unit), ylabel="", ylim=(0, len(table)),
        yticks=list(zip(row, _labels(table["group"]).values(), strict=True)), xlim=(0, 1.05 * top / scale),
        show_legend=False,
    )  # fmt: skip


def _finish(element: Any, theme: Theme, count: int, title: str, **more: Any) -> Any:
    title = plain(title).replace("{", "{{").replace("}", "}}")  # HoloViews formats it
    return element.opts(
        backend="bokeh", height=80 + 30 * count, responsive=True, min_width=480, title=title, show_grid=True,
        gridstyle={"xgrid_line_color": theme.grid, "ygrid_line_color": None}, toolbar=None,
        backend_opts={"plot.output_backend": "canvas"}, **more,
    )  # fmt: skip


def _thinned(line: Floats) -> Floats:
    """Return at most :data:`MOST_VALUES` values that have the quartiles and the extremes of all."""
    if len(line) <= MOST_VALUES:
        return line
    return np.asarray(np.quantile(line, np.linspace(0, 1, MOST_VALUES), method="nearest"), dtype="float64")


def _labels(names: Iterable[str]) -> dict[str, str]:
    """Return a label that fits beside the axis for each name, none of them twice."""
    out: dict[str, str] = {}
    for name in names:
        label = plain(name if len(name) <= 24 else f"{name[:12]}…{name[-11:]}")
        out[name] = f"{label} ({len(out) + 1})" if label in out.values() else label
    return out


def _scale(column: str, top: float) -> tuple[float, str]:
    """Return what a figure is divided by for its axis, and the unit that it then has."""
    if column.endswith(("_bytes", "_chars")):
        power = max((p for p in (3, 2, 1) if top >= 1024.0**p), default=0)
        return 1024.0**power, ("B", "KiB", "MiB", "GiB")[power]
    if column.endswith("_s"):
        return next(((size, unit) for size, unit in ((3600.0, "h"), (60.0, "min")) if top >= 3 * size), (1.0, "s"))
    return 1.0, ""


def _said(column: str, value: float) -> str:
    if column.endswith(("_bytes", "_chars")):
        return human_bytes(value)
    return human_seconds(value) if column.endswith("_s") else digits(value)


def _word(column: str) -> str:
    words = {"cores": "busy cores", "wall_s": "wall time", "cpu_s": "CPU time", "memory_peak_bytes": "memory peak"}
    return words.get(column, column.removesuffix("_bytes").removesuffix("_s").replace("_", " ")).capitalize()


def _axis(column: str, unit: str) -> str:
    return f"{_word(column)} ({unit})" if unit else _word(column)
