"""A picture that grows while a monitor runs: HoloViews streams, fed by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jumper.report.canvas import holoviews
from jumper.report.levelplot import metric_columns, picture
from jumper.schema.errors import JumperError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LivePlot"]


class LivePlot:
    """One picture a metric, drawn anew every few seconds from when a notebook shows it.

    It ends by itself when the monitor does, or with :meth:`stop`. Who draws `view` otherwise calls
    :meth:`start` afterwards: HoloViews may not draw and be fed at the same time.

    Parameters
    ----------
    read : callable
        Returns the samples so far, or those of the window.
    running : callable
        Whether more will come.
    metrics : sequence of str or None
        As in :func:`jumper.report.levelplot.level_plot`.
    start_time : float
        In the clock of the samples.
    update_s : float
        Seconds between two drawings.

    Attributes
    ----------
    view : holoviews.Layout
        Of dynamic maps.
    reason : str or None
        Why it ended, where it could not be drawn any more.

    Raises
    ------
    JumperError
        Where there is no such metric, or the time between drawings is not positive.
    """

    def __init__(
        self,
        read: Callable[[], pd.DataFrame],
        running: Callable[[], bool],
        metrics: Sequence[str] | None,
        start_time: float,
        update_s: float,
    ) -> None:
        if not 0 < update_s < float("inf"):
            raise JumperError(f"a live plot is drawn every so many seconds: expected more than 0, found {update_s!r}")
        hv = holoviews()
        first = read()
        self._read, self._running, self._update_s = read, running, update_s
        self._pipe = hv.streams.Pipe(data=first)
        self.view = hv.Layout([
            hv.DynamicMap(partial(_draw, title, columns, start_time), streams=[self._pipe])
            for title, columns in metric_columns(first, metrics, empty=True).items()
        ]).cols(1)  # fmt: skip
        self.reason: str | None = None
        self._stop = threading.Event()
        self._drawing = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="jumper-live-plot", daemon=True)

    @property
    def running(self) -> bool:
        """Whether it is drawn anew."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Draw it anew from now on; again, nothing happens."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Draw no more; what is shown stays."""
        self._stop.set()
        if self.running and self._thread is not threading.current_thread():
            self._thread.join()

    def _follow(self) -> None:
        more = True
        while more and not self._stop.wait(self._update_s):
            more = self._running()  # asked before the last samples are read
            try:
                with self._drawing:
                    self._pipe.send(self._read())
            except Exception as error:  # whatever a front end that is gone lets HoloViews raise
                self.reason = f"{type(error).__name__}: {error}"
                return

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        with self._drawing:
            bundle = self.view._repr_mimebundle_(include, exclude)
        self.start()
        return bundle


def _draw(title: str, columns: list[str], start_time: float, data: pd.DataFrame) -> Any:
    return picture(data, title, columns, start_time)
