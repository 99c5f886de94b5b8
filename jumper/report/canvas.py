"""A picture over time: what it marks and paints, its size and axes; as a HoloViews object, or drawn by Bokeh alone.

HoloViews is what notebooks compose and change. The page draws the same pictures without it, which takes a
fifth of the time: a mark (:mod:`jumper.report.marks`) knows both ways, and all that is painted around it is
Bokeh's in both. Canvas, because a software WebGL redraws 20 to 70 times slower; the same borders on every
row, so that the time axes line up; a y dimension of its own for each row, because rows of a HoloViews layout
that share one share their y axis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need

if TYPE_CHECKING:
    from jumper.report.data import RunRows
    from jumper.report.marks import Mark
    from jumper.report.theme import Theme

LEFT, RIGHT, LEAST_WIDTH = 100, 84, 480
_ZOOM = {"default_tools": ["xpan", "xbox_zoom", "xwheel_zoom", "reset", "save"], "active_tools": ["xbox_zoom"]}
#: How the ticks of a time axis are written.
CLOCK: dict[str, Any] = {
    "seconds": "%H:%M:%S", "minsec": "%H:%M:%S", "minutes": "%H:%M", "hourmin": "%H:%M", "hours": "%H:%M",
    "days": "%d %b", "months": "%b %Y", "years": "%Y", "milliseconds": "%H:%M:%S.%3N",
}  # fmt: skip
#: Adds to a Bokeh figure, given the source of its mark.
Paint = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One row of the timeline.

    Attributes
    ----------
    mark : Mark
        What holds the numbers, and says them when pointed at.
    paint : callable, optional
        Called with the Bokeh figure and the source of the mark; adds what is not pointed at.
    limits : (float, float)
        Of the y axis.
    ticks : int or sequence of (float, str)
        About how many, or where and what they say.
    """

    rows: RunRows
    theme: Theme
    mark: Mark
    title: str
    height: int
    limits: tuple[float, float]
    ticks: int | Sequence[tuple[float, str]] = 6
    label: str = ""
    formatter: Any = None
    grid: bool = True
    paint: Paint | None = None

    def element(self) -> Any:
        """Return the picture as a HoloViews element."""
        from bokeh.models import DatetimeTickFormatter

        line = self.theme.grid if self.grid else None
        paint = self.paint
        hooks = [] if paint is None else [lambda plot, element: paint(plot.state, plot.handles["source"])]
        options = {
            "height": self.height, "responsive": True, "min_width": LEAST_WIDTH, "xlabel": "", "ylabel": self.label,
            "title": plain(self.title).replace("{", "{{").replace("}", "}}"),  # HoloViews formats it
            "xformatter": DatetimeTickFormatter(**CLOCK), "xlim": tuple(self.rows.limits),
            "ylim": self.limits, "yticks": self.ticks, "show_grid": self.grid,
            "gridstyle": {"xgrid_line_color": line, "ygrid_line_color": line},
            "toolbar": None, "xaxis": "bare", "hooks": hooks, **_ZOOM,
            "backend_opts": {"plot.output_backend": "canvas", "plot.min_border_left": LEFT,
                             "plot.min_border_right": RIGHT},
        }  # fmt: skip
        if self.formatter is not None:
            options["yformatter"] = self.formatter
        return self.mark.element(holoviews()).opts(backend="bokeh", **options)


def holoviews() -> Any:
    """Return HoloViews with its Bokeh backend registered; the session's own backend stays as it is."""
    hv = need("bokeh", "holoviews")
    if "bokeh" not in hv.Store.registry:
        current = hv.Store.current_backend if hv.Store.registry else "bokeh"
        need("holoviews.plotting.bokeh")
        hv.Store.current_backend = current
    return hv


def plain(text: str) -> str:
    """Return a text that Bokeh draws as it is: TeX delimiters would make it fetch MathJax from the network."""
    return re.sub(r"\$(?=\$)|\\(?=[\[(])", "\\g<0>\u200b", text)
