"""Start and stop a monitor, and get out what it measured: the documents' service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jumper.monitor.backends import create_monitor
from jumper.monitor.common import MonitorProtocol, missing_attributes
from jumper.schema.errors import JumperError
from jumper.utilities import parse_interval

if TYPE_CHECKING:
    import os

__all__ = ["PerfmonitorService", "build_perfmonitor_service"]


class PerfmonitorService:
    """One monitor at a time, started, stopped and exported.

    Attributes
    ----------
    monitor : MonitorProtocol or None
        The one that runs or ran last.
    """

    def __init__(self) -> None:
        self.monitor: MonitorProtocol | None = None

    def start_monitoring(self, interval: float = 1.0, monitor_type: str = "default", monitor: Any = None) -> None:
        """Start a monitor.

        Parameters
        ----------
        interval : float, optional
            Seconds between two samples.
        monitor_type : str, optional
            Which of ours; see :func:`jumper.monitor.backends.create_monitor`.
        monitor : MonitorProtocol, optional
            One of your own; it goes before ``monitor_type``.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        JumperError
            Where a monitor runs already, the type is unknown, or the object is no monitor.
        """
        interval = parse_interval(interval)
        if self.monitor is not None and self.monitor.running:
            raise JumperError("a monitor is running already; call stop_monitoring() first")
        if monitor is None:
            monitor = create_monitor(monitor_type)
        missing = missing_attributes(monitor)
        if missing:
            raise JumperError(
                f"{type(monitor).__name__} is no monitor: it lacks {', '.join(missing)} "
                "(jumper.monitor.common.MonitorProtocol lists what one has)"
            )
        monitor.start(interval)
        if monitor.data is not None:
            monitor.data.start_time = monitor.start_time
        self.monitor = monitor

    def stop_monitoring(self) -> None:
        """Stop the monitor; what it measured stays readable. Nothing happens where none runs."""
        if self.monitor is not None and self.monitor.running:
            self.monitor.stop()

    def export_perfdata(self, file: str | os.PathLike[str], level: str = "process") -> None:
        """Write what was measured so far, or until the monitor was stopped.

        Parameters
        ----------
        file : path
            Its suffix says the format: ``.csv``, ``.json`` or ``.parquet``.
        level : str, optional

        Raises
        ------
        JumperError
            Where nothing was measured yet, or the suffix is another one.
        ValueError
            Where there is no such level.
        """
        if self.monitor is None or self.monitor.data is None:
            raise JumperError("nothing was measured yet; call start_monitoring() first")
        self.monitor.data.export(file, level)


def build_perfmonitor_service() -> PerfmonitorService:
    """Return a new service, without a monitor.

    Examples
    --------
    >>> build_perfmonitor_service().monitor is None
    True
    """
    return PerfmonitorService()
