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

    Parameters
    ----------
    run : Run
    theme : {"light", "dark"}

    Raises
    ------
    MissingExtraError
        From each picture, where the extra ``report`` is not installed.

    Examples
    --------
    >>> import jumper                                                       # doctest: +SKIP
    >>> run = jumper.open_run("jumper-demo")                                # doctest: +SKIP
    >>> run.plot.cpu() + run.plot.memory()                                  # doctest: +SKIP
    """

    def __init__(self, run: RunTables, theme: str = "light") -> None:
        self._run = run
        self._theme_name = theme

    def timeline(self) -> Any:
        """All rows that have data, linked in time: tasks, CPU, memory, I/O, custom metrics, nodes."""
        from jumper.report.page.views import rows_of

        hv = self._ready()
        pictures = [view.element for view in rows_of(self._rows, self._theme)]
        if not pictures:
            raise RunError("this run has neither attempts nor samples to draw")
        pictures[-1] = pictures[-1].opts(backend="bokeh", xaxis="bottom", clone=True)
        return hv.Layout(pictures).cols(1).opts(backend="bokeh", toolbar=None)

    def tasks(self) -> Any:
        """Attempts as bars in the lanes of their nodes."""
        return self._one("tasks")

    def cpu(self) -> Any:
        """Busy cores by task group."""
        return self._one("cpu")

    def memory(self) -> Any:
        """Memory in use by worker or target."""
        return self._one("memory")

    def io(self) -> Any:
        """Bytes a second from and to storage; where there are none, through system calls."""
        from jumper.report import elements

        self._ready()
        found = elements.io(self._rows, self._theme) or elements.calls(self._rows, self._theme)
        return self._shown(found, "io")

    def metric(self, name: str, level: str = "system") -> Any:
        """Any stored column or column of a custom collector; counters are drawn as rates a second.

        Raises
        ------
        RunError
            Where the level has no such column with a value; lists those that it has.
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

    @staticmethod
    def _shown(element: Any, name: str) -> Any:
        if element is None:
            raise RunError(f"this run has nothing to draw for {name!r}: no attempt or sample holds it")
        return element.opts(backend="bokeh", xaxis="bottom", clone=True)
