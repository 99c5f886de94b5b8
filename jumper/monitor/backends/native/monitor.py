"""The monitor that samples from a native thread of this process: a held GIL does not stop it."""

from __future__ import annotations

from jumper.monitor.backends.base import BaseMonitor, Source
from jumper.monitor.backends.native.sampling import NativeSampling


class NativeMonitor(BaseMonitor):
    """Sample this process (or another) from a thread that never takes the GIL.

    Rows are taken on time whatever Python does, and appear in the tables when it lets go.
    Parameters and attributes are those of :class:`jumper.monitor.backends.base.BaseMonitor`.
    """

    def _make(self) -> Source:
        return NativeSampling(self.pid, self.interval, self.levels, self.config, stream=self._take, note=self._note)
