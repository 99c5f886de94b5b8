"""Where rows go: into a segment on disk, or into the tables of a monitor in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jumper.monitor.sampler import Row
from jumper.monitor.segment import SegmentWriter
from jumper.schema.columns import is_derived


class SegmentSink:
    """Write rows to a segment, flushed at every tick.

    Parameters
    ----------
    writer : SegmentWriter
    flush_s : float
        Blocks are written at most this often (for shared file systems); 0: every tick.
    derived : bool
        The rows hold derived columns too (somebody else reads them at once); these are not stored.
    """

    def __init__(self, writer: SegmentWriter, flush_s: float = 0.0, derived: bool = False) -> None:
        self.writer = writer
        self.derived = derived
        self.flush_ns = round(flush_s * 1e9)
        self._flushed_ns = 0

    @property
    def dropped(self) -> int:
        """Blocks that could not be written."""
        return self.writer.dropped

    def tick(self, mono_ns: int, rows: Mapping[str, list[Row]]) -> None:
        """Take the rows of one tick."""
        for stream, items in rows.items():
            for row in items:
                if self.derived:
                    row = {name: value for name, value in row.items() if not is_derived(name)}
                self.writer.row(stream, row)
        if mono_ns - self._flushed_ns >= self.flush_ns:
            self._flushed_ns = mono_ns
            self.writer.flush()

    def event(self, record: Mapping[str, Any]) -> None:
        """Take an event record."""
        self.writer.text(record)


class CallSink:
    """Hand every row to a function: ``take(stream, row)``."""

    dropped = 0

    def __init__(
        self, take: Callable[[str, Row], None], note: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        self._take = take
        self._note = note

    def tick(self, mono_ns: int, rows: Mapping[str, list[Row]]) -> None:
        """Take the rows of one tick."""
        for stream, items in rows.items():
            for row in items:
                self._take(stream, row)

    def event(self, record: Mapping[str, Any]) -> None:
        """Take an event record."""
        if self._note is not None:
            self._note(record)
