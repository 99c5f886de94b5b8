"""Shards: whole blocks, acknowledged, none twice, none lost when acknowledgements are."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jumper.monitor.segment import SegmentWriter, boot_id
from jumper.store.segments import read_segment
from jumper_dask import receiving, shipping
from jumper_dask.roster import Roster
from jumper_dask.running import Slots, beside, last_words, oom_kills


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


def shipper_of(call: Any, sender: str = "tcp://w") -> shipping.Shipper:
    return shipping.Shipper(call, "r", sender, lambda record: None)


def test_after_a_refusal_the_next_push_waits_longer_each_time_up_to_half_a_minute(writer: Any) -> None:
    async def refuse(op: str, **arguments: Any) -> Any:
        raise RuntimeError("whatever an RPC may raise")

    async def waits() -> list[float]:
        shipper = shipper_of(refuse)
        shipper.sources.append(shipping.Source(writer.path, read=writer.read))
        found = []
        for _ in range(9):
            await shipper.push()
            found.append(shipper.due_s - time.monotonic())
        assert shipper.refused == "RuntimeError: whatever an RPC may raise"
        return found

    fill(writer, 1)
    waited = asyncio.run(waits())
    bounds = [min(30, 2**n) for n in range(9)]
    assert all(max(1, bound / 2) - 0.5 < wait <= bound for wait, bound in zip(waited, bounds, strict=True)), waited


def test_a_thousand_workers_push_at_times_of_their_own(writer: Any, folder: Any) -> None:
    """At 50 pushes a second in all, no second has many more."""

    async def due(sender: str) -> float:
        shipper = shipper_of(Scheduler(folder).call, sender)
        shipper.period_s = 20.0
        await shipper.push()
        return shipper.due_s

    async def all_due() -> list[float]:
        return [await due(f"tcp://10.0.{n // 250}.{n % 250}:{40000 + n}") for n in range(1000)]

    begin = time.monotonic()
    when = asyncio.run(all_due())
    assert all(begin + 10 < at < time.monotonic() + 30 for at in when)
    seconds = [int(at % 20.0) for at in when]
    assert max(seconds.count(second) for second in range(20)) < 90


def test_a_disk_that_does_not_keep_up_refuses_shards_before_they_fill_the_memory(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "WAITING_BYTES", 3000)
    gate = threading.Event()
    put = folder._put
    monkeypatch.setattr(folder, "_put", lambda *shard: gate.wait(30) and put(*shard))

    async def push() -> tuple[int, list[Any]]:
        pushes = [asyncio.create_task(folder.put(f"n.{n}.a", 0, b"x" * 1000)) for n in range(10)]
        done, _ = await asyncio.wait(pushes, return_when=asyncio.FIRST_EXCEPTION)
        while len(done) < 7:
            await asyncio.sleep(0)
            done = {each for each in pushes if each.done()}
        gate.set()
        return len(done), await asyncio.gather(*pushes, return_exceptions=True)

    refused, results = asyncio.run(push())
    assert refused == folder.refused == 7
    assert results.count(1000) == 3
    assert folder._waiting == 0
    assert asyncio.run(folder.put("n.9.a", 0, b"x" * 1000)) == 1000


def test_what_came_twice_is_counted_and_written_once(folder: Any) -> None:
    async def push() -> list[int]:
        return [await folder.put("n.1.a", offset, data) for offset, data in ((0, b"abcd"), (0, b"abcd"), (2, b"cdef"))]

    assert asyncio.run(push()) == [4, 4, 6]
    assert folder.duplicates == 2
    assert (folder.spool / "n.1.a.seg").read_bytes() == b"abcdef"
    assert asyncio.run(folder.put("n.1.a", 100, b"z")) == 6, "what leaves a hole is asked for again"


def test_the_disk_gets_back_what_has_come_home(writer: Any, folder: Any) -> None:
    fill(writer, 40, 200_000)
    source = shipping.Source(writer.path, read=writer.read)
    shipper = shipper_of(Scheduler(folder).call)
    shipper.sources.append(source)
    before, size = writer.path.stat().st_blocks, writer.path.stat().st_size
    whole = writer.path.read_bytes()
    assert asyncio.run(shipper.drain())
    after = writer.path.stat()
    if after.st_blocks == before:
        pytest.skip("this file system cannot free a part of a file")
    assert (after.st_size, writer.path.read_bytes()[: 64 << 10]) == (size, whole[: 64 << 10])
    assert after.st_blocks * 512 < 3 << 20
    fill(writer, 3)
    adopter = shipping.Source(writer.path, descriptor=os.open(writer.path, os.O_RDONLY))
    other = shipper_of(Scheduler(folder).call)
    other.sources.append(adopter)
    assert asyncio.run(other.drain())
    assert (folder.spool / writer.path.name).read_bytes() == whole + writer.path.read_bytes()[size:]


def test_samples_above_the_cap_are_dropped_and_counted_until_the_scheduler_is_back(folder: Any, tmp_path: Path) -> None:
    pytest.importorskip("jumper.monitor.backends.native._engine", reason="the native engine is not built")
    from jumper.monitor.backends.native.sampling import NativeSampling

    cap = 4 << 20
    sampling = NativeSampling(os.getpid(), 60.0, spool=tmp_path, header={"run": "r"}, cap_bytes=cap)
    path = Path(sampling.start()["segment_path"])

    def take(marks: range) -> None:
        for mark in marks:
            sampling.text({"type": "event", "kind": "mark", "n": mark, "text": "y" * 90_000})
            sampling.flush()

    try:
        take(range(100))  # 9 MB
        dropped, reason = sampling.dropped
        assert dropped > 50 and reason == "No space left on device"
        assert cap - (1 << 20) < path.stat().st_size <= cap
        shipper = shipper_of(Scheduler(folder).call)
        source = shipping.Source(path)
        shipper.sources.append(source)
        assert asyncio.run(shipper.drain())
        if path.stat().st_blocks * 512 > 2 << 20:
            pytest.skip("this file system cannot free a part of a file")
        take(range(100, 110))
        assert asyncio.run(shipper.drain())
        assert sampling.dropped[0] == dropped, "there is room again"
    finally:
        sampling.stop()
    read = read_segment(folder.spool / path.name)
    marks = [record["n"] for record in read.records if record.get("kind") == "mark"]
    assert marks[-10:] == list(range(100, 110)) and marks == sorted(set(marks))
    assert read.torn == 0 and read.missing == dropped
    source.close(remove=True)


def test_a_dead_worker_s_segment_travels_with_its_damage(writer: Any, folder: Any) -> None:
    """Blocks behind a damaged one are not left behind; the reader skips and counts it."""
    fill(writer, 5)
    data = bytearray(writer.path.read_bytes())
    data[1400] ^= 0xFF
    writer.path.write_bytes(bytes(data) + b"JMPB torn")
    shipper = shipper_of(Scheduler(folder).call)
    shipper.sources.append(shipping.Source(writer.path, descriptor=os.open(writer.path, os.O_RDONLY)))
    assert asyncio.run(shipper.drain())
    assert (folder.spool / writer.path.name).read_bytes() == writer.path.read_bytes()


def test_a_roster_says_of_each_worker_what_is_missing() -> None:
    roster = Roster()
    for name in ("well", "bare", "orderly", "carried", "alone", "gone"):
        roster.expect(f"tcp://{name}", name)
    roster.unmonitored("tcp://bare", "ModuleNotFoundError: jumper_dask")
    for pid, (name, node) in enumerate(
        {"well": "n1", "orderly": "n1", "carried": "n1", "alone": "n2", "gone": "n1"}.items()
    ):
        roster.came(f"tcp://{name}", name, node, pid)
    roster.goodbye("tcp://orderly", True)
    for name in ("orderly", "carried", "alone", "gone"):
        roster.left(f"tcp://{name}")
    roster.home("n1.2.abcdef")
    coverage = roster.coverage()
    assert (coverage["expected"], coverage["came"]) == (6, 5)
    assert {each["name"]: each["reason"] for each in coverage["missing"]} == {
        "bare": "ModuleNotFoundError: jumper_dask",
        "alone": "it ended without a word, and no worker on n2 is left to carry its spool home",
        "gone": "it ended without a word, and its spool is not on n1 any more",
    }
    assert list(roster.measured) == ["tcp://well"]


def test_slots_tell_of_what_ran_when_a_process_was_killed(tmp_path: Path) -> None:
    header = {"worker": "tcp://w", "pid": 7, "boot_id": boot_id(), "oom_kills": oom_kills()}
    segment = tmp_path / "n1.7.ab.seg"
    slots = Slots(segment)
    slots.end(slots.begin("over", "1", "g"))
    before, wall = time.monotonic_ns(), time.time_ns()
    slots.begin("('k-é', 0)", "2", "g")
    slots.begin("x" * 2000, "3", "g")
    slots.begin("lone \ud800", "4", "g")
    event, record, lone = last_words(segment, header)
    assert (event["kind"], event["worker"], event["oom_kills"]) == ("adopted", "tcp://w", 0)
    assert (record["key"], record["attempt_id"], record["group"], record["pid"]) == ("('k-é', 0)", "2", "g", 7)
    assert before <= record["mono_ns"] <= lone["mono_ns"] <= time.monotonic_ns()
    assert wall <= record["wall_ns"] <= lone["wall_ns"] <= time.time_ns()
    assert (lone["key"], lone["attempt_id"]) == ("lone ?", "4")
    assert len(list(last_words(segment, {**header, "boot_id": "before"}))) == 1, "another boot, another clock"
    slots.close(remove=True)
    assert not beside(segment).exists()
