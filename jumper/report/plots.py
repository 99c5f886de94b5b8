"""`run.plot`: HoloViews objects of a run that compose with `+`, `*` and `.opts`."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need
from jumper.schema.errors import RunError

if TYPE_CHECKING:
    from jumper.analysis.tables import RunTables
    from jumper.report.data import RunRows
    from jumper.report.theme import Theme


class Plots:
    """Pictures of one run; nothing heavy is imported before the first one is asked for.

    Each is a HoloViews object: ``+`` lays two out side by side, ``*`` draws one over the other,
    ``.opts`` changes how it looks. Times are those of this machine's zone at the start of the run.
    In a notebook a picture shows itself; ``bokeh.plotting.show(holoviews.render(picture))`` opens
    it elsewhere. docs/notebooks.md shows them all.

    Parameters
    ----------
    run : Run
    theme : {"light", "dark"}

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

    def __init__(self, run: RunTables, theme: str = "light") -> None:
        self._run = run
        self._theme_name = theme

    def timeline(self) -> Any:
        """Draw all rows that have data, linked in time: tasks, CPU, memory, I/O, custom metrics, nodes.

        Returns
        -------
        holoviews.Layout
            What is drawn over it is drawn over each row.

        Examples
        --------
        >>> run.plot.timeline()                                             # doctest: +SKIP
        :Layout
        ...
        """
        from jumper.report.page.views import rows_of

        hv = self._ready()
        pictures = [view.element for view in rows_of(self._rows, self._theme)]
        if not pictures:
            raise RunError("this run has neither attempts nor samples to draw")
        pictures[-1] = pictures[-1].opts(backend="bokeh", xaxis="bottom", clone=True)
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
        found = elements.io(self._rows, self._theme) or elements.calls(self._rows, self._theme)
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
        return self._shown(elements.metric(self._rows, self._theme, found), name)

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
        return self._plain(charts.distribution(self._rows, self._theme, column), column)

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
        return self._plain(charts.asked_vs_used(self._rows, self._theme, what), f"{what} asked for and used")

    @cached_property
    def _rows(self) -> RunRows:
        need("pandas", "pyarrow")
        from jumper.report.data import RunRows

        return RunRows(self._run)

    @cached_property
    def _theme(self) -> Theme:
        from jumper.report.theme import theme_of

        return theme_of(self._theme_name)

    def _ready(self) -> Any:
        need("pandas", "bokeh", "holoviews")
        from jumper.report.elements import holoviews

        hv = holoviews()
        if "IPython" in sys.modules and not getattr(hv.extension, "_loaded", True):
            hv.extension("bokeh")
        return hv

    def _one(self, name: str) -> Any:
        from jumper.report import elements

        self._ready()
        return self._shown(getattr(elements, name)(self._rows, self._theme), name)

    def _shown(self, element: Any, name: str) -> Any:
        return self._plain(element, name).opts(backend="bokeh", xaxis="bottom", clone=True)

    @staticmethod
    def _plain(element: Any, name: str) -> Any:
        if element is None:
            raise RunError(f"this run has nothing to draw for {name!r}: no attempt or sample holds it")
        return element
