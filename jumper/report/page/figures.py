"""The timeline of the page: pictures drawn by Bokeh in one column, with one time range, a brush and a crosshair."""

from __future__ import annotations

from typing import Any

from jumper.report.canvas import CLOCK, LEAST_WIDTH, LEFT, RIGHT, Picture, plain
from jumper.report.data import RunRows
from jumper.report.elements import overview
from jumper.report.marks import Bars, milliseconds
from jumper.report.page.views import rows_of
from jumper.report.theme import Theme, styles

#: Pixels of the labels of a time axis.
_AXIS = 28
#: What a tapped bar does: the page shows its attempt, by its position in the tasks table.
_TAPPED = "const [i] = cb_obj.indices; if (i !== undefined) window.jumperShow?.(source.data.number[i])"


def linked(rows: RunRows, theme: Theme) -> Any | None:
    """Return all rows of the timeline as one Bokeh layout with one time range, or None where there are none.

    The overview above them carries the brush. Tapping a bar calls ``jumperShow(number)``
    of the page, with the position of the attempt in the tasks table.
    """
    from bokeh.models import Column, DatetimeAxis, NoOverlap, Range1d, RangeTool

    drawn = list(rows_of(rows, theme))
    if not drawn:
        return None
    start, stop = map(milliseconds, rows.limits)
    span = Range1d(start=start, end=stop, bounds=(start, stop), name="jumper-time")
    clock = DatetimeAxis(major_label_policy=NoOverlap(min_distance=6))  # ticks and words of all time axes
    clock.formatter.update(strip_leading_zeros=False, **CLOCK)  # 09:41, as everywhere else on the page
    brush = _figure(overview(rows, theme), Range1d(start=start, end=stop), clock, labelled=True)
    brush.left[0].visible = False
    tool = RangeTool(x_range=span)
    tool.overlay.fill_color, tool.overlay.fill_alpha, tool.overlay.line_color = "#56B4E9", 0.18, "#56B4E9"
    brush.tools = [tool]
    figures = [_figure(picture, span, clock, labelled=picture is drawn[-1]) for picture in drawn]
    figures[-1].height += _AXIS
    _steered(figures, theme)
    return Column(children=[brush, *figures], sizing_mode="stretch_width", spacing=2)


def _steered(figures: list[Any], theme: Theme) -> None:
    """Give figures the tools of a time axis, and one crosshair for all of them."""
    from bokeh.models import BoxZoomTool, CrosshairTool, WheelZoomTool
    from bokeh.models.annotations import Span

    line = Span(dimension="height", line_color=theme.muted, line_width=1, line_dash="dotted")
    for figure in figures:
        zoom = BoxZoomTool(dimensions="width")
        figure.add_tools(zoom, WheelZoomTool(dimensions="width"), CrosshairTool(overlay=line))
        figure.toolbar.active_drag = zoom


def _figure(picture: Picture, span: Any, clock: Any, *, labelled: bool) -> Any:
    """Draw one picture; its time axis has labels or none."""
    from bokeh import models as bokeh
    from bokeh.models.annotations import Title

    style, every = styles(picture.theme), clock.major_label_policy
    figure: Any = bokeh.Plot(
        x_range=span, y_range=bokeh.Range1d(start=picture.limits[0], end=picture.limits[1]),
        title=Title(text=plain(picture.title), **style["Title"]), height=picture.height, min_width=LEAST_WIDTH,
        sizing_mode="stretch_width", output_backend="canvas", min_border_left=LEFT, min_border_right=RIGHT,
        min_border_top=10, min_border_bottom=10, toolbar=bokeh.Toolbar(logo=None), toolbar_location=None,
        **style["Plot"],
    )  # fmt: skip
    bare: dict[str, Any] = {"major_label_text_font_size": "0pt", "major_tick_line_color": None}
    across = bokeh.DatetimeAxis(ticker=clock.ticker, formatter=clock.formatter, major_label_policy=every,
                                **{**style["Axis"], **({} if labelled else bare)})  # fmt: skip
    up: Any = bokeh.LinearAxis(axis_label=picture.label, major_label_policy=every, **style["Axis"])
    if isinstance(picture.ticks, int):
        up.ticker.desired_num_ticks = picture.ticks
    else:
        up.ticker = bokeh.FixedTicker(ticks=[at for at, _ in picture.ticks])
        up.major_label_overrides = dict(picture.ticks)
    if picture.formatter is not None:
        up.formatter = picture.formatter
    figure.add_layout(across, "below")
    figure.add_layout(up, "left")
    if picture.grid:
        figure.add_layout(bokeh.Grid(dimension=0, axis=across, grid_line_color=picture.theme.grid))
        figure.add_layout(bokeh.Grid(dimension=1, axis=up, grid_line_color=picture.theme.grid))
    source = picture.mark.draw(figure)
    if picture.paint is not None:
        picture.paint(figure, source)
    if isinstance(picture.mark, Bars):
        source.name = "jumper-tasks"
        source.selected.js_on_change("indices", bokeh.CustomJS(args={"source": source}, code=_TAPPED))
    for bar in figure.right:
        bar.update(**style["ColorBar"])
    return figure
