"""Read a segment of any age: rows by stream as numpy columns, records, and what was damaged."""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jumper.schema import segment as fmt
from jumper.utilities import plain_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    #: Values and where there is one, shape (rows,).
    Values = npt.NDArray[np.generic]
    Mask = npt.NDArray[np.bool_]
    ColumnData = tuple[Values, Mask]


#: A stream and its columns (name, type) at the time of a block.
Layout = tuple[str, tuple[tuple[str, str], ...]]


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
        Of the first and of the last block; empty where there is none.
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
    path: str = ""
    #: of each block of rows: where its data begin, the number of its layout, its rows
    _offsets: array[int] = field(default_factory=lambda: array("q"))
    _which: array[int] = field(default_factory=lambda: array("l"))
    _counts: array[int] = field(default_factory=lambda: array("q"))
    _layouts: list[Layout] = field(default_factory=list)
    _data: bytes | None = None

    @property
    def node(self) -> str:
        """Name of the node that it was written on."""
        return str(self.header.get("node", "unknown"))

    @property
    def streams(self) -> list[str]:
        """Streams that have rows."""
        return list(dict.fromkeys(stream for stream, _ in self._layouts))

    def rows(self) -> Iterator[tuple[str, dict[str, int | float | None]]]:
        """Yield (stream, row) in the order they were written; needs no numpy, and is slow."""
        data = self._bytes()
        for offset, which, count in zip(self._offsets, self._which, self._counts, strict=True):
            stream, names = self._layouts[which]
            width = -(-count // 8)
            begin = offset + -(-width * len(names) // 8) * 8
            columns = []
            for position, (_, dtype) in enumerate(names):
                bitmap = offset + position * width
                bits = int.from_bytes(data[bitmap : bitmap + width], "little")
                code = f"<{count}{'q' if dtype == 'i8' else 'd'}"
                values = struct.unpack_from(code, data, begin + position * count * 8)
                columns.append([value if bits >> row & 1 else None for row, value in enumerate(values)])
            for row in zip(*columns, strict=True):
                yield stream, {name: value for (name, _), value in zip(names, row, strict=True)}

    def table(self, stream: str) -> dict[str, ColumnData]:
        """Return column -> (values, valid) of a stream, rows in the order they were written."""
        import numpy as np

        data = self._bytes()
        layouts = [number for number, (name, _) in enumerate(self._layouts) if name == stream]
        which = np.frombuffer(self._which, f"i{self._which.itemsize}")
        mine = np.flatnonzero(np.isin(which, layouts))
        offsets, counts = np.frombuffer(self._offsets, "i8")[mine], np.frombuffer(self._counts, "i8")[mine]
        which = which[mine]
        starts = np.cumsum(counts) - counts
        total = int(counts.sum())
        names: dict[str, str] = {}
        for number in dict.fromkeys(which.tolist()):
            names.update(self._layouts[number][1])
        table: dict[str, ColumnData] = {
            name: (np.zeros(total, "<i8" if dtype == "i8" else "<f8"), np.zeros(total, bool))
            for name, dtype in names.items()
        }
        octets = np.frombuffer(data, np.uint8)
        words = np.frombuffer(data, "<i8", len(data) // 8)  # data of rows lie at multiples of 8
        widest = int(counts.max(initial=0)) + 1
        shapes, shape_of = np.unique(which * widest + counts, return_inverse=True)
        for shape, (number, rows) in enumerate(divmod(int(shape), widest) for shape in shapes):
            at = np.flatnonzero(shape_of == shape)
            columns = self._layouts[number][1]
            into = (starts[at][:, None] + np.arange(rows)).ravel()
            width = -(-rows // 8)
            bitmaps = -(-width * len(columns) // 8) * 8
            first = (offsets[at][:, None] + bitmaps) // 8 + np.arange(rows)
            bits = octets[offsets[at][:, None] + np.arange(width * len(columns))].reshape(len(at), len(columns), width)
            valid = np.unpackbits(bits, axis=2, bitorder="little")[:, :, :rows]
            for position, (name, dtype) in enumerate(columns):
                values, mask = table[name]
                values[into] = words[first + position * rows].view(f"<{dtype}").ravel()
                mask[into] = valid[:, position].ravel()
        return table

    def _bytes(self) -> bytes:
        """Return the file as it was when it was read; it may have grown since."""
        if self._data is None:
            with open(self.path, "rb") as file:
                self._data = file.read(self.size)
        return self._data

    def forget(self) -> None:
        """Give the memory of the file back; it is read again where it is needed."""
        self._data = None


def read_segment(path: str | os.PathLike[str], *, rows: bool = True) -> Segment:
    """Read a segment file; damage is skipped and counted, never raised.

    Parameters
    ----------
    path : path
    rows : bool
        Also note where the rows are, for :meth:`Segment.table`.

    Raises
    ------
    OSError
        Where the file cannot be read at all.
    """
    data = Path(path).read_bytes()
    segment = Segment(size=len(data), path=os.fspath(path), _data=data)
    streams: dict[int, Layout] = {}
    numbers: dict[tuple[int, int], int] = {}
    expected, first, last = 0, None, None
    unpack, header, text, missing = fmt.ROWS_HEADER.unpack_from, fmt.ROWS_HEADER.size, fmt.TEXT, 0
    for kind, sequence, length, mono_ns, wall_ns, offset in _blocks(data, segment):
        segment.blocks += 1
        last = mono_ns, wall_ns
        first = first or last
        if sequence > expected:
            missing += sequence - expected
        expected = sequence + 1
        if kind == fmt.ROWS:
            if not rows:
                continue
            if length < header:
                segment.torn += 1
                continue
            stream, width, count = unpack(data, offset)
            known = streams.get(stream)
            bitmaps = -(-(-(-count // 8) * width) // 8) * 8
            if known is None or width > len(known[1]) or length < header + bitmaps + width * count * 8:
                segment.torn += 1
            elif count:
                number = numbers.get((stream, width))
                if number is None:
                    number = numbers[stream, width] = len(segment._layouts)
                    segment._layouts.append((known[0], known[1][:width]))
                segment._offsets.append(offset + header)
                segment._which.append(number)
                segment._counts.append(count)
            continue
        payload = data[offset : offset + length]
        if kind == fmt.SCHEMA:
            segment.header = _json(payload) or segment.header
            numbers = {}
            streams = {
                int(entry["id"]): (name, tuple((str(c), str(t)) for c, t in entry["columns"]))
                for name, entry in segment.header.get("streams", {}).items()
            }
            continue
        for line in payload.splitlines() if kind == text else ():
            record = _json(line)
            if record:
                record.setdefault("mono_ns", mono_ns)
                record.setdefault("wall_ns", wall_ns)
                segment.complete = segment.complete or record.get("type") == "end"
                segment.records.append(record)
    segment.missing = missing
    segment.clock = [first, last] if first is not None and last is not None else []
    return segment


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):  # it takes no NaN, and no halves of surrogate pairs
        try:
            value = plain_json(data)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _blocks(data: bytes, segment: Segment) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield (kind, sequence, length, mono_ns, wall_ns, offset of the payload) of every block that is whole.

    This loop runs once a block of all that was ever written: it makes no object that it does not need.
    """
    offset, damaged, size = 0, False, len(data)
    head, unpack, crc32, view = fmt.HEADER.size, fmt.HEADER.unpack_from, zlib.crc32, memoryview(data)
    magic, version, kinds, most, rest = (
        fmt.MAGIC,
        fmt.FORMAT,
        (fmt.SCHEMA, fmt.ROWS, fmt.TEXT),
        fmt.MAX_PAYLOAD,
        fmt.ALIGN - 1,
    )
    while offset + head <= size:
        begin = offset + head
        found, form, kind, sequence, length, mono_ns, wall_ns, crc = unpack(data, offset)
        end = begin + length
        if (
            found == magic
            and form == version
            and kind in kinds
            and length <= most
            and end <= size
            and crc32(view[begin:end], crc32(view[offset : begin - 4])) == crc
        ):
            damaged = False
            yield kind, sequence, length, mono_ns, wall_ns, begin
            offset = (end + rest) & ~rest
            continue
        if not damaged:
            segment.torn += 1
            damaged = True
        offset = data.find(magic, offset + 1)
        if offset < 0:
            return
        offset = fmt.padded(offset)
    if offset < size and not damaged:
        segment.torn += 1
