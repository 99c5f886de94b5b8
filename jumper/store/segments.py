"""Read a segment of any age: rows by stream as numpy columns, records, and what was damaged."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jumper.schema import segment as fmt
from jumper.utilities import plain_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    #: Values and where there is one, shape (rows,).
    Values = npt.NDArray[np.generic]
    Mask = npt.NDArray[np.bool_]
    ColumnData = tuple[Values, Mask]


class RowsBlock(NamedTuple):
    """Where the rows of one block lie: offset of the payload's data, shape, and the columns at that time."""

    offset: int
    stream: str
    columns: tuple[tuple[str, str], ...]
    rows: int


@dataclass(slots=True)
class Segment:
    """A segment as read.

    Attributes
    ----------
    header : dict
        The last schema block; empty where none could be read.
    records : list of dict
        Text records in order; each has ``mono_ns`` and ``wall_ns`` of its block where
        it brings none of its own.
    clock : list of (mono_ns, wall_ns)
        Of every block.
    torn : int
        Damaged stretches that were skipped.
    missing : int
        Blocks that the sequence says are not there.
    complete : bool
        The writer ended in order.
    """

    header: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)
    blocks: int = 0
    torn: int = 0
    missing: int = 0
    size: int = 0
    complete: bool = False
    _rows: list[RowsBlock] = field(default_factory=list)
    _data: bytes = b""

    @property
    def node(self) -> str:
        """Name of the node that it was written on."""
        return str(self.header.get("node", "unknown"))

    @property
    def streams(self) -> list[str]:
        """Streams that have rows."""
        return list(dict.fromkeys(block.stream for block in self._rows))

    def rows(self) -> Iterator[tuple[str, dict[str, int | float | None]]]:
        """Yield (stream, row) in the order they were written; needs no numpy, and is slow."""
        for block in self._rows:
            width = -(-block.rows // 8)
            begin = block.offset + -(-width * len(block.columns) // 8) * 8
            columns = []
            for position, (_, dtype) in enumerate(block.columns):
                bitmap = block.offset + position * width
                bits = int.from_bytes(self._data[bitmap : bitmap + width], "little")
                code = f"<{block.rows}{'q' if dtype == 'i8' else 'd'}"
                values = struct.unpack_from(code, self._data, begin + position * block.rows * 8)
                columns.append([value if bits >> row & 1 else None for row, value in enumerate(values)])
            for values in zip(*columns, strict=True):
                yield block.stream, {name: value for (name, _), value in zip(block.columns, values, strict=True)}

    def table(self, stream: str) -> dict[str, ColumnData]:
        """Return column -> (values, valid) of a stream, rows in the order they were written."""
        import numpy as np

        blocks = [block for block in self._rows if block.stream == stream]
        names: dict[str, str] = {}
        for columns in dict.fromkeys(block.columns for block in blocks):
            names.update(columns)
        starts = np.cumsum([0] + [block.rows for block in blocks])
        total = int(starts[-1])
        table: dict[str, ColumnData] = {
            name: (np.zeros(total, "<i8" if dtype == "i8" else "<f8"), np.zeros(total, bool))
            for name, dtype in names.items()
        }
        buffer = np.frombuffer(self._data, np.uint8)
        shapes: dict[tuple[Any, int], list[int]] = {}
        for index, block in enumerate(blocks):
            shapes.setdefault((block.columns, block.rows), []).append(index)
        for (columns, rows), indices in shapes.items():
            offsets = np.array([blocks[i].offset for i in indices])
            into = (starts[indices][:, None] + np.arange(rows)).ravel()
            width = -(-rows // 8)
            bitmaps = -(-width * len(columns) // 8) * 8
            for position, (name, dtype) in enumerate(columns):
                bits = buffer[offsets[:, None] + (position * width + np.arange(width))]
                valid = np.unpackbits(bits, axis=1, bitorder="little")[:, :rows]
                begin = bitmaps + position * rows * 8
                raw = buffer[offsets[:, None] + (begin + np.arange(rows * 8))]
                values, mask = table[name]
                values[into] = np.ascontiguousarray(raw).view(f"<{dtype}").ravel()
                mask[into] = valid.ravel().astype(bool)
        return table


def read_segment(path: str | os.PathLike[str], *, rows: bool = True, records: bool = True) -> Segment:
    """Read a segment file; damage is skipped and counted, never raised.

    Parameters
    ----------
    path : path
    rows : bool
        Also note where the rows are, for :meth:`Segment.table`.
    records : bool
        Also read the records of text.

    Raises
    ------
    OSError
        Where the file cannot be read at all.
    """
    data = Path(path).read_bytes()
    segment = Segment(size=len(data))
    segment._data = data if rows else b""
    streams: dict[int, tuple[str, tuple[tuple[str, str], ...]]] = {}
    expected = 0
    for head, offset in _blocks(data, segment):
        segment.blocks += 1
        segment.clock.append((head.mono_ns, head.wall_ns))
        segment.missing += max(0, head.sequence - expected)
        expected = head.sequence + 1
        if head.kind == fmt.ROWS:
            if rows:
                _note_rows(segment, streams, data, offset, head)
            continue
        payload = data[offset : offset + head.length]
        if head.kind == fmt.SCHEMA:
            segment.header = _json(payload) or segment.header
            streams = {
                int(entry["id"]): (name, tuple((str(c), str(t)) for c, t in entry["columns"]))
                for name, entry in segment.header.get("streams", {}).items()
            }
            continue
        for line in payload.splitlines() if records else ():
            record = _json(line)
            if record:
                record.setdefault("mono_ns", head.mono_ns)
                record.setdefault("wall_ns", head.wall_ns)
                segment.complete = segment.complete or record.get("type") == "end"
                segment.records.append(record)
    return segment


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = plain_json(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _blocks(data: bytes, segment: Segment) -> Iterator[tuple[fmt.BlockHeader, int]]:
    """Yield (header, offset of the payload) of every block that is whole."""
    offset, damaged = 0, False
    while offset + fmt.HEADER.size <= len(data):
        found = fmt.unpack_header(data, offset)
        if found is not None:
            head, crc = found
            begin = offset + fmt.HEADER.size
            end = begin + head.length
            if end <= len(data) and _checksum(data, offset, begin, end) == crc and head.version == fmt.FORMAT:
                damaged = False
                yield head, begin
                offset += head.size
                continue
        if not damaged:
            segment.torn += 1
            damaged = True
        offset = data.find(fmt.MAGIC, offset + 1)
        if offset < 0:
            return
        offset = fmt.padded(offset)
    if offset < len(data) and not damaged:
        segment.torn += 1


def _checksum(data: bytes, offset: int, begin: int, end: int) -> int:
    return zlib.crc32(data[begin:end], zlib.crc32(data[offset : offset + 60]))


def _note_rows(
    segment: Segment,
    streams: dict[int, tuple[str, tuple[tuple[str, str], ...]]],
    data: bytes,
    offset: int,
    head: fmt.BlockHeader,
) -> None:
    try:
        number, width, count = fmt.ROWS_HEADER.unpack_from(data, offset)
    except struct.error:
        segment.torn += 1
        return
    known = streams.get(number)
    bitmaps = -(-(-(-count // 8) * width) // 8) * 8
    if known is None or width > len(known[1]) or head.length < fmt.ROWS_HEADER.size + bitmaps + width * count * 8:
        segment.torn += 1
        return
    if count:
        segment._rows.append(RowsBlock(offset + fmt.ROWS_HEADER.size, known[0], known[1][:width], count))
