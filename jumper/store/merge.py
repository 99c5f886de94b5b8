"""Turn the segments of a run into samples, events and records; doing it again changes nothing.

Each segment becomes one Parquet file a stream, placed by the reference clock, so
merging may be repeated while the run goes on and works from spools alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from jumper.monitor.segment import boot_id
from jumper.schema.errors import MissingExtraError
from jumper.store.bounds import bound
from jumper.store.clocks import Clock
from jumper.store.rundir import RunDirectory, replacing
from jumper.store.segments import Segment, read_segment
from jumper.utilities import node_name, safe_name

if TYPE_CHECKING:
    import pyarrow as pa

    from jumper.store.segments import ColumnData

#: a monitor on another machine that is there has written within this time: three times its longest flush
WRITES_S = 30.0
#: (node, boot id): one monotonic clock
Host = tuple[str, str]


@dataclass(slots=True)
class Merged:
    """What merging leaves for attribution.

    Attributes
    ----------
    records : list of dict
        Text records of all segments, each with ``node``, ``boot``, ``segment`` and
        ``interval_s`` of its segment.
    clocks : dict of Host to Clock
    segments : dict of str to dict
        What run.json says of each segment.
    files : dict of str to int
        Sample files, relative to the run, and their rows.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    clocks: dict[Host, Clock] = field(default_factory=dict)
    segments: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def time_ns(self, node: str, boot: str, mono_ns: int) -> int | None:
        """Return UTC ns by the reference clock of a host's monotonic time."""
        clock = self.clocks.get((node, boot))
        return None if clock is None else mono_ns + clock.offset_ns(mono_ns)


def host_of(segment: Segment) -> Host:
    """Return the host whose monotonic clock a segment was written by."""
    return segment.node, str(segment.header.get("boot_id"))


def segments_changed(run: RunDirectory, info: dict[str, Any]) -> bool:
    """Return whether there are segments that are not in the tables of the run."""
    known = info.get("segments", {})
    return any(_changed(path, known.get(path.stem, {})) for path in run.segments())


def _changed(path: Path, known: dict[str, Any]) -> bool:
    return known.get("size") != path.stat().st_size or bool(known.get("live") and not is_live(path, known))


def is_live(path: Path, state: dict[str, Any]) -> bool:
    """Return whether the writer of a segment without an end is still there, as far as can be told here.

    On this machine its process says so, on others that it wrote of late. A Dask worker's
    segment is a copy; of its writer the scheduler's events tell.
    """
    if state["complete"] or state.get("worker") or state.get("pid") is None:
        return False
    if (state["node"], state["boot"]) != (node_name(), str(boot_id())):
        return time.time() - path.stat().st_mtime < WRITES_S
    try:
        return psutil.Process(int(state["pid"])).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def merge_segments(
    run: RunDirectory,
    out: RunDirectory,
    info: dict[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Merged:
    """Read all segments of ``run`` and write samples below ``out`` (mostly the same directory).

    Parameters
    ----------
    run, out : RunDirectory
    info : dict
        run.json; files of segments that did not change since are kept.
    progress : callable, optional
        Called with (segments done, segments in all).

    Raises
    ------
    MissingExtraError
        Without pyarrow.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "merging a run needs pyarrow: pip install 'jumper-workflows[report]'; nothing is lost, spool/ has all"
        ) from error
    merged = Merged()
    paths = run.segments()
    read: dict[Path, Segment] = {}
    for path in paths:
        read[path] = read_segment(path)
        read[path].forget()  # all of them at once may be more than there is memory
    joined: dict[str, list[Segment]] = {}
    for text in read.values():
        if text.header.get("joins"):
            joined.setdefault(str(text.header["joins"]), []).append(text)
    merged.clocks = _clocks(read.values())
    before, files = info.get("segments", {}), info.get("files", {})
    sizes: dict[str, dict[str, int]] = {}
    for name, rows in files.items():
        sizes.setdefault(Path(name).stem, {})[name] = rows
    for done, (path, text) in enumerate(read.items()):
        host = host_of(text)
        clock = merged.clocks.get(host)
        for record in text.records:
            record.update(node=record.get("node", host[0]), boot=host[1], segment=path.stem)
            record.setdefault("interval_s", text.header.get("interval_s"))
        merged.records += text.records
        if text.clock:
            merged.ends[path.stem] = text.clock[-1][0]
        state = {
            "size": text.size,
            "blocks": text.blocks,
            "torn": text.torn,
            "missing": text.missing,
            "complete": text.complete,
            "node": host[0],
            "boot": host[1],
            "pid": text.header.get("pid"),
            "worker": text.header.get("worker"),
            **_placed(clock, text),
            "live": False,
            "joined": sum(other.size for other in joined.get(path.stem, [])),
        }
        state["live"] = is_live(path, state)
        merged.segments[path.stem] = state
        mine = sizes.get(path.stem, {})
        unchanged = before.get(path.stem, {}) == state and all(is_whole(out.path / name) for name in mine)
        if not text.header.get("joins"):
            others = joined.get(path.stem, [])
            merged.files.update(mine if unchanged else _write_samples(text, others, out, path.stem, clock))
        if progress is not None:
            progress(done + 1, len(paths))
    return merged


def _clocks(segments: Iterable[Segment]) -> dict[Host, Clock]:
    """Return the clock of each host: by the exchanges in all its segments, else by its own wall clock at the start.

    That one stands between what the jobs of the host allow.
    """
    exchanges: dict[Host, list[tuple[int, int, int]]] = {}
    own: dict[Host, tuple[int, int]] = {}
    tasks: list[tuple[Host, dict[str, Any]]] = []
    made: list[tuple[Host, int]] = []
    for segment in segments:
        host = host_of(segment)
        if segment.clock and segment.header.get("kind") == "scheduler":
            made.append((host, segment.clock[0][0]))
        for record in segment.records:
            if record.get("type") in ("task", "part") and "key" in record:
                tasks.append((host, record))
            if record.get("type") == "clock" and record.get("error_ns") is not None:
                told = (int(record["mono_ns"]), int(record["offset_ns"]), int(record["error_ns"]))
                exchanges.setdefault(host, []).append(told)
        if segment.clock:
            own[host] = min(own.get(host, segment.clock[0]), segment.clock[0])
    submits = {host for host, _ in made}  # where nobody else tells the time, theirs is the reference
    clocks = {host: Clock.fixed(wall - mono, 0 if host in submits else None) for host, (mono, wall) in own.items()}
    clocks |= {host: Clock.of(told) for host, told in exchanges.items()}
    return clocks | bound(clocks, tasks, made)


def _placed(clock: Clock | None, segment: Segment) -> dict[str, int | None]:
    """Return how a segment is placed: offset at its first and at its last block, and the largest bound between."""
    if clock is None or not segment.clock:
        return dict.fromkeys(("offset_ns", "offset_end_ns", "error_ns", "exchanges"))
    first, last = segment.clock[0][0], segment.clock[-1][0]
    return {
        "offset_ns": clock.offset_ns(first),
        "offset_end_ns": clock.offset_ns(last),
        "error_ns": clock.worst_ns(first, last),
        "exchanges": clock.told_by(first, last),
    }


def _write_samples(
    segment: Segment, beside: list[Segment], out: RunDirectory, stem: str, clock: Clock | None
) -> dict[str, int]:
    files: dict[str, int] = {}
    for stream in segment.streams:
        data = segment.table(stream)
        for other in beside:
            if stream in other.streams:
                _join(data, other.table(stream))
        table = _arrow(data, segment.node, stem, clock)
        name = f"samples/{safe_name(stream)}/n-{safe_name(segment.node)}/{stem}.parquet"
        write_parquet(table, out.path / name)
        files[name] = table.num_rows
    for each in (segment, *beside):
        each.forget()
    return files


def _join(data: dict[str, ColumnData], other: dict[str, ColumnData]) -> None:
    """Add the columns that Python collectors wrote beside the native engine, tick by tick."""
    import numpy as np

    # of several targets, each has a row of its own in a tick
    names = ["mono_ns", "pid"] if "pid" in data and "pid" in other else ["mono_ns"]
    mono, theirs = (
        np.rec.fromarrays([table[name][0] for name in names], dtype=[(name, "i8") for name in names])
        for table in (data, other)
    )
    order = np.argsort(theirs, kind="stable")
    place = np.minimum(np.searchsorted(theirs[order], mono), len(theirs) - 1)
    rows = order[place]
    same = theirs[rows] == mono
    for name, (values, valid) in other.items():
        if name not in data:
            data[name] = (values[rows], valid[rows] & same)


def _arrow(data: dict[str, ColumnData], node: str, stem: str, clock: Clock | None) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    mono = data.get("mono_ns")
    if mono is not None and clock is not None:
        times = mono[0].astype("i8")
        columns["time_ns"] = pa.array(times + clock.offsets_ns(times), pa.int64())
    for name, (values, valid) in data.items():
        columns[name] = pa.array(values, mask=~valid)
    rows = len(next(iter(data.values()))[0]) if data else 0
    for name, text in (("node", node), ("segment", stem)):
        columns[name] = pa.array([text], pa.string()).take(pa.array(np.zeros(rows, "i8")))
    return pa.table(columns)


def is_whole(path: Path) -> bool:
    """Return whether a Parquet file is there from its first to its last byte.

    Source: the Parquet format, "File Format": ``PAR1``, the data, the footer and its length, ``PAR1``.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            size = file.seek(-8, os.SEEK_END) + 8
            end = file.read(8)
    except OSError:
        return False
    return begin == end[4:] == b"PAR1" and size >= 12 + int.from_bytes(end[:4], "little")


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a Parquet file that appears by rename.

    Counters and times are stored as their differences: a tenth of the time and of the size of a dictionary.
    Source: the Parquet format, "Data encodings", DELTA_BINARY_PACKED.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = [field.name for field in table.schema if field.type == pa.int64()]
    texts = [field.name for field in table.schema if field.type == pa.string()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        pq.write_table(
            table, partial, compression="zstd", use_dictionary=texts or False,
            column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED") or None,
        )  # fmt: skip


def write_events(merged: Merged, info: dict[str, Any], out: RunDirectory) -> None:
    """Write events.parquet: what the monitors said, and what reading the segments showed."""
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    for record in merged.records:
        if record.get("type") == "event":
            detail = {k: v for k, v in record.items() if k not in _EVENT_KEYS}
            rows.append(
                {
                    "time_ns": merged.time_ns(record["node"], record["boot"], int(record["mono_ns"])),
                    "node": record["node"],
                    "segment": record["segment"],
                    "kind": str(record.get("kind", "")),
                    "text": str(record.get("text", "")),
                    "detail": json.dumps(detail, default=str),
                }
            )
    for name, state in merged.segments.items():
        for kind, count in (("torn-block", state["torn"]), ("missing-block", state["missing"])):
            if count:
                row = {"time_ns": None, "node": state["node"], "segment": name, "kind": kind, "detail": "{}"}
                rows.append({**row, "text": f"{count} in {name}"})
    names = {"time_ns": pa.int64(), **dict.fromkeys(("node", "segment", "kind", "text", "detail"), pa.string())}
    rows.sort(key=lambda row: row["time_ns"] or 0)
    write_parquet(pa.Table.from_pylist(rows, pa.schema(names)), out.path / "events.parquet")


_EVENT_KEYS = {"type", "kind", "text", "mono_ns", "wall_ns", "node", "boot", "segment", "interval_s"}
