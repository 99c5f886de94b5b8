"""The collectors in C of a native engine: which run, what columns they add, and why one is off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jumper.config.claims import without_broken
from jumper.config.entries import CollectorConfig, CollectorEntry, Refused
from jumper.config.libraries import LEVELS, Library, describe
from jumper.monitor.backends.native._engine import MOST_LIBRARIES, Engine

#: an origin longer than this is cut in the engine's own event
_MOST_TEXT = 300


class Libraries:
    """Those entries of a configuration that are libraries, checked here and now.

    Parameters
    ----------
    config : CollectorConfig

    Attributes
    ----------
    others : CollectorConfig
        The configuration without them.
    refused : list of Refused
        Those that cannot run, and what was refused before.
    """

    def __init__(self, config: CollectorConfig) -> None:
        self._loaded: list[tuple[CollectorEntry, Library]] = []
        self.refused = list(config.refused)
        if any(entry.library for entry in config.entries):
            checked = without_broken(config, lambda entry: entry.library or entry.package)
            loaded = [(entry, describe(entry)) for entry in checked.entries if entry.library]
            self._loaded = loaded[:MOST_LIBRARIES]
            many = f"more than {MOST_LIBRARIES} collectors in C"
            surplus = [Refused(e.name, e.origin, str(e.error("library", many))) for e, _ in loaded[MOST_LIBRARIES:]]
            self.refused = [*checked.refused, *surplus]
            config = checked
        self.others = CollectorConfig(tuple(e for e in config.entries if not e.library), config.search)
        self._told: set[int] = set()

    def __len__(self) -> int:
        return len(self._loaded)

    def columns(self, level: str) -> list[str]:
        """Return what they add to the rows of a level, in the order of storage."""
        mask = LEVELS.get(level, 0)
        return [name for _, library in self._loaded if library.levels & mask for name in library.names]

    def header(self) -> dict[str, Any]:
        """Return what a segment's header says of them: name, library, and the columns with unit and kind."""
        return {
            entry.name: {"library": entry.library, "columns": {name: [unit, kind] for name, unit, kind in said.columns}}
            for entry, said in self._loaded
        }

    def add_to(self, engine: Engine) -> None:
        """Let an engine ask them at its ticks."""
        for entry, said in self._loaded:
            engine.add_collector(
                (entry.library or "").encode("utf-8", "surrogateescape"),
                entry.config.encode("utf-8", "surrogateescape"),
                _in_json(entry.name),
                _in_json(entry.origin),
                said.levels,
                len(said.columns),
            )

    def switched_off(self, engine: Engine) -> list[Mapping[str, Any]]:
        """Return the events of those that were switched off since the last call."""
        events: list[Mapping[str, Any]] = []
        for index, (entry, _) in enumerate(self._loaded):
            if index not in self._told and (reason := engine.collector_reason(index)):
                self._told.add(index)
                text = f"collector {entry.name} ({entry.origin}) is off: {reason}"
                events.append(Refused(entry.name, entry.origin, text).event())
        return events


def _in_json(text: str) -> bytes:
    return json.dumps(text[-_MOST_TEXT:])[1:-1].encode()
