"""The monitor that samples from a child process: a held GIL does not stop it, and its cost is its own."""

from __future__ import annotations

from jumper.monitor.agent_process import AgentProcess
from jumper.monitor.backends.base import BaseMonitor, Source


class SubprocessPerformanceMonitor(BaseMonitor):
    """Sample this process (or another) from an agent.

    Parameters and attributes are those of :class:`jumper.monitor.backends.base.BaseMonitor`.
    """

    def _make(self) -> Source:
        return AgentProcess(self.pid, self.interval, self.levels, self.config, stream=self._take, note=self._note)
