"""From a configuration to columns: collectors and their handlers, run once a tick, one failing alone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from jumper.config.claims import build_handler, check_columns, only_derived, without_broken
from jumper.config.entries import BUILT_IN, CollectorConfig, CollectorEntry, Refused, resolve
from jumper.config.libraries import needs_native
from jumper.config.load import load_config, load_config_text
from jumper.monitor.metrics.common import CollectionContext, Value
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.handlers import number
from jumper.monitor.metrics.here import is_beside, without_absent
from jumper.schema.errors import CollectorConfigError

__all__ = ["CollectorConfig", "CollectorConfigError", "Pipeline", "build_pipeline", "load_config", "load_config_text"]


class _Stage:
    """One collector with its handler; ``off`` once it raised."""

    def __init__(self, entry: CollectorEntry, collector: Any, handler: Any) -> None:
        self.entry = entry
        self.collector = collector
        self.handler = handler
        self.off = False


class Pipeline:
    """The collectors of a monitor; made by :func:`build_pipeline`.

    Attributes
    ----------
    levels : tuple of str
    events : list of dict
        Records of the type ``event``, to be taken (and removed) by whoever
        writes the segment: a collector that was switched off, and why.
    """

    def __init__(self, stages: Sequence[_Stage], levels: Sequence[str], events: Sequence[dict[str, Any]] = ()) -> None:
        self.levels = tuple(levels)
        self.events = list(events)
        self._stages = list(stages)

    @property
    def names(self) -> list[str]:
        """Names of the collectors that are running."""
        return [stage.entry.name for stage in self._stages if not stage.off]

    @property
    def backends(self) -> list[Any]:
        """The collectors, in order, those that were switched off too."""
        return [stage.collector for stage in self._stages]

    def beside(self) -> Pipeline:
        """Return the part of it that reads what the native engine does not."""
        return Pipeline([stage for stage in self._stages if is_beside(stage.entry)], self.levels, self.events)

    def setup(self) -> dict[str, Any]:
        """Let each collector acquire what it needs; return the facts that they report, merged."""
        facts: dict[str, Any] = {}
        for stage in self._stages:
            try:
                facts.update(_call(stage.collector, "setup") or {})
            except (Exception, SystemExit) as error:  # a collector may be the user's
                self._switch_off(stage, "setup", error)
        return facts

    def tick(
        self, mono_ns: int, wall_ns: int, shared: CollectionContext | None = None, own: bool = True
    ) -> dict[str, dict[str, Value]]:
        """Take one sample of every level.

        Parameters
        ----------
        mono_ns, wall_ns : int
            The time of the sample, ns; rates are by ``mono_ns``.
        shared : CollectionContext, optional
            What another engine has read already; default: a new, empty context.
        own : bool
            Also ask the collectors that read what the native engine does not: not for a tick that is past.

        Returns
        -------
        dict of str to dict
            Level -> column -> value; no level is missing.
        """
        context = new_context(mono_ns, wall_ns) if shared is None else shared
        stages = [stage for stage in self._stages if own or not is_beside(stage.entry)]
        for stage in stages:
            if not stage.off:
                try:
                    _call(stage.collector, "snapshot", context)
                except (Exception, SystemExit) as error:  # as above
                    self._switch_off(stage, "snapshot", error)
        rows: dict[str, dict[str, Value]] = {level: {} for level in self.levels}
        for stage in stages:
            if not stage.off:
                try:
                    _collect(stage, context, rows)
                except (Exception, SystemExit) as error:  # as above
                    self._switch_off(stage, "collect", error)
        return rows

    def close(self) -> None:
        """Let each collector release what it holds."""
        for stage in self._stages:
            with contextlib.suppress(Exception, SystemExit):  # nothing can be done about it any more
                _call(stage.collector, "close")

    def _switch_off(self, stage: _Stage, step: str, error: BaseException) -> None:
        stage.off = True
        entry = stage.entry
        text = f"collector {entry.name} ({entry.origin}) is off: {step}: {type(error).__name__}: {error}"
        self.events.append(Refused(entry.name, entry.origin, text).event())


def build_pipeline(config: CollectorConfig, host: object, levels: Sequence[str], derived: bool = True) -> Pipeline:
    """Make the collectors and handlers of a configuration.

    Parameters
    ----------
    config : CollectorConfig
        From :func:`load_config`, :func:`load_config_text` or JSON.
    host : object
        The monitor; what an entry injects is taken from its attributes.
    levels : sequence of str
        The levels to sample.
    derived : bool, optional
        Whether to run collectors all of whose columns are derived from stored
        ones; a sink that only stores has no use for them.

    Returns
    -------
    Pipeline
        Libraries, and what packages brought that cannot run here, are in its events.

    Raises
    ------
    CollectorConfigError
        Where something cannot be made; the message names the file and the key.

    Examples
    --------
    >>> from jumper.monitor.metrics.common import CollectorBackend
    >>> entry = CollectorEntry(
    ...     "process", "jumper.monitor.metrics.memory.MemoryCollector",
    ...     "jumper.monitor.metrics.handlers.ScalarHandler", handler_kwargs={"column": "memory"})
    >>> pipeline = build_pipeline(CollectorConfig((entry,)), object(), ["process"])
    >>> pipeline.tick(0, 0)
    {'process': {}}
    """
    if not config.entries or config.entries[0].name != "process":
        names = ", ".join(entry.name for entry in config.entries) or "none"
        raise CollectorConfigError(f"collectors: expected `process` as the first entry, found {names}")
    config = without_absent(config, int(getattr(host, "pid", 0)))
    refused = [Refused(e.name, e.origin, needs_native(e)) for e in config.entries if e.library]
    entries = tuple(entry for entry in config.entries if not entry.library)
    config = CollectorConfig(entries, config.search, (*config.refused, *refused))
    if any(entry.package for entry in entries):
        config = without_broken(config, lambda entry: entry.package)
    else:
        check_columns(config)
    stages = []
    events = [each.event() for each in config.refused]
    for entry in config.entries:
        handler = build_handler(entry, config.search)
        if derived or entry.name == "process" or not only_derived(entry, handler):
            try:
                stages.append(_Stage(entry, _collector(entry, host, config.search), handler))
            except CollectorConfigError as error:
                if entry.package is None:
                    raise
                events.append(Refused(entry.name, entry.origin, str(error)).event())
    return Pipeline(stages, levels, events)


def _collector(entry: CollectorEntry, host: object, search: Sequence[str]) -> Any:
    factory = resolve(entry, "_target_", entry.target, search)
    absent = [key for key in entry.inject if not hasattr(host, key)]
    if absent:
        raise entry.error("inject", f"this monitor has no {absent[0]!r}")
    try:
        collector = factory(**{key: _injected(entry, host, key) for key in entry.inject}, **entry.kwargs)
    except (Exception, SystemExit) as error:  # the class may be the user's
        given = ", ".join((*entry.inject, *entry.kwargs)) or "nothing"
        raise entry.error("", f"{entry.target} cannot be made from {given}: {type(error).__name__}: {error}") from error
    if not callable(getattr(collector, "collect", None)):
        raise entry.error("_target_", f"{entry.target} has no collect(level, context); is it a collector?")
    return collector


def _injected(entry: CollectorEntry, host: object, key: str) -> Any:
    """Return an attribute of the monitor; ours have no psutil handle, so one is made for who asks."""
    value = getattr(host, key)
    if key == "process" and value is None and entry.origin != BUILT_IN:
        import psutil

        return psutil.Process(host.pid)  # type: ignore[attr-defined]
    return value


def _call(thing: object, method: str, *arguments: object) -> Any:
    """Call an optional method; documents' collectors need only ``collect``."""
    found = getattr(thing, method, None)
    return None if found is None else found(*arguments)


def _collect(stage: _Stage, context: CollectionContext, rows: dict[str, dict[str, Value]]) -> None:
    """Add the columns of one collector to the rows of all levels, or to none where it raises."""
    _call(stage.handler, "at", context["mono_ns"] / 1e9)
    new: dict[str, dict[str, Value]] = {}
    for level, row in rows.items():
        columns = stage.handler.transform(stage.collector.collect(level, context), level)
        if not isinstance(columns, Mapping):
            raise TypeError(f"expected a mapping of column to value from {stage.entry.handler}, found {columns!r:.80}")
        taken = next((column for column in columns if column in row), None)
        if taken is not None:
            raise ValueError(f"the column {taken!r} is written by another collector already")
        new[level] = {str(column): number(value) for column, value in columns.items()}
    for level, values in new.items():
        rows[level].update(values)
