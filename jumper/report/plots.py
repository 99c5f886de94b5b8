"""`run.plot`: HoloViews objects of a run that compose with `+`, `*` and `.opts`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need
from jumper.report.theme import LIGHT
from jumper.schema.errors import RunError

if TYPE_CHECKING:
    from jumper.analysis.tables import RunTables
    from jumper.report.canvas import Picture
    from jumper.report.data import RunRows

#: Pixels that the labels of a time axis, and a legend, need; rows of the report have none of their own.
_AXIS, _LEGEND = 34, 18


class Plots:
    """Pictures of one run; nothing heavy is imported before the first one is asked for.

    Each is a HoloViews object: ``+`` lays two out side by side, ``*`` draws one over the other,
    ``.opts`` changes how it looks. Times are those of this machine's zone at the start of the run.
    In a notebook a picture shows itself; ``bokeh.plotting.show(holoviews.render(picture))`` opens
    it elsewhere. docs/notebooks.md shows them all.

    Parameters
    ----------
    run : Run

    Raises
    ------
    RunError
        From each picture, where the run holds nothing that it could draw.
    MissingExtraError
        From each picture, where the extra ``report`` is not installed.

    Examples
    --------
    >>> import jumper                                                       # doctest: +SKIP
    >>> run = jumper.open_run("RUN")                                        # doctest: +SKIP
    >>> run.plot.cpu() + run.plot.memory()                                  # doctest: +SKIP
    :Layout
    ...
    """

    def __init__(self, run: RunTables) -> None:
        self._run = run

    def timeline(self) -> Any:
        """Draw all rows that have data, linked in time: tasks, CPU, memory, I/O, custom metrics, nodes.

        Returns
        -------
        holoviews.Layout
            What is drawn over it is drawn over each row.

        Raises
        ------
        RunError
            Where the run has neither attempts nor samples.

        Examples
        --------
        >>> run.plot.timeline()                                             # doctest: +SKIP
        :Layout
        ...
        """
        from jumper.report.page.views import rows_of

        hv = self._ready()
        pictures = [picture.element() for picture in rows_of(self._rows, LIGHT)]
        if not pictures:
            raise RunError("this run has neither attempts nor samples to draw")
        pictures[0] = self._more(pictures[0], [self._legend], _LEGEND)
        pictures[-1] = self._timed(pictures[-1])
        return hv.Layout(pictures).cols(1).opts(backend="bokeh", toolbar=None)

    def tasks(self) -> Any:
        """Draw attempts as bars in the lanes of their nodes, coloured by group; failed ones outlined.

        Examples
        --------
        >>> run.plot.tasks()                                                # doctest: +SKIP
        :...
        """
        return self._one("tasks")

    def cpu(self) -> Any:
        """Draw busy cores over time, by task group; the area of a group is its ``cpu_s``.

        Examples
        --------
        >>> import datetime, holoviews as hv                                # doctest: +SKIP
        >>> run.plot.cpu() * hv.VLine(datetime.datetime.now())              # doctest: +SKIP
        :Overlay
        ...
        """
        return self._one("cpu")

    def memory(self) -> Any:
        """Draw memory in use over time, by task group, beside what the nodes have.

        Examples
        --------
        >>> run.plot.memory().opts(height=300)                              # doctest: +SKIP
        :...
        """
        return self._one("memory")

    def io(self) -> Any:
        """Draw bytes a second from and to storage; where there are none, through system calls.

        Examples
        --------
        >>> run.plot.io()                                                   # doctest: +SKIP
        :...
        """
        from jumper.report import elements

        self._ready()
        found = elements.io(self._rows, LIGHT) or elements.calls(self._rows, LIGHT)
        return self._shown(found, "io")

    def network(self) -> Any:
        """Draw bytes a second over the network interfaces of the nodes, loopback left out.

        Examples
        --------
        >>> run.plot.network() + run.plot.io()                              # doctest: +SKIP
        :Layout
        ...
        """
        return self._one("network")

    def gpu(self) -> Any:
        """Draw how busy each device was over time; missing samples in a colour of their own.

        Examples
        --------
        >>> run.plot.gpu() + run.plot.nodes()                               # doctest: +SKIP
        :Layout
        ...
        """
        return self._one("gpu")

    def nodes(self) -> Any:
        """Draw the CPU of each node over time, whoever used it; missing samples in a colour of their own.

        Examples
        --------
        >>> run.plot.nodes()                                                # doctest: +SKIP
        :...
        """
        return self._one("nodes")

    def metric(self, name: str, level: str = "system") -> Any:
        """Draw any stored column or column of a custom collector over time; counters as rates a second.

        Parameters
        ----------
        name : str
            A column of the samples, in its own unit.
        level : {"system", "process", "user", "slurm"}

        Raises
        ------
        RunError
            Where the level has no such column with a value; lists those that it has.

        Examples
        --------
        >>> run.plot.metric("memory_bytes")                                 # doctest: +SKIP
        :...
        """
        from jumper.analysis.tables import KEYS
        from jumper.report import elements

        self._ready()
        samples = self._run.samples(level)
        found = self._rows.metric(name, level) if name in samples else None
        if found is None:
            known = ", ".join(column for column in samples.columns if column not in KEYS) or "none"
            raise RunError(f"level {level!r} has no values of {name!r}; its columns: {known}")
        return self._shown(elements.metric(self._rows, LIGHT, found), name)

    def distribution(self, column: str = "wall_s") -> Any:
        """Draw how a figure is spread over the attempts of each group that succeeded, as boxes.

        The box holds the middle half, its line is the median, whiskers reach to the last value
        within 1.5 times the box; the 30 groups with the most wall time are drawn.

        Parameters
        ----------
        column : str
            A column of the tasks table that has numbers, or ``cores``: CPU time over wall time.

        Raises
        ------
        RunError
            Where it is no such column; lists those that are.

        Examples
        --------
        >>> run.plot.distribution() + run.plot.distribution("memory_peak_bytes")  # doctest: +SKIP
        :Layout
        ...
        """
        from jumper.report import charts
        from jumper.schema.tasks import NUMBERS

        if column not in (known := (*NUMBERS, "cores")):
            raise RunError(f"{column!r} has no distribution; there are {', '.join(known)}")
        self._ready()
        return self._plain(charts.distribution(self._rows, LIGHT, column), column)

    def asked_vs_used(self, what: str = "memory") -> Any:
        """Draw by group what its attempts used (lowest, median, highest) beside what they asked for.

        Of memory, where nothing was asked for, what was allowed.

        Parameters
        ----------
        what : {"memory", "threads", "runtime"}

        Raises
        ------
        RunError
            Where it is something else.

        Examples
        --------
        >>> run.plot.asked_vs_used() + run.plot.asked_vs_used("threads")    # doctest: +SKIP
        :Layout
        ...
        """
        from jumper.report import charts

        if what not in charts.ASKED:
            raise RunError(f"what was asked for is one of {', '.join(charts.ASKED)}; not {what!r}")
        self._ready()
        return self._plain(charts.asked_vs_used(self._rows, LIGHT, what), f"{what} asked for and used")

    @cached_property
    def _rows(self) -> RunRows:
        need("pandas", "pyarrow")
        from jumper.report.data import RunRows

        return RunRows(self._run)

    def _ready(self) -> Any:
        need("pandas", "bokeh", "holoviews")
        from jumper.report.canvas import holoviews

        hv = holoviews()
        if "IPython" in sys.modules and not getattr(hv.extension, "_loaded", True):
            hv.extension("bokeh", inline=True)  # nodes and browsers of clusters may have no network
        return hv

    def _one(self, name: str) -> Any:
        from jumper.report import elements

        self._ready()
        return self._shown(getattr(elements, name)(self._rows, LIGHT), name)

    def _shown(self, picture: Picture | None, name: str) -> Any:
        element = self._plain(picture and picture.element(), name)
        if name in ("tasks", "cpu", "memory"):
            element = self._more(element, [self._legend], _LEGEND)
        return self._timed(element)

    def _timed(self, element: Any) -> Any:
        return self._more(element, (), _AXIS, xaxis="bottom")

    @staticmethod
    def _more(element: Any, hooks: Sequence[Any], height: int, **options: Any) -> Any:
        """Return an element with what is added to its options: pixels of height, hooks."""
        from jumper.report.canvas import holoviews

        known = holoviews().Store.lookup_options("bokeh", element, "plot").kwargs
        return element.opts(backend="bokeh", height=known["height"] + height, hooks=[*known.get("hooks", ()), *hooks],
                            clone=True, **options)  # fmt: skip

    def _legend(self, plot: Any, element: Any) -> None:
        """Name the groups by their colours, above a picture: the rows of the report have one legend for all."""
        from jumper.report.canvas import plain

        models, figure, nowhere = need("bokeh.models"), plot.state, [float("nan")]
        if figure.select_one({"name": "groups"}) is not None:
            return
        marks = {
            name: figure.scatter(nowhere, nowhere, marker="square", size=10, color=colour)
            for name, colour in self._rows.colour.items()
        }
        items = [models.LegendItem(label=plain(name), renderers=[mark]) for name, mark in marks.items()]
        figure.add_layout(
            models.Legend(items=items, name="groups", orientation="horizontal", location="left", padding=0, margin=0,
                          spacing=12, glyph_width=12, glyph_height=12, label_height=12, label_standoff=2,
                          label_text_font_size="11px", border_line_color=None, background_fill_alpha=0),
            "above",
        )  # fmt: skip

    @staticmethod
    def _plain(element: Any, name: str) -> Any:
        if element is None:
            raise RunError(f"this run has nothing to draw for {name!r}: no attempt or sample holds it")
        return element
