"""From HoloViews rows to one linked column of Bokeh figures: what HoloViews has no option for."""

from __future__ import annotations

from typing import Any

from jumper.report.canvas import holoviews
from jumper.report.data import RunRows
from jumper.report.elements import overview
from jumper.report.page.views import rows_of
from jumper.report.theme import Theme

#: Columns that HoloViews writes besides the corners of the glyph.
_DOUBLED = ("time", "low", "end", "high")


def linked(rows: RunRows, theme: Theme) -> Any | None:
    """Return all rows of the timeline as one Bokeh layout with one time range, or None where there are none.

    The overview above them carries the brush. Tapping a bar calls ``jumperShow(number)``
    of the page, with the position of the attempt in the tasks table.
    """
    hv = holoviews()
    from bokeh.layouts import column
    from bokeh.models import CrosshairTool, CustomJS, Quad, Range1d, RangeTool
    from bokeh.models.annotations import Span
    from bokeh.models.renderers import GlyphRenderer

    drawn = list(rows_of(rows, theme))
    if not drawn:
        return None
    drawn[-1].element.opts(backend="bokeh", xaxis="bottom")
    figures = [hv.render(row.element, backend="bokeh") for row in drawn]
    figures[-1].height += 28
    start, stop = (int(limit.astype("int64")) / 1e3 for limit in rows.limits)
    span = Range1d(start=start, end=stop, bounds=(start, stop), name="jumper-time")
    line = Span(dimension="height", line_color=theme.muted, line_width=1, line_dash="dotted")
    for figure in figures:
        figure.x_range = span
        figure.toolbar.logo = None
        figure.xaxis[0].formatter.strip_leading_zeros = False  # 09:41, as everywhere else on the page
        figure.add_tools(CrosshairTool(overlay=line))
        for renderer in figure.renderers:
            if not isinstance(renderer, GlyphRenderer):
                continue
            source: Any = renderer.data_source
            if isinstance(renderer.glyph, Quad):
                for name in _DOUBLED:
                    source.data.pop(name, None)
            if "number" in source.data:
                source.name = "jumper-tasks"
                code = "const [i] = cb_obj.indices; if (i !== undefined) window.jumperShow?.(source.data.number[i])"
                source.selected.js_on_change("indices", CustomJS(args={"source": source}, code=code))
    brush = hv.render(overview(rows, theme), backend="bokeh")
    brush.toolbar.logo = None
    brush.xaxis[0].formatter.strip_leading_zeros = False
    tool = RangeTool(x_range=span)
    tool.overlay.fill_color, tool.overlay.fill_alpha, tool.overlay.line_color = "#56B4E9", 0.18, "#56B4E9"
    brush.add_tools(tool)
    return column(brush, *figures, sizing_mode="stretch_width", spacing=2)
