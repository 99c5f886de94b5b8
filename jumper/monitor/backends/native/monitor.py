"""The monitor that samples from a native thread of this process: a held GIL does not stop it."""

from __future__ import annotations

from jumper.monitor.backends.base import BaseMonitor
from jumper.monitor.backends.native.sampling import NativeSampling


class NativeMonitor(BaseMonitor):
    """Sample this process (or another) from a thread that never takes the GIL.

    Rows are taken on time whatever Python does, and appear in the tables when it lets go.

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
    """

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
        MonitorUnavailableError
            Where the thread cannot be made.
        """
        if self.running:
            return
        self._begin(interval)
        self._sampling = NativeSampling(
            self.pid, self.interval, self.levels, self.config, stream=self._take, note=self._note
        )
        self._sampling.on_end = self._ended
        self._sampling.start()
        self.running = True

    def stop(self) -> None:
        """Take a last sample and end; safe to call twice, and before :meth:`start`."""
        if not self.running:
            return
        self._sampling.stop()
        self._finish()

    def _ended(self, reason: str | None) -> None:
        self.reason = reason
        self._finish()
