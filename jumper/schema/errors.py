"""The errors of jumper: one small tree; each message says what was found and what to do."""

from __future__ import annotations


class JumperError(Exception):
    """Base of all errors that jumper raises on purpose; its text is one line for a person."""


class MonitorUnavailableError(JumperError):
    """A monitor cannot be started here; the message says why and what would help."""


class CollectorConfigError(JumperError, ValueError):
    """A collectors.yaml is wrong; the message names the file and the key."""


class SettingError(JumperError, ValueError):
    """A value of Dask's configuration is wrong; the message names the key and where it may come from."""


class RunError(JumperError):
    """A run directory cannot be read or written; the message says what was found there."""


class MissingExtraError(JumperError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""
