"""The C segment writer against the Python writer: the same bytes, and the same on a full disk."""

from __future__ import annotations

import json
import os
from ctypes import CDLL, byref, c_int, c_int64, get_errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jumper.schema import segment as fmt
from jumper.store.segments import read_segment
from tests.native.twins import LARGEST, UNKNOWN, Segment, Twins
from tests.test_segment import golden_bytes


def write(twins: Twins, path: Path, blocks: list[tuple[Any, ...]]) -> bytes:
    segment = Segment()
    assert twins.library.segment_open(byref(segment), os.fsencode(path), 0)
    for kind, payload, rows, columns, mono, wall in blocks:
        if kind == fmt.ROWS:
            stream, values = payload
            array = (c_int64 * len(values))(*[UNKNOWN if value is None else value for value in values])
            twins.library.segment_rows(byref(segment), stream, array, rows, columns, mono, wall)
        else:
            twins.library.segment_block(byref(segment), kind, payload, len(payload), mono, wall)
    twins.library.segment_close(byref(segment))
    return path.read_bytes()


def test_the_golden_segment_byte_by_byte(twins: Twins, tmp_path: Path) -> None:
    """Its third column holds doubles: their bits are given as integers."""
    data, blocks = golden_bytes(), []
    at = 0
    for number in range(5):
        head, _ = fmt.unpack_header(data, at) or pytest.fail("no block")
        payload = data[at + fmt.HEADER.size : at + fmt.HEADER.size + head.length]
        if number == 1:
            given: Any = (1, [10, 100])
        elif number == 3:
            given = (1, [20, 200, None, 30, None, 0x3FF8000000000000, 40, 400, -0x3FFC000000000000])
        else:
            given = payload
        shape = {1: (1, 2), 3: (3, 3)}.get(number, (0, 0))
        blocks.append((head.kind, given, *shape, head.mono_ns, head.wall_ns))
        at += head.size
    assert write(twins, tmp_path / "golden.seg", blocks) == data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data(), columns=st.integers(1, 30), rows=st.integers(1, 20))
def test_rows_are_written_as_by_python(
    twins: Twins, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, columns: int, rows: int
) -> None:
    value = st.none() | st.integers(UNKNOWN + 1, LARGEST)
    values = data.draw(st.lists(value, min_size=rows * columns, max_size=rows * columns))
    names = [f"c{number}" for number in range(columns)]
    schema = json.dumps({"streams": {"process": {"id": 4, "columns": [[name, "i8"] for name in names]}}}).encode()
    path = tmp_path_factory.mktemp("rows") / "a.seg"
    found = write(
        twins, path, [(fmt.SCHEMA, schema, 0, 0, 5, 6), (fmt.ROWS, (4, values), rows, columns, UNKNOWN, LARGEST)]
    )
    body = bytearray()
    bits = bytearray()
    for column in range(columns):
        mine = values[column::columns]
        bits += sum(1 << n for n, v in enumerate(mine) if v is not None).to_bytes(-(-rows // 8), "little")
        body += b"".join((v or 0).to_bytes(8, "little", signed=True) for v in mine)
    payload = fmt.ROWS_HEADER.pack(4, columns, rows) + bytes(bits) + bytes(-len(bits) % 8) + bytes(body)
    assert found == fmt.pack_block(fmt.SCHEMA, 0, schema, 5, 6) + fmt.pack_block(fmt.ROWS, 1, payload, UNKNOWN, LARGEST)
    table = read_segment(path).table("process")
    for column, name in enumerate(names):
        numbers, valid = table[name]
        assert [n.item() if ok else None for n, ok in zip(numbers, valid, strict=True)] == values[column::columns]


def test_a_full_segment_keeps_what_waits_and_counts_what_it_drops(twins: Twins, tmp_path: Path) -> None:
    path, segment = tmp_path / "a.seg", Segment()
    assert twins.library.segment_open(byref(segment), os.fsencode(path), 4096)
    twins.library.segment_block(byref(segment), fmt.SCHEMA, b"{}", 2, 0, 0)
    for number in range(2000):
        text = b'{"type":"event","n":%d}\n' % number
        twins.library.segment_block(byref(segment), fmt.TEXT, text, len(text), number, 0)
    assert os.strerror(segment.error) == "No space left on device"
    assert segment.size == 4096
    assert segment.waiting_size == 256 << 10
    assert segment.dropped == 2001 - 16 - 1024
    segment.cap = 0
    assert twins.library.segment_flush(byref(segment))
    twins.library.segment_close(byref(segment))
    read = read_segment(path)
    assert (read.torn, read.missing, len(read.records)) == (0, segment.dropped, 15 + 1024)
    assert read.records[-1]["n"] == 1999


def test_a_schema_waits_for_room_whatever_else_is_dropped(twins: Twins, tmp_path: Path) -> None:
    path, segment = tmp_path / "a.seg", Segment()
    assert twins.library.segment_open(byref(segment), os.fsencode(path), 1)
    twins.library.segment_block(byref(segment), fmt.SCHEMA, b'{"node":"n1"}', 13, 0, 0)
    large = b"\n" * (300 << 10)
    twins.library.segment_block(byref(segment), fmt.TEXT, large, len(large), 0, 0)
    assert (segment.size, segment.dropped, segment.waiting_size) == (0, 1, 256)
    segment.cap = 0
    assert twins.library.segment_flush(byref(segment))
    twins.library.segment_close(byref(segment))
    assert read_segment(path).node == "n1"


def test_a_segment_whose_folder_is_gone_is_an_error(twins: Twins, tmp_path: Path) -> None:
    path, segment = tmp_path / "a.seg", Segment()
    assert twins.library.segment_open(byref(segment), os.fsencode(path), 0)
    path.unlink()
    twins.library.segment_block(byref(segment), fmt.TEXT, b"{}", 2, 0, 0)
    assert os.strerror(segment.error) == "No such file or directory"
    twins.library.segment_close(byref(segment))


def test_parts_that_were_given_back_to_the_disk_do_not_count_towards_the_cap(twins: Twins, tmp_path: Path) -> None:
    path, segment, cap = tmp_path / "a.seg", Segment(), 256 << 10
    assert twins.library.segment_open(byref(segment), os.fsencode(path), cap)

    def fill() -> int:
        """Write until it is full; return what the file's size grew by."""
        before, segment.error = segment.size, 0
        while not segment.error:
            twins.library.segment_block(byref(segment), fmt.TEXT, b"\n" * 4000, 4000, 0, 0)
        return int(segment.size - before)

    assert cap - 8192 < fill() <= cap
    assert fill() == 0
    fallocate = CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (c_int, c_int, c_int64, c_int64)
    with path.open("r+b") as file:
        if fallocate(file.fileno(), 3, 64 << 10, 128 << 10) != 0:  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
            pytest.skip(f"this file system cannot free a part of a file ({os.strerror(get_errno())})")
    assert (128 << 10) - 8192 < fill() <= 128 << 10
    assert path.stat().st_blocks * 512 <= cap
    twins.library.segment_close(byref(segment))
