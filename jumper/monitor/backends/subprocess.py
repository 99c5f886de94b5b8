"""The monitor that samples from a child process: a held GIL does not stop it, and its cost is its own."""

from __future__ import annotations

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends.base import BaseMonitor


class SubprocessPerformanceMonitor(BaseMonitor):
    """Sample this process (or another) from an agent.

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
        """Start the agent; returns when it samples.

        Parameters
        ----------
        interval : float
            Seconds between samples.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        MonitorUnavailableError
            Where the agent does not start; the message says why.
        """
        if self.running:
            return
        self._begin(interval)
        self._agent = AgentProcess(self.pid, self.interval, self.levels, self.config, stream=self._take)
        self._agent.on_end = self._ended
        self._agent.events = self.events
        self._agent.start()
        self.running = True

    def stop(self) -> None:
        """Take a last sample and end the agent; safe to call twice, and before :meth:`start`."""
        if not self.running:
            return
        self._agent.stop()
        self._finish()

    def _ended(self, reason: str | None) -> None:
        self.reason = reason
        self._finish()
