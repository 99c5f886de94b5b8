"""Shards: whole blocks, acknowledged, none twice, none lost when acknowledgements are."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jumper.monitor.segment import SegmentWriter
from jumper_dask import receiving, shipping
from jumper_dask.running import beside


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    with SegmentWriter(tmp_path, {"run": "r"}, node="n1") as writer:
        yield writer


def fill(writer: SegmentWriter, blocks: int, size: int = 1000) -> None:
    for index in range(blocks):
        writer.text({"type": "event", "kind": "x", "text": "y" * size, "n": index})
        writer.flush()


class Scheduler:
    """The receiving end, with a line that loses messages and acknowledgements."""

    def __init__(self, folder: receiving.RunFolder, seed: int = 0, loss: float = 0.0) -> None:
        self.folder, self.random, self.loss, self.pushes = folder, random.Random(seed), loss, 0

    async def call(self, op: str, segment: str, offset: int, data: bytes, **more: Any) -> Any:
        self.pushes += 1
        if self.random.random() < self.loss:
            raise OSError("the message was lost")
        acked = await self.folder.put(segment, offset, data)
        if self.random.random() < self.loss:
            raise OSError("the acknowledgement was lost")
        return {"ack": acked, "came_ns": 1_000_000_000, "time_ns": 1_000_000_000}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = receiving.RunFolder("r", {})
    yield folder
    folder.close(remove=True)


@pytest.mark.parametrize("seed", range(5))
def test_a_line_that_loses_a_third_delivers_every_byte_once(writer: Any, folder: Any, seed: int) -> None:
    async def ship() -> None:
        line = Scheduler(folder, seed, 0.33)
        shipper = shipping.Shipper(line.call, "r", "tcp://w", lambda record: None)
        shipper.sources.append(shipping.Source(writer.path, read=writer.read))
        for _ in range(10):
            fill(writer, 30)
            await shipper.drain()
        for _ in range(50):
            if await shipper.drain():
                return
        raise AssertionError("never came through")

    asyncio.run(ship())
    assert (folder.spool / writer.path.name).read_bytes() == writer.path.read_bytes()


def test_a_block_longer_than_a_shard_travels_whole(writer: Any, folder: Any) -> None:
    fill(writer, 1, 3 * shipping.SHARD_BYTES)
    fill(writer, 1)
    source = shipping.Source(writer.path, read=writer.read)
    shipper = shipping.Shipper(Scheduler(folder).call, "r", "w", lambda record: None)
    shipper.sources.append(source)
    assert asyncio.run(shipper.drain())
    assert source.acked == writer.size


def test_without_a_collector_nothing_counts_as_delivered(writer: Any) -> None:
    async def nobody(op: str, **arguments: Any) -> None:
        return None

    fill(writer, 2)
    shipper = shipping.Shipper(nobody, "r", "w", lambda record: None)
    shipper.sources.append(shipping.Source(writer.path, read=writer.read))
    assert not asyncio.run(shipper.drain())
    assert shipper.sources[0].acked == 0
    assert shipper.refused == "the scheduler has no collector"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300])
def test_names_that_are_none_of_a_segment_are_refused(folder: Any, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a segment"):
        asyncio.run(folder.put(name, 0, b"x"))


def times(came: int, left: int) -> dict[str, int]:
    return {"came_ns": came, "time_ns": left}


def test_the_clock_keeps_the_shortest_exchange_and_says_when_it_is_better() -> None:
    clock = shipping.Clock()
    first = clock.observe(0, 1_000_000, times(5_000_000_000, 5_000_000_000))
    assert first == {"type": "clock", "offset_ns": 4_999_500_000, "error_ns": 500_000, "mono_ns": 500_000}
    assert clock.observe(0, 900_000, times(5_000_000_000, 5_000_000_000)) is None
    better = clock.observe(2_000_000, 2_200_000, times(5_002_000_000, 5_002_000_000))
    assert better is not None
    assert better["error_ns"] == 100_000
    later = 10**11
    assert clock.observe(later, later + 10**7, times(10**12, 10**12)) is not None  # clocks drift: an old one is renewed


def test_what_the_other_end_took_is_no_part_of_the_error() -> None:
    """A disk that holds the acknowledgement up for a second does not blur the clock (RFC 5905, section 8)."""
    record = shipping.Clock().observe(0, 1_000_300_000, times(70_000_100_000, 71_000_100_000))
    assert record is not None
    assert record["error_ns"] == 150_000
    assert abs(record["offset_ns"] - 70_000_000_000) <= 150_000


ORPHAN = """
import os, sys
from jumper.monitor.segment import SegmentWriter
writer = SegmentWriter(sys.argv[1], {"run": sys.argv[2]})
writer.text({"type": "event"}); writer.flush()
print(writer.path, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_only_segments_of_the_run_whose_writer_is_gone_are_adopted(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path), run], stdin=-1, stdout=-1, text=True)
        for run in ("mine", "mine", "other")
    ]
    paths = [Path(w.stdout.readline().strip()) for w in writers if w.stdout]
    assert shipping.adopt(tmp_path, "mine") == []
    beside(paths[0]).touch()
    for index in (0, 2):
        writers[index].communicate()
    (source,) = shipping.adopt(tmp_path, "mine")
    assert source.path == paths[0]
    assert source.next() == paths[0].read_bytes()
    assert shipping.adopt(tmp_path, "mine", {source.path}) == [], "its own are not opened again: the lock would go"
    source.close(remove=True)
    assert not paths[0].exists()
    assert not beside(paths[0]).exists()
    writers[1].communicate()
    assert os.path.exists(paths[1])
