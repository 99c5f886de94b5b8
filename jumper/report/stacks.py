"""Areas over time: stacks with what there was and what was asked for, and what went in above what went out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jumper.report.canvas import Picture
from jumper.report.data import RunRows, Stack
from jumper.report.marks import Lines, add, milliseconds
from jumper.report.theme import FONT, OTHER, Theme

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jumper.analysis.tables import Floats

#: What the line of what was asked for is called.
ASKED = "asked by tasks"


def stacked(
    rows: RunRows, theme: Theme, stack: Stack, dimension: str, title: str, fill: Mapping[str, str], label: str,
    unit: str,
) -> Picture:  # fmt: skip
    """Draw a stack, what was asked for as a line, and what there was as a dashed one where that is near."""
    tops = np.cumsum([np.nan_to_num(line) for line in stack.layers.values()], axis=0)
    highest = top_of(tops[-1])
    if stack.asked is not None:
        highest = max(highest, top_of(stack.asked))
        title += f", line: {ASKED}"
    shown = stack.capacity is not None and highest > 0.25 * stack.capacity
    if stack.capacity is not None and not shown:
        title += f" ({stack.capacity_label})"
    elif stack.capacity is not None:
        highest = max(highest, stack.capacity * 1.22)
    edges = {f"{dimension}_top_{i}": top for i, top in enumerate(tops)}

    def paint(figure: Any, source: Any) -> None:
        from bokeh.models import Step

        below: Any = 0
        if blank is not None:
            _blank(figure, rows, theme.gap, blank)
        for (edge, _), name in zip(edges.items(), stack.layers, strict=True):
            colour = fill.get(name, OTHER)
            area(figure, source, below, edge, colour, 0.9)
            below = edge
        if stack.asked is not None:
            field = f"{dimension}_total_{len(stack.layers)}"
            step = Step(x="time", y=field, mode="center", line_color=theme.text, line_width=1.2)
            add(figure, source, step)
        if shown and stack.capacity is not None:
            _line(figure, theme.text, stack.capacity, "dashed")
            _say(figure, theme.muted, rows.time[2], stack.capacity * 1.02, stack.capacity_label)

    blank = stack.missing
    layers = {name: line if blank is None else np.where(blank, np.nan, line) for name, line in stack.layers.items()}
    told = layers if stack.asked is None else {**layers, ASKED: stack.asked}
    mark = said(rows, f"{dimension}_total", told, "{0.00}", f" {unit}" if unit else "", dimension, tops[-1], edges)
    return Picture(rows=rows, theme=theme, mark=mark, title=title, height=150, limits=(0, highest), ticks=4,
                   label=label, paint=paint)  # fmt: skip


def mirrored(rows: RunRows, theme: Theme, dimension: str, title: str, unit: str, moved: dict[str, Floats]) -> Picture:
    """Draw two rates, the first above zero and the second below."""
    from bokeh.models import CustomJSTickFormatter

    (inward, read), (outward, written) = moved.items()
    up, down = top_of(read), top_of(written)
    up, down = max(up, down * 0.25), max(down, up * 0.25)
    below = f"{dimension}_below"

    def paint(figure: Any, source: Any) -> None:
        for field, colour in ((f"{dimension}_0", theme.read), (below, theme.write)):
            area(figure, source, 0, field, colour, 0.85)
        _line(figure, theme.muted, 0.0, "solid")

    mark = said(rows, dimension, {inward: read, outward: written}, "{0.00}", f" {unit}/s", None, read,
                {below: -written})  # fmt: skip
    return Picture(rows=rows, theme=theme, mark=mark, title=f"{title}: {inward} above, {outward} below", height=130,
                   limits=(-down, up), ticks=5, label=f"{unit}/s", paint=paint,
                   formatter=CustomJSTickFormatter(code="return Math.abs(tick).toLocaleString('en')"))  # fmt: skip


def said(
    rows: RunRows, dimension: str, lines: Mapping[str, Floats], pattern: str, unit: str, axis: str | None = None,
    height: Floats | None = None, more: Mapping[str, Floats] | None = None,
) -> Lines:  # fmt: skip
    """Return a curve that says at each time what all lines are, in fields ``<dimension>_<number>`` of its source."""
    fields = {f"{dimension}_{i}": line for i, line in enumerate(lines.values())}
    tips = [("time", "@time{%H:%M:%S}")]
    tips += [(name[:60], f"@{{{field}}}{pattern}{unit}") for name, field in zip(lines, fields, strict=True)]
    first = next(iter(lines.values())) if height is None else height
    values = {axis or f"{dimension}_line": first, **fields, **(more or {})}
    return Lines({"time": rows.time, **{name: np.asarray(line, dtype="f4") for name, line in values.items()}}, tips)


def area(figure: Any, source: Any, low: float | str, high: str, colour: str, alpha: float) -> None:
    """Paint what lies between two fields of a source."""
    from bokeh.models import VArea

    add(figure, source, VArea(x="time", y1=low, y2=high, fill_color=colour, fill_alpha=alpha))


def _blank(figure: Any, rows: RunRows, colour: str, missing: NDArray[np.bool_]) -> None:
    """Paint the stretches of which nothing is known."""
    from bokeh.models import ColumnDataSource, VStrip

    turns = np.flatnonzero(np.diff(missing, prepend=False, append=False))
    at = rows.clock(np.asarray(rows.grid.start_ns + np.round(rows.grid.edges[turns] * 1e9), dtype="int64"))
    strips: dict[str, Any] = {"from": at[::2], "to": at[1::2]}
    strip = VStrip(x0="from", x1="to", fill_color=colour, line_width=0, line_color=None)
    figure.add_glyph(ColumnDataSource(strips), strip, level="underlay")


def top_of(line: Floats) -> float:
    """Return where the axis of a line ends."""
    return float(np.nanmax(line, initial=0.0)) * 1.08 or 1.0


def _line(figure: Any, colour: str, value: float, dash: str) -> None:
    from bokeh.models.annotations import Span

    figure.add_layout(Span(location=value, dimension="width", line_color=colour, line_width=1, line_dash=dash,
                           line_alpha=0.7))  # fmt: skip


def _say(figure: Any, colour: str, time: Any, height: float, text: str) -> None:
    from bokeh.models.annotations import Label

    figure.add_layout(Label(x=milliseconds(time), y=float(height), text=text, text_font_size="10px", text_color=colour,
                            text_font=FONT, text_baseline="bottom"))  # fmt: skip
