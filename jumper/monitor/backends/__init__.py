"""The monitors, by where their engine is hosted: a thread, a child process, one agent a node."""

from __future__ import annotations

import importlib
from typing import Any

from jumper.monitor.common import JumperError, MonitorProtocol, MonitorUnavailableError

__all__ = ["ALIASES", "BACKENDS", "backend_name", "create_monitor", "means_native", "native_built", "require_native"]

#: Name -> class, imported when one is made.
BACKENDS = {
    "thread": "jumper.monitor.backends.thread.PerformanceMonitor",
    "subprocess": "jumper.monitor.backends.subprocess.SubprocessPerformanceMonitor",
    "native": "jumper.monitor.backends.native.monitor.NativeMonitor",
    "slurm_multinode": "jumper.monitor.backends.slurm_multinode.SlurmMultinodeMonitor",
}
#: The documents' names of some of them.
ALIASES = {"subprocess_python": "subprocess", "native_c": "native"}


def native_built() -> bool:
    """Return whether the native engine was built when jumper was installed."""
    return hasattr(importlib.import_module("jumper.monitor.backends.native"), "Engine")


def require_native() -> None:
    """Raise where the native engine was not built.

    Raises
    ------
    MonitorUnavailableError
    """
    if not native_built():
        raise MonitorUnavailableError(
            "the native monitor was not built when jumper was installed (no C compiler?); use 'subprocess'"
        )


def means_native(engine: str) -> bool:
    """Return whether the name of an engine (``native``, ``python``, ``default``) stands for the native one here.

    Raises
    ------
    MonitorUnavailableError
        Where the native engine is asked for and was not built.

    Examples
    --------
    >>> means_native("python"), means_native("default") == native_built()
    (False, True)
    """
    if engine == "native":
        require_native()
    return engine == "native" or (engine == "default" and native_built())


def backend_name(name: str = "default") -> str:
    """Return the name in :data:`BACKENDS` that a name or alias stands for.

    ``default`` is ``native`` where it is built, else ``subprocess``.

    Raises
    ------
    JumperError
        Where there is no such monitor; the message lists the known ones.

    Examples
    --------
    >>> backend_name("subprocess_python")
    'subprocess'
    """
    if name == "default":
        return "native" if native_built() else "subprocess"
    known = ALIASES.get(name, name)
    if known not in BACKENDS:
        raise JumperError(
            f"unknown monitor {name!r}; known are default, {', '.join(BACKENDS)} "
            f"(and {', '.join(f'{alias} for {of}' for alias, of in ALIASES.items())})"
        )
    return known


def create_monitor(name: str = "default", **kwargs: Any) -> MonitorProtocol:
    """Return a new monitor.

    Parameters
    ----------
    name : str, optional
        ``default``, ``thread``, ``subprocess``, ``native``, ``slurm_multinode`` or an alias.
    **kwargs
        For its class: ``levels=``, ``collectors=``.

    Raises
    ------
    JumperError
        Where the name is unknown.
    MonitorUnavailableError
        Where the monitor cannot run here.
    """
    known = backend_name(name)
    if known == "native":
        require_native()
    module, _, attribute = BACKENDS[known].rpartition(".")
    monitor: MonitorProtocol = getattr(importlib.import_module(module), attribute)(**kwargs)
    return monitor
