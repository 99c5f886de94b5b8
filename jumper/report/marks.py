"""What a picture over time is pointed at: lines, bars or an image, each as a HoloViews element and drawn by Bokeh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats

Tips = Sequence[tuple[str, str]]
#: Of bars that are not chosen while another one is.
_FADED = 0.18


class Mark(Protocol):
    """A mark: the data of a picture, in one source."""

    def element(self, hv: Any) -> Any:
        """Return it as a HoloViews element."""

    def draw(self, figure: Any) -> Any:
        """Draw it with Bokeh; return its source."""


@dataclass(frozen=True, slots=True)
class Lines:
    """An unseen curve that carries all numbers of a picture and says them when pointed at.

    Parameters
    ----------
    columns : mapping of str to array
        ``time`` first, then what the curve follows, then all others; shape (bins,) each.
    tips : sequence of (word, pattern)
    """

    columns: Mapping[str, Any]
    tips: Tips

    def element(self, hv: Any) -> Any:
        """Return it as a HoloViews element."""
        time, *names = self.columns
        return hv.Curve(tuple(self.columns.values()), time, names).opts(
            backend="bokeh", line_alpha=0, tools=[self._hover()], color="black"
        )

    def draw(self, figure: Any) -> Any:
        """Draw it with Bokeh; return its source."""
        from bokeh.models import ColumnDataSource, Line

        time, follows, *_ = self.columns
        source = ColumnDataSource(dict(self.columns))
        line = figure.add_glyph(source, Line(x=time, y=follows, line_alpha=0), nonselection_glyph=None)
        if self.tips:
            figure.add_tools(self._hover(renderers=[line]))
        return source

    def _hover(self, **options: Any) -> Any:
        from bokeh.models import HoverTool

        return HoverTool(tooltips=list(self.tips), formatters={"@time": "datetime"}, mode="vline",
                         line_policy="nearest", **options)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that can be chosen.

    Parameters
    ----------
    columns : mapping of str to sequence
        ``left``, ``bottom``, ``right``, ``top``, then ``fill``, its colour, and what the tips say.
    tips : sequence of (word, pattern)
    """

    columns: Mapping[str, Any]
    tips: Tips

    def element(self, hv: Any) -> Any:
        """Return it as a HoloViews element."""
        # dimensions of these names are not those of the source, which are left, bottom, right and top
        corners = ["time", "lane", "time_end", "lane_end"]
        return hv.Rectangles(tuple(self.columns.values()), corners, list(self.columns)[4:]).opts(
            backend="bokeh", color="fill", line_width=0, tools=[self._hover(), "tap"], nonselection_alpha=_FADED,
            nonselection_line_alpha=0,
        )  # fmt: skip

    def draw(self, figure: Any) -> Any:
        """Draw it with Bokeh; return its source."""
        from bokeh.models import ColumnDataSource, Quad, TapTool

        source = ColumnDataSource(dict(self.columns))
        corners = {name: name for name in ("left", "bottom", "right", "top")}
        quad: dict[str, Any] = {**corners, "fill_color": "fill", "line_alpha": 0}
        bars = figure.add_glyph(source, Quad(**quad), nonselection_glyph=Quad(**quad, fill_alpha=_FADED))
        figure.add_tools(self._hover(renderers=[bars]), TapTool(renderers=[bars]))
        return source

    def _hover(self, **options: Any) -> Any:
        from bokeh.models import HoverTool

        return HoverTool(tooltips=list(self.tips), formatters={"@left": "datetime"}, point_policy="follow_mouse",
                         **options)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """Lines of percent by time as an image, the first one at the top, with a bar of its colours.

    Parameters
    ----------
    values : array, shape (lines, bins)
        0 to 100, NaN where not known.
    dimension : str
    span : (time, time)
        Of the image, as the clock of the run shows them.
    ramp : sequence of str
        Colours from 0 to 100.
    missing : str
        Colour of what is not known.
    word : str
        What a value is.
    """

    values: Floats
    dimension: str
    span: tuple[Any, Any]
    ramp: Sequence[str]
    missing: str
    word: str

    def element(self, hv: Any) -> Any:
        """Return it as a HoloViews element."""
        left, right = self.span
        image = hv.Image(self.values, bounds=(left, 0, right, len(self.values)), kdims=["time", self.dimension],
                         vdims="busy")  # fmt: skip
        return image.opts(
            backend="bokeh", cmap=self._colours(), clim=(0, 100), colorbar=True, clabel="", tools=[self._hover()],
            clipping_colors={"NaN": self.missing}, colorbar_opts=self._bar(),
        )  # fmt: skip

    def draw(self, figure: Any) -> Any:
        """Draw it with Bokeh; return its source."""
        from bokeh.models import ColumnDataSource, LinearColorMapper
        from bokeh.models import Image as Glyph
        from bokeh.models.annotations import ColorBar

        left, right = map(milliseconds, self.span)
        source = ColumnDataSource({"image": [np.ascontiguousarray(self.values[::-1])]})
        mapper = LinearColorMapper(palette=self._colours(), low=0, high=100, nan_color=self.missing)
        glyph = Glyph(image="image", x=left, y=0, dw=right - left, dh=len(self.values), color_mapper=mapper)
        image = figure.add_glyph(source, glyph)
        figure.add_tools(self._hover(renderers=[image]))
        figure.add_layout(ColorBar(color_mapper=mapper, location=(0, 0), label_standoff=8, **self._bar()), "right")
        return source

    def _colours(self) -> list[str]:
        from bokeh.palettes import interp_palette

        return list(interp_palette(tuple(self.ramp), 256))

    def _hover(self, **options: Any) -> Any:
        from bokeh.models import HoverTool

        tips = [("time", "$x{%H:%M:%S}"), (self.word, "@image{0} %")]
        return HoverTool(tooltips=tips, formatters={"$x": "datetime"}, **options)

    def _bar(self) -> dict[str, Any]:
        from bokeh.models import FixedTicker, PrintfTickFormatter

        percent = PrintfTickFormatter(format="%d %%")  # "%d %" would throw in the browser and blank the whole page
        return {"width": 8, "padding": 4, "margin": 0, "bar_line_color": None, "major_tick_line_color": None,
                "ticker": FixedTicker(ticks=[0, 50, 100]), "formatter": percent}  # fmt: skip


def add(figure: Any, source: Any, glyph: Any) -> None:
    """Add a glyph to a figure; it shares the view of what is drawn of its source already."""
    views = [renderer.view for renderer in figure.renderers if renderer.data_source is source]
    figure.add_glyph(source, glyph, nonselection_glyph=None, **({"view": views[0]} if views else {}))


def milliseconds(time: Any) -> int:
    """Return a naive time as Bokeh counts it."""
    return int(time.astype("datetime64[ms]").astype("int64"))
