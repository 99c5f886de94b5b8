"""The monitor that samples from a thread of this process; a task that holds the GIL delays it."""

from __future__ import annotations

from jumper.monitor.backends.base import BaseMonitor, Source
from jumper.monitor.sampling import PythonSampling


class PerformanceMonitor(BaseMonitor):
    """Sample this process (or another) from a thread.

    Parameters and attributes are those of :class:`jumper.monitor.backends.base.BaseMonitor`.

    Examples
    --------
    >>> monitor = PerformanceMonitor(levels=["process"])
    >>> monitor.start(interval=0.01)
    >>> monitor.stop()
    >>> float(monitor.data.view("process")["memory"].iloc[0]) > 0
    True
    """

    def _make(self) -> Source:
        return PythonSampling(self.pid, self.interval, self.levels, self.config, stream=self._take, note=self._note)
