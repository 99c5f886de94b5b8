"""The segment format: the golden file, what is written is read, and what damage does."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumper.monitor.segment import PENDING_BYTES, SegmentWriter, SpoolError, spool_folder
from jumper.schema import segment as fmt
from jumper.store.segments import Segment, read_segment

GOLDEN = Path(__file__).with_name("golden") / "v1.seg"


def block(kind: int, sequence: int, payload: bytes) -> bytes:
    """A block built from docs/segment.md alone, with none of our code."""
    head = (
        b"JMPB"
        + struct.pack("<HHQQqq", 1, kind, sequence, len(payload), 1_000 + sequence, 2_000 + sequence)
        + bytes(20)
    )
    crc = zlib.crc32(payload, zlib.crc32(head))
    whole = head + struct.pack("<I", crc) + payload
    return whole + bytes(-len(whole) % 256)


def golden_bytes() -> bytes:
    """The golden segment: two schemas, rows of two shapes with nulls, records."""
    header: dict[str, Any] = {
        "format": 1,
        "segment": "n1.7.00000000",
        "node": "n1",
        "pid": 7,
        "boot_id": "b",
        "interval_s": 1.0,
    }
    narrow = {"process": {"id": 1, "columns": [["mono_ns", "i8"], ["cpu_ns", "i8"]]}}
    wide = {"process": {"id": 1, "columns": [["mono_ns", "i8"], ["cpu_ns", "i8"], ["celsius", "f8"]]}}
    one = struct.pack("<HHI", 1, 2, 1) + b"\1\1" + bytes(6) + struct.pack("<qq", 10, 100)
    three = (
        struct.pack("<HHI", 1, 3, 3)
        + b"\7\5\6"
        + bytes(5)
        + struct.pack("<3q3q3d", 20, 30, 40, 200, 0, 400, 0.0, 1.5, -2.5)
    )
    text = b'{"type":"event","kind":"hello"}\n{"type":"end","ticks":4}\n'
    return b"".join(
        [
            block(1, 0, json.dumps({**header, "streams": narrow}).encode()),
            block(2, 1, one),
            block(1, 2, json.dumps({**header, "streams": wide}).encode()),
            block(2, 3, three),
            block(3, 4, text),
        ]
    )


def column(segment: Segment, stream: str, name: str) -> list[Any]:
    values, valid = segment.table(stream)[name]
    return [value.item() if ok else None for value, ok in zip(values, valid, strict=True)]


def test_the_golden_segment_is_what_the_document_says() -> None:
    assert GOLDEN.read_bytes() == golden_bytes()


def test_the_golden_segment_is_read() -> None:
    segment = read_segment(GOLDEN)
    assert (segment.blocks, segment.torn, segment.missing, segment.complete) == (5, 0, 0, True)
    assert segment.node == "n1"
    assert column(segment, "process", "mono_ns") == [10, 20, 30, 40]
    assert column(segment, "process", "cpu_ns") == [100, 200, None, 400]
    assert column(segment, "process", "celsius") == [None, None, 1.5, -2.5]
    assert segment.records[0] == {"type": "event", "kind": "hello", "mono_ns": 1_004, "wall_ns": 2_004}


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["process", "system"]),
        st.dictionaries(
            st.sampled_from(["cpu_ns", "rss_bytes", "celsius", "volts"]),
            st.none() | st.integers(-(2**62), 2**62),
            max_size=4,
        ),
        st.booleans(),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(rows=ROWS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("segment")
    with SegmentWriter(folder, node="n1") as writer:
        for number, (stream, values, flush) in enumerate(rows):
            writer.row(stream, {"mono_ns": number, **values})
            if flush:
                assert writer.flush()
    segment = read_segment(writer.path)
    assert segment.torn == segment.missing == 0
    for stream in ("process", "system"):
        expected = [(n, values) for n, (name, values, _) in enumerate(rows) if name == stream]
        if not expected:
            assert stream not in segment.streams
            continue
        assert column(segment, stream, "mono_ns") == [n for n, _ in expected]
        for name in segment.table(stream):
            if name != "mono_ns":
                wanted = [values.get(name) for _, values in expected]
                if name in ("celsius", "volts"):
                    wanted = [None if value is None else float(value) for value in wanted]
                assert column(segment, stream, name) == wanted


@pytest.mark.parametrize("size", range(0, len(golden_bytes()), 37))
def test_a_file_cut_anywhere_keeps_every_whole_block(tmp_path: Path, size: int) -> None:
    data = golden_bytes()[:size]
    path = tmp_path / "cut.seg"
    path.write_bytes(data)
    segment = read_segment(path)
    whole = fmt.whole_blocks(data)
    assert segment.blocks == sum(1 for n in range(5) if _end_of(n) <= whole or _needed(n) <= size)
    assert segment.torn == (0 if size in (0, *map(_end_of, range(5))) or _only_padding_lost(size) else 1)


def _end_of(number: int) -> int:
    data, end = golden_bytes(), 0
    for _ in range(number + 1):
        head = fmt.unpack_header(data, end)
        assert head is not None
        end += head[0].size
    return end


def _needed(number: int) -> int:
    """Bytes of the file up to the end of a block's payload; what comes after is padding."""
    begin = _end_of(number - 1) if number else 0
    head = fmt.unpack_header(golden_bytes(), begin)
    assert head is not None
    return begin + fmt.HEADER.size + head[0].length


def _only_padding_lost(size: int) -> bool:
    return any(_needed(n) <= size <= _end_of(n) for n in range(5))


def test_damage_in_the_middle_costs_one_block(tmp_path: Path) -> None:
    data = bytearray(golden_bytes())
    data[_end_of(0) + 70] ^= 0xFF
    path = tmp_path / "damaged.seg"
    path.write_bytes(data)
    segment = read_segment(path)
    assert (segment.blocks, segment.torn, segment.missing) == (4, 1, 1)
    assert column(segment, "process", "mono_ns") == [20, 30, 40]


def test_rubbish_is_no_segment_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "rubbish.seg"
    path.write_bytes(b"JMPB" * 500 + os.urandom(3000))
    segment = read_segment(path)
    assert (segment.blocks, segment.torn) == (0, 1)


def test_a_full_disk_drops_and_counts_and_cuts_nothing_open(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, cap_bytes=4096) as writer:
        for number in range(4000):
            writer.row("process", {"mono_ns": number, "cpu_ns": number})
            writer.flush()
        assert writer.size <= 4096
        assert writer.dropped > 4000 - 16 - PENDING_BYTES // 256
        assert "full" in str(writer.reason)
        writer.cap_bytes = None  # there is room again: what waited is written
        assert writer.flush()
    segment = read_segment(writer.path)
    kept = column(segment, "process", "mono_ns")
    assert kept == sorted(kept)
    assert kept[-1] == 3999
    assert segment.torn == 0
    assert segment.missing == writer.dropped


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_is_full_never_raises(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path) as writer:
        full = os.open("/dev/full", os.O_WRONLY)
        assert writer._fd is not None
        os.dup2(full, writer._fd)
        os.close(full)
        writer.row("process", {"mono_ns": 1})
        assert not writer.flush()
        assert writer.reason == "No space left on device"


def test_the_spool_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMPER_SPOOL", str(tmp_path))
    folder = spool_folder()
    assert folder == tmp_path / f"jumper-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert spool_folder().stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(SpoolError, match="not a folder of this user; set JUMPER_SPOOL"):
        spool_folder()


def test_numbers_keep_all_their_bits(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path) as writer:
        writer.row("process", {"mono_ns": 2**62 + 1, "celsius": 0.1})
    table = read_segment(writer.path).table("process")
    assert table["mono_ns"][0].dtype == np.dtype("<i8")
    assert int(table["mono_ns"][0][0]) == 2**62 + 1
    assert float(table["celsius"][0][0]) == 0.1


@pytest.mark.parametrize("value", [2**63, -(2**70), 1e30, float("nan"), float("inf"), "text", None, [1]])
def test_a_value_that_has_no_place_in_its_column_is_null_and_harms_no_other(tmp_path: Path, value: object) -> None:
    with SegmentWriter(tmp_path) as segment:
        for whole, real in ((1, 1.5), (value, 10**400 if value == 2**63 else value), (3, 3.5)):
            segment.row("process", {"pid": whole, "rate": real})  # type: ignore[dict-item]
        segment.text({"type": "end"})
    read = read_segment(segment.path)
    assert (read.torn, read.complete) == (0, True)
    table = read.table("process")
    assert table["pid"][1].tolist() == [True, False, True]
    assert table["pid"][0].tolist()[::2] == [1, 3]
    assert table["rate"][0].tolist()[::2] == [1.5, 3.5]


def test_a_segment_is_locked_while_its_writer_lives(tmp_path: Path) -> None:
    code = (
        "import fcntl, os, sys\n"
        "try: fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('locked')\n"
        "else: print('free')"
    )
    with SegmentWriter(tmp_path) as writer:
        command = [sys.executable, "-c", code, str(writer.path)]
        assert subprocess.check_output(command) == b"locked\n"
    assert subprocess.check_output(command) == b"free\n"


def test_a_block_that_was_written_in_part_is_cut_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with SegmentWriter(tmp_path) as writer:
        writer.row("process", {"pid": 1})
        assert writer.flush()
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:100]))
        writer.row("process", {"pid": 2})
        assert not writer.flush()
        assert writer.path.stat().st_size == writer.size
        monkeypatch.undo()
    read = read_segment(writer.path)
    assert (read.torn, read.missing) == (0, 0)
    assert read.table("process")["pid"][0].tolist() == [1, 2]


def test_rows_before_a_new_column_have_the_old_ones(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path) as writer:
        writer.row("process", {"pid": 1})
        writer.row("process", {"pid": 2, "late": 5.0})
    table = read_segment(writer.path).table("process")
    assert table["pid"][0].tolist() == [1, 2]
    assert (table["late"][0].tolist(), table["late"][1].tolist()) == ([0.0, 5.0], [False, True])


def test_what_waits_for_room_keeps_the_schema_that_it_is_read_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with SegmentWriter(tmp_path) as writer:
        monkeypatch.setattr(os, "write", full)
        for number in range(3000):
            writer.row("process", {"pid": number})
            writer.flush()
        assert writer.dropped > 1000
        monkeypatch.undo()
    read = read_segment(writer.path)
    assert read.torn == 0
    assert read.table("process")["pid"][0].tolist()[-1] == 2999
    assert read.header["node"] == writer.node


def test_a_spool_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMPER_SPOOL", str(tmp_path))
    assert spool_folder() == tmp_path / f"jumper-{os.getuid()}"
    other = os.getuid() + 1
    (tmp_path / f"jumper-{other}").mkdir(mode=0o700)  # ours, where theirs should be
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(SpoolError, match="is not a folder of this user; set JUMPER_SPOOL"):
        spool_folder()


def test_what_the_disk_refuses_to_the_end_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    writer = SegmentWriter(tmp_path)
    monkeypatch.setattr(os, "write", full)
    for number in range(3):
        writer.row("process", {"pid": number})
        writer.flush()
    assert writer.dropped == 0, "they wait for room"
    writer.text({"type": "end"})
    writer.close()
    assert (writer.dropped, writer.reason) == (4, "No space left on device")
    writer.close()
    assert writer.dropped == 4
