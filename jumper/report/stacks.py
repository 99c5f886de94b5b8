"""Areas over time: stacks with what there was and what was asked for, and what went in above what went out.

A picture here is one element, an unseen curve that carries all numbers and says them when pointed at; its
areas and lines are painted from that one source by a hook. As elements of their own they would take most of
the time that a page takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jumper.report.canvas import finish, holoviews
from jumper.report.data import RunRows, Stack
from jumper.report.theme import FONT, OTHER, Theme

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats

#: What the line of what was asked for is called.
ASKED = "asked by tasks"
Paint = Callable[[Any, Any], None]


def stacked(
    rows: RunRows, theme: Theme, stack: Stack, dimension: str, title: str, fill: Mapping[str, str], label: str,
    unit: str,
) -> Any:  # fmt: skip
    """Draw a stack, what was asked for as a line, and what there was as a dashed one where that is near."""
    tops = np.cumsum([np.nan_to_num(line) for line in stack.layers.values()], axis=0)
    highest = top_of(tops[-1])
    if stack.asked is not None:
        highest = max(highest, top_of(stack.asked))
    shown = stack.capacity is not None and highest > 0.25 * stack.capacity
    if stack.capacity is not None and not shown:
        title += f" ({stack.capacity_label})"
    elif stack.capacity is not None:
        highest = max(highest, stack.capacity * 1.22)
    edges = {f"{dimension}_top_{i}": top for i, top in enumerate(tops)}

    def paint(figure: Any, source: Any) -> None:
        below: Any = 0
        for (edge, _), name in zip(edges.items(), stack.layers, strict=True):
            colour = fill.get(name, OTHER)
            figure.varea("time", y1=below, y2=edge, source=source, fill_color=colour, fill_alpha=0.9)
            below = edge
        if stack.asked is not None:
            field = f"{dimension}_total_{len(stack.layers)}"
            figure.step("time", field, source=source, mode="center", line_color=theme.text, line_width=1.2)
            top = int(np.argmax(stack.asked))
            place = rows.time[min(top, rows.grid.bins - rows.grid.bins // 10)]
            _say(figure, theme.text, place, stack.asked[top] * 0.94, ASKED, "top")
        if shown and stack.capacity is not None:
            _line(figure, theme.text, stack.capacity, "dashed")
            _say(figure, theme.muted, rows.time[2], stack.capacity * 1.02, stack.capacity_label, "bottom")

    told = dict(stack.layers) if stack.asked is None else {**stack.layers, ASKED: stack.asked}
    curve = hover(
        rows, f"{dimension}_total", told, "{0.00}", f" {unit}" if unit else "", dimension, tops[-1], edges, paint
    )
    return finish(curve, rows, theme, 150, title, ylabel=label, ylim=(0, highest), yticks=4)


def mirrored(
    rows: RunRows, theme: Theme, dimension: str, title: str, unit: str, moved: dict[str, Floats]
) -> Any:  # fmt: skip
    """Draw two rates, the first above zero and the second below."""
    from bokeh.models import CustomJSTickFormatter

    (inward, read), (outward, written) = moved.items()
    up, down = top_of(read), top_of(written)
    up, down = max(up, down * 0.25), max(down, up * 0.25)
    below = f"{dimension}_below"

    def paint(figure: Any, source: Any) -> None:
        for field, colour in ((f"{dimension}_0", theme.read), (below, theme.write)):
            figure.varea("time", y1=0, y2=field, source=source, fill_color=colour, fill_alpha=0.85)
        _line(figure, theme.muted, 0.0, "solid")

    curve = hover(rows, dimension, {inward: read, outward: written}, "{0.00}", f" {unit}/s", None, read,
                  {below: -written}, paint)  # fmt: skip
    formatter = CustomJSTickFormatter(code="return Math.abs(tick).toLocaleString('en')")
    return finish(curve, rows, theme, 130, f"{title}: {inward} above, {outward} below", ylabel=f"{unit}/s",
                  ylim=(-down, up), yticks=5, yformatter=formatter)  # fmt: skip


def hover(
    rows: RunRows, dimension: str, lines: Mapping[str, Floats], pattern: str, unit: str, axis: str | None = None,
    height: Floats | None = None, more: Mapping[str, Floats] | None = None, paint: Paint | None = None,
) -> Any:  # fmt: skip
    """Return an unseen curve that says at each time what all lines are, and paints them where asked to."""
    hv = holoviews()
    from bokeh.models import HoverTool

    fields = [f"{dimension}_{i}" for i in range(len(lines))]
    tips = [("time", "@time{%H:%M:%S}")]
    tips += [(name[:60], f"@{{{field}}}{pattern}{unit}") for name, field in zip(lines, fields, strict=True)]
    tool = HoverTool(tooltips=tips, formatters={"@time": "datetime"}, mode="vline", line_policy="nearest")
    values = [next(iter(lines.values())) if height is None else height, *lines.values(), *(more or {}).values()]
    data = (rows.time, *(np.asarray(line, dtype="f4") for line in values))
    hooks = [] if paint is None else [lambda plot, element: paint(plot.state, plot.handles["source"])]
    return hv.Curve(data, "time", [axis or f"{dimension}_line", *fields, *(more or {})]).opts(
        backend="bokeh", line_alpha=0, tools=[tool], color="black", hooks=hooks
    )


def top_of(line: Floats) -> float:
    """Return where the axis of a line ends."""
    return float(np.nanmax(line, initial=0.0)) * 1.08 or 1.0


def _line(figure: Any, colour: str, value: float, dash: str) -> None:
    from bokeh.models.annotations import Span

    figure.add_layout(Span(location=value, dimension="width", line_color=colour, line_width=1, line_dash=dash,
                           line_alpha=0.7))  # fmt: skip


def _say(figure: Any, colour: str, time: Any, height: float, text: str, baseline: Literal["top", "bottom"]) -> None:
    from bokeh.models.annotations import Label

    at = int(time.astype("datetime64[ms]").astype("int64"))
    figure.add_layout(Label(x=at, y=float(height), text=text, text_font_size="10px", text_color=colour,
                            text_font=FONT, text_baseline=baseline))  # fmt: skip
