"""What every picture over time has: HoloViews with its Bokeh backend, size, borders, clock, tools, canvas."""

from __future__ import annotations

import re
from typing import Any

from jumper.report.data import RunRows
from jumper.report.extra import need
from jumper.report.theme import Theme

LEFT, RIGHT = 100, 84
_ZOOM = {"default_tools": ["xpan", "xbox_zoom", "xwheel_zoom", "reset", "save"], "active_tools": ["xbox_zoom"]}
_CLOCK = {"seconds": "%H:%M:%S", "minsec": "%H:%M:%S", "minutes": "%H:%M", "hourmin": "%H:%M", "hours": "%H:%M",
          "days": "%d %b", "months": "%b %Y", "years": "%Y", "milliseconds": "%H:%M:%S.%3N"}  # fmt: skip


def holoviews() -> Any:
    """Return HoloViews with its Bokeh backend registered; the session's own backend stays as it is."""
    hv = need("bokeh", "holoviews")
    if "bokeh" not in hv.Store.registry:
        current = hv.Store.current_backend if hv.Store.registry else "bokeh"
        need("holoviews.plotting.bokeh")
        hv.Store.current_backend = current
    return hv


def finish(element: Any, rows: RunRows, theme: Theme, height: int, title: str, **more: Any) -> Any:
    """Give an element what every row has: size, borders, time axis, tools, canvas."""
    from bokeh.models import DatetimeTickFormatter

    clock: Any = _CLOCK
    title = plain(title).replace("{", "{{").replace("}", "}}")  # HoloViews formats it
    options = {
        "height": height, "responsive": True, "min_width": 480, "title": title, "xlabel": "", "ylabel": "",
        "xformatter": DatetimeTickFormatter(**clock), "xlim": tuple(rows.limits), "show_grid": True,
        "gridstyle": {"xgrid_line_color": theme.grid, "ygrid_line_color": theme.grid}, "toolbar": None,
        "xaxis": "bare", "show_legend": False, **_ZOOM, **more,
        "backend_opts": {"plot.output_backend": "canvas", "plot.min_border_left": LEFT,
                         "plot.min_border_right": RIGHT},
    }  # fmt: skip
    hv = holoviews()
    if not isinstance(element, hv.Overlay):
        options.pop("show_legend")
    return element.opts(backend="bokeh", **options)


def plain(text: str) -> str:
    """Return a text that Bokeh draws as it is: TeX delimiters would make it fetch MathJax from the network."""
    return re.sub(r"\$(?=\$)|\\(?=[\[(])", "\\g<0>\u200b", text)
