"""How what a job measured comes home without a shared file system: its segment, thinned, as lines of its log."""

from __future__ import annotations

import base64
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jumper.monitor.segment import SegmentWriter
from jumper.schema import segment as fmt
from jumper.schema.columns import COLUMNS
from jumper.store.rundir import write_atomically
from jumper.store.segments import Segment, read_segment

#: a job's record takes at most so many bytes of its log; the samples are thinned until it does
MOST_BYTES = 48 << 10
#: characters of a line: collectors of logs cut longer ones
LINE = 4000
#: a record that becomes more than this when it is unpacked is none of ours
MOST_UNPACKED = 64 << 20
_LINE = re.compile(rb"jumper-segment ([A-Za-z0-9._-]+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)")
_PEAKS = frozenset(column.name for column in COLUMNS if column.kind == "peak")
_OF_THE_WRITER = ("format", "segment", "node", "pid", "uid", "boot_id", "writer", "streams")


def lines_of(path: Path) -> list[str]:
    """Return a segment as lines for a log.

    Parameters
    ----------
    path : Path
        The segment; it is whole.

    Raises
    ------
    OSError
        Where it cannot be read.
    """
    name, data = path.stem, path.read_bytes()
    packed, every = zlib.compress(data, 9), 1
    while len(packed) > MOST_BYTES * 3 // 4 and every < 1 << 20:
        every *= 2
        name, data = _thinned(read_segment(path), every)
        packed = zlib.compress(data, 9)
    text = base64.b64encode(packed).decode()
    parts = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    return [f"jumper-segment {name} {number}/{len(parts)} {part}" for number, part in enumerate(parts, 1)]


def bring_home(logs: Iterable[Path], spool: Path, run: str) -> list[str]:
    """Write the segments of a run that are found in logs into its spool; return their names.

    Parameters
    ----------
    logs : iterable of Path
        Files that cannot be read, and files without a record, are passed over.
    spool : Path
        What lies there already is left alone.
    run : str
        Its id.
    """
    found = []
    for log in logs:
        for name, data in _segments_in(log):
            target = spool / (name + fmt.SUFFIX)
            if not target.exists() and _is_of(data, name, run):
                write_atomically(target, data)
                found.append(name)
    return found


def _segments_in(log: Path) -> Iterator[tuple[str, bytes]]:
    parts: dict[tuple[bytes, int], dict[int, bytes]] = {}
    try:
        with log.open("rb") as file:
            for line in file:
                if found := _LINE.search(line):
                    name, number, count, text = found.groups()
                    parts.setdefault((name, int(count)), {})[int(number)] = text
    except OSError:
        return
    for (name, count), texts in parts.items():
        if set(texts) == set(range(1, count + 1)):
            try:
                packed = base64.b64decode(b"".join(texts[number] for number in sorted(texts)), validate=True)
                unpacking = zlib.decompressobj()
                data = unpacking.decompress(packed, MOST_UNPACKED)
                if unpacking.eof:
                    yield name.decode(), data
            except (ValueError, zlib.error):
                continue


def _is_of(data: bytes, name: str, run: str) -> bool:
    with tempfile.NamedTemporaryFile(suffix=fmt.SUFFIX) as file:
        file.write(data)
        file.flush()
        header = read_segment(file.name, rows=False).header
    return header.get("segment") == name and header.get("run") == run


def _thinned(segment: Segment, every: int) -> tuple[str, bytes]:
    """Return a segment (name, bytes) with one row for each so many of a target: the last, with the peaks of all."""
    header = {name: value for name, value in segment.header.items() if name not in _OF_THE_WRITER}
    with tempfile.TemporaryDirectory(prefix="jumper-") as folder:
        with SegmentWriter(folder, header, node=segment.node) as writer:
            for record in segment.records:
                writer.text(record)
            waiting: dict[tuple[str, Any, Any], list[Mapping[str, Any]]] = {}
            for stream, row in segment.rows():
                rows = waiting.setdefault((stream, row.get("pid"), row.get("tid")), [])
                rows.append(row)
                if len(rows) == every:
                    writer.row(stream, _merged(rows))
                    rows.clear()
            for (stream, _, _), rows in waiting.items():
                if rows:
                    writer.row(stream, _merged(rows))
        return writer.segment_id, writer.path.read_bytes()


def _merged(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    peaks = {
        name: max((row[name] for row in rows if row.get(name) is not None), default=None)
        for name in _PEAKS & rows[-1].keys()
    }
    return {**rows[-1], **peaks}
