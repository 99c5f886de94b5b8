"""The monitor that samples from a thread of this process; a task that holds the GIL delays it."""

from __future__ import annotations

import os

from jumper.monitor.backends.base import BaseMonitor
from jumper.monitor.pipeline import build_pipeline
from jumper.monitor.sampler import Sampler
from jumper.monitor.sinks import CallSink


class PerformanceMonitor(BaseMonitor):
    """Sample this process (or another) from a thread.

    Parameters
    ----------
    levels, collectors, pid
        See :class:`jumper.monitor.backends.base.BaseMonitor`.

    Attributes
    ----------
    data : PerformanceData
        One row a tick and level.
    nodes : NodeDataStore
    reason : str or None
        Why it stopped, where nobody stopped it.

    Examples
    --------
    >>> monitor = PerformanceMonitor(levels=["process"])
    >>> monitor.start(interval=0.01)
    >>> monitor.stop()
    >>> float(monitor.data.view("process")["memory"].iloc[0]) > 0
    True
    """

    process: object = None

    def start(self, interval: float = 1.0) -> None:
        """Begin to sample; the first sample is taken before this returns.

        Parameters
        ----------
        interval : float
            Seconds between samples.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        """
        if self.running:
            return
        self._begin(interval)
        pipeline = build_pipeline(self.config, self, self.levels)
        self._sampler = Sampler(
            pipeline,
            self.levels,
            self.interval,
            self.pid,
            [CallSink(self._take, self._note)],
            own_in_target=self.pid == os.getpid(),
        )
        self.running = True
        self._sampler.on_end = self._ended
        self._sampler.start()

    def stop(self) -> None:
        """Take a last sample and end; safe to call twice, and before :meth:`start`."""
        if not self.running:
            return
        self._sampler.stop()
        self._finish()

    def _ended(self, reason: str | None) -> None:
        self.reason = reason
        self._finish()
