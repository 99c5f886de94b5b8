"""The plugins that a user registers; they pickle by value into `_boot`, so that no worker needs the package."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from jumper.utilities import parse_interval
from jumper_dask import _boot, settings

__all__ = ["CollectorPlugin", "JumperPlugin"]


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    known = _boot.__name__ in cloudpickle.list_registry_pickle_by_value()
    if not known:
        cloudpickle.register_pickle_by_value(_boot)
    try:
        yield
    finally:
        if not known:
            cloudpickle.unregister_pickle_by_value(_boot)


def _reduce(boot: Any) -> tuple[Callable[..., Any], tuple[bytes]]:
    with _by_value():
        return cloudpickle.loads, (cloudpickle.dumps(boot),)


class JumperPlugin(WorkerPlugin):
    """Measure what every task of a Dask cluster costs: ``client.register_plugin(JumperPlugin())``.

    Parameters
    ----------
    interval : float, optional
        Seconds between samples; default is Dask's setting ``jumper.interval``, 1 s.
    collectors : path, optional
        A ``collectors.yaml`` of your own; its text travels to the workers. Default ``jumper.collectors``.
    reset_peak : bool, optional
        Reset the kernel's high-water mark of a worker's memory at task boundaries
        (``/proc/self/clear_refs``), so that short peaks are seen. It changes the ``VmHWM``
        that other tools see of this process; never done where the scheduler lives in it.
        Default ``jumper.reset-peak``, yes.

    Raises
    ------
    ValueError
        Where ``interval`` is no number of at least 1 ms, or a setting is wrong (`SettingError`).
    CollectorConfigError
        Where ``collectors`` is wrong; here, before anything is sent.

    Examples
    --------
    >>> import pickle
    >>> type(pickle.loads(pickle.dumps(JumperPlugin(interval=0.5)))).__name__
    'WorkerBoot'
    """

    name = "jumper"
    idempotent = False  # registered again, its new settings hold

    def __init__(
        self,
        interval: float | None = None,
        collectors: str | Path | None = None,
        *,
        reset_peak: bool | None = None,
    ) -> None:
        self.config: dict[str, Any] = {
            "interval": settings.interval() if interval is None else parse_interval(interval),
            "collectors": _collectors(settings.collectors() if collectors is None else collectors),
            "reset_peak": settings.reset_peak() if reset_peak is None else bool(reset_peak),
        }

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return _reduce(_boot.WorkerBoot(self.config))


class CollectorPlugin(SchedulerPlugin):
    """The scheduler's side; registered by the workers and by `collect`, seldom by hand.

    Parameters
    ----------
    interval : float, optional
        Seconds between samples, as the run tells it.
    dashboard : bool, optional
        Add the page to the dashboard; default is the setting ``jumper.dashboard`` at the scheduler.
    """

    name = "jumper-collector"
    idempotent = True

    def __init__(self, interval: float | None = None, *, dashboard: bool | None = None) -> None:
        self.config: dict[str, Any] = {
            "interval": settings.interval() if interval is None else parse_interval(interval),
            "dashboard": dashboard,
        }

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return _reduce(_boot.SchedulerBoot(self.config))


def _collectors(path: str | Path | None) -> dict[str, Any] | None:
    """Return the merged configuration as JSON, or None for what each worker has itself."""
    if path is None:
        return None
    from jumper.monitor.pipeline import load_config

    config: dict[str, Any] = load_config(path).to_json()
    return config
