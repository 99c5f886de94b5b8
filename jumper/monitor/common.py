"""What every monitor looks like from outside, and the errors of monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from jumper.schema.errors import CollectorConfigError, JumperError, MonitorUnavailableError

if TYPE_CHECKING:  # an agent has no use for it
    from jumper.adapters.data import PerformanceData

__all__ = [
    "CollectorConfigError",
    "JumperError",
    "MonitorProtocol",
    "MonitorUnavailableError",
    "UnavailablePerformanceMonitor",
    "missing_attributes",
]


@runtime_checkable
class MonitorProtocol(Protocol):
    """Any object with these attributes and methods is a monitor.

    Attributes
    ----------
    interval : float
        Seconds between two samples.
    running : bool
    data : PerformanceData
        The samples; readable while it runs and after.
    start_time : float or None
        Monotonic seconds, set by :meth:`start`.
    wallclock_start_time, wallclock_stop_time : float or None
        Seconds since 1970 UTC.
    num_cpus, num_system_cpus, num_gpus : int
        CPUs available to the target; CPUs of the machine; devices.
    gpu_memory : float
        GiB a device.
    gpu_name : str
    cpu_handles : list of int
        The available CPUs' numbers.
    memory_limits : dict
        Level -> GiB.
    is_imported : bool
        Whether it shows an earlier session; ``session_source`` then says which.
    session_source : str or None
    """

    interval: float
    running: bool
    data: PerformanceData
    start_time: float | None
    wallclock_start_time: float | None
    wallclock_stop_time: float | None
    num_cpus: int
    num_system_cpus: int
    num_gpus: int
    gpu_memory: float
    gpu_name: str
    cpu_handles: list[int]
    memory_limits: dict[str, float]
    is_imported: bool
    session_source: str | None

    def start(self, interval: float = 1.0) -> None:
        """Begin to take samples."""
        ...

    def stop(self) -> None:
        """End; the samples stay readable."""
        ...


_ATTRIBUTES = (*MonitorProtocol.__annotations__, "start", "stop")


def missing_attributes(monitor: object) -> list[str]:
    """Return the attributes of :class:`MonitorProtocol` that an object lacks.

    Examples
    --------
    >>> missing_attributes(object())[:2]
    ['interval', 'running']
    """
    return [name for name in _ATTRIBUTES if not hasattr(monitor, name)]


class UnavailablePerformanceMonitor:
    """Stands where a monitor cannot be; everything but ``running`` raises.

    Parameters
    ----------
    reason : str
        Why there is none.

    Examples
    --------
    >>> monitor = UnavailablePerformanceMonitor("no /proc here")
    >>> monitor.running
    False
    >>> monitor.start()
    Traceback (most recent call last):
    jumper.schema.errors.MonitorUnavailableError: no monitor: no /proc here
    """

    running = False

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __getattr__(self, name: str) -> Any:
        # what looks for special attributes (pickle, copy, displays) is answered as for any object
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def start(self, interval: float = 1.0) -> None:
        """Raise the reason."""
        self._refuse()

    def stop(self) -> None:
        """Raise the reason."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise MonitorUnavailableError(f"no monitor: {self.__dict__.get('reason', 'not made yet')}")
