"""Made runs: workloads with known numbers, as tables in memory and as a run directory of real segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jumper.schema import RUN_SCHEMA, TASK_COLUMNS, VERSION

#: 17 March 2026, 09:41:00 UTC.
START_NS = 1_773_740_460_000_000_000
SECOND = 10**9
GIB = 2**30

#: group: seconds, cores of its thread, cores of its sub-processes, peak bytes, bytes written a second
PROFILE = {
    "read": (4.0, 0.30, 0.0, GIB // 4, 0),
    "tokenise": (6.0, 0.95, 0.0, GIB // 2, 1_000_000),
    "compress": (9.0, 0.10, 0.85, GIB, 8_000_000),
    "aggregate": (14.0, 0.80, 0.0, 3 * GIB // 2, 2_000_000),
    "write": (5.0, 0.40, 0.0, GIB // 3, 20_000_000),
}


@dataclass
class Made:
    """A run in memory, with the surface that analysis and report need of ``jumper.Run``."""

    info: dict[str, Any]
    tasks: pd.DataFrame
    streams: dict[str, pd.DataFrame] = field(default_factory=dict)
    events: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["type", "kind", "text"]))
    path: Path = Path("made")

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return dict(self.info.get("nodes", {}))

    @property
    def parts(self) -> pd.DataFrame:
        return self.tasks

    def samples(self, stream: str, node: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        frame = self.streams.get(stream)
        if frame is None:
            return pd.DataFrame(columns=["time_ns", "mono_ns", "node", "segment"])
        if node is not None:
            frame = frame[frame["node"] == node]
        return frame if columns is None else frame[[*("time_ns", "mono_ns", "node", "segment"), *columns]]


def tasks_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a tasks table with all its columns and types from rows that know some of them."""
    frame = pd.DataFrame(rows, columns=[c.name for c in TASK_COLUMNS])
    for column in TASK_COLUMNS:
        values = frame[column.name]
        if column.dtype in ("int", "float"):
            frame[column.name] = values.astype("Int64" if column.dtype == "int" else "Float64")
        elif column.dtype == "str":
            frame[column.name] = values.astype("string")
        else:
            frame[column.name] = values.astype(object)
    return frame


def make(
    tasks: int = 60,
    nodes: int = 2,
    workers: int = 2,
    threads: int = 2,
    *,
    interval_s: float = 1.0,
    names: Sequence[str] = tuple(PROFILE),
    custom: bool = True,
    samples: bool = True,
    state: str | None = None,
    seed: int = 1,
) -> Made:
    """Return a Dask run whose threads work without a pause, and whose processes cost 0.02 cores besides.

    Every attempt has ``cpu_s`` = wall time * (thread cores + sub-process cores) of its
    profile; counters of threads and processes follow from that exactly.
    """
    random = np.random.default_rng(seed)
    places = [(f"n{n + 1}", f"tcp://10.0.0.{n + 1}:4{w:04d}", 1000 + 10 * w, 1001 + 10 * w + t)
              for n in range(nodes) for w in range(workers) for t in range(threads)]  # fmt: skip
    free = np.zeros(len(places))
    rows: list[dict[str, Any]] = []
    order = sorted(range(tasks), key=lambda i: (i * len(names)) // max(tasks, 1))
    for number in order:
        name = names[(number * len(names)) // max(tasks, 1)]
        seconds, own, children, peak, written = list(PROFILE.values())[names.index(name) % len(PROFILE)]
        wall = round(float(seconds * random.uniform(0.6, 1.5)), 3)
        place = int(np.argmin(free))
        begin = round(float(free[place]) + 0.05, 3)
        free[place] = begin + wall
        node, worker, pid, thread = places[place]
        failed = state or ("failed" if number % 29 == 7 else "done")
        rows.append({
            "key": f"{name}-{number:04d}", "attempt_id": str(number), "attempt": 1, "group": name, "kind": "dask",
            "node": node, "worker": worker, "pid": pid, "thread": thread,
            "start_ns": START_NS + round(begin * 1e9), "stop_ns": START_NS + round((begin + wall) * 1e9),
            "wall_s": wall, "state": failed, "reason": "ValueError: bad header" if failed == "failed" else None,
            "cpu_s": wall * (own + children), "memory_peak_bytes": round(peak * random.uniform(0.8, 1.0)),
            "memory_peak_source": "rss", "memory_limit_bytes": 4 * GIB, "threads_asked": 1,
            "memory_asked_bytes": 4 * GIB if name == "compress" else None,
            "write_chars": round(written * wall), "write_bytes": round(written * wall), "read_bytes": 0,
            "read_chars": round(5e6 * wall), "samples": int(wall / interval_s), "gap_s": 0.0,
            "flags": ["shared"] if number % 3 else [],
            "_own": own, "_children": children, "_written": written,
        })  # fmt: skip
    stop = float(free.max()) + 1.0 if tasks else 10.0
    made = Made(_info("dask", nodes, interval_s, stop), tasks_table(rows))
    if samples:
        made.streams = _streams(rows, places, interval_s, stop, custom)
    return made


def make_command(seconds: float = 20.0, interval_s: float = 0.5) -> Made:
    """Return a `jumper run` of one command: 1.5 cores busy, memory rising to 1 GiB, 10 MB/s written."""
    at = np.arange(0, seconds + interval_s / 2, interval_s)
    row = {
        "key": "python train.py", "attempt_id": "0", "attempt": 1, "group": "python", "kind": "command", "node": "n1",
        "pid": 4711, "start_ns": START_NS, "stop_ns": START_NS + round(seconds * 1e9), "wall_s": seconds,
        "state": "done", "exit_code": 0, "cpu_s": 1.5 * seconds, "cpu_user_s": 1.2 * seconds,
        "cpu_system_s": 0.3 * seconds, "memory_peak_bytes": GIB, "memory_peak_source": "rss",
        "write_chars": round(1e7 * seconds), "write_bytes": round(1e7 * seconds), "read_bytes": 0, "read_chars": 4096,
        "samples": len(at), "gap_s": 0.0, "processes": 3, "flags": [],
    }  # fmt: skip
    frame = _keys(at, "n1", 4711)
    frame["cpu_ns"] = (1.5e9 * at).astype("int64")
    frame["memory_bytes"] = (GIB * at / seconds).astype("int64")
    frame["write_bytes"] = frame["write_chars"] = (1e7 * at).astype("int64")
    frame["read_bytes"] = 0
    info = _info("command", 1, interval_s, seconds) | {"command": ["python", "train.py"]}
    return Made(info, tasks_table([row]), {"process": frame, "monitor": _monitor(at, "n1", 99)})


def _info(kind: str, nodes: int, interval_s: float, stop: float) -> dict[str, Any]:
    return {
        "schema": RUN_SCHEMA, "run": f"{kind}-7f3a", "kind": kind, "command": None, "created_ns": START_NS,
        "finished_ns": START_NS + round(stop * 1e9), "interval_s": interval_s,
        "versions": {"jumper": VERSION, "python": "3.11.2", "dask": "2026.8.0"},
        "nodes": {f"n{n + 1}": {"num_cpus": 4, "num_system_cpus": 4, "memory_bytes": 16 * GIB, "num_gpus": 0,
                                "kernel": "6.1.0", "memory_limits": {}} for n in range(nodes)},
        "roots": [], "clocks": {}, "segments": {}, "files": {},
        "coverage": {"expected": nodes, "came": nodes, "missing": [], "torn": 0, "dropped": 0},
    }  # fmt: skip


def _keys(at: Any, node: str, pid: int | None = None, tid: int | None = None) -> pd.DataFrame:
    frame = pd.DataFrame({"time_ns": START_NS + np.round(at * 1e9).astype("int64")})
    frame["mono_ns"] = frame["time_ns"] - START_NS + 5 * SECOND
    frame["node"] = pd.array([node] * len(at), dtype="string")
    frame["segment"] = pd.array([f"{node}.{pid or 1}.00"] * len(at), dtype="string")
    if pid is not None:
        frame["pid"] = pid
    if tid is not None:
        frame["tid"] = tid
    return frame


def _monitor(at: Any, node: str, pid: int) -> pd.DataFrame:
    frame = _keys(at, node, pid)
    frame["cpu_ns"] = (2e6 * at).astype("int64")
    frame["rss_bytes"] = 20_000_000
    frame["ticks"] = np.arange(len(at))
    frame["missed"] = frame["dropped"] = 0
    return frame


def _grown(rows: list[dict[str, Any]], at: Any, rate: str) -> Any:
    """Return the integral of a rate of these attempts at each time."""
    begin = np.array([(r["start_ns"] - START_NS) / 1e9 for r in rows])
    wall = np.array([r["wall_s"] for r in rows])
    speed = np.array([r[rate] for r in rows], dtype=float)
    return sum((s * np.clip(at - b, 0, w) for b, w, s in zip(begin, wall, speed, strict=True)), np.zeros(len(at)))


def _streams(rows: list[dict[str, Any]], places: list[Any], interval_s: float, stop: float, custom: bool) -> Any:
    at = np.arange(0, stop + interval_s / 2, interval_s)
    out: dict[str, list[pd.DataFrame]] = {"thread": [], "process": [], "system": [], "monitor": []}
    by_thread: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_thread.setdefault((row["node"], row["pid"], row["thread"]), []).append(row)
    for node, pid in sorted({(p[0], p[2]) for p in places}):
        cpu, written, memory = 0.02 * at, np.zeros(len(at)), np.full(len(at), 150e6)
        for thread in [p[3] for p in places if (p[0], p[2]) == (node, pid)]:
            mine = by_thread.get((node, pid, thread), [])
            frame = _keys(at, node, pid, thread)
            frame["cpu_ns"] = np.round(1e9 * _grown(mine, at, "_own")).astype("int64")
            out["thread"].append(frame)
            cpu = cpu + _grown(mine, at, "_own") + _grown(mine, at, "_children")
            written = written + _grown(mine, at, "_written")
            for row in mine:
                begin = (row["start_ns"] - START_NS) / 1e9
                inside = (at >= begin) & (at < begin + row["wall_s"])
                memory[inside] += row["memory_peak_bytes"] * np.minimum(1, (at[inside] - begin) / row["wall_s"] * 1.6)
        frame = _keys(at, node, pid)
        frame["cpu_ns"] = np.round(1e9 * cpu).astype("int64")
        frame["memory_bytes"] = frame["rss_bytes"] = memory.astype("int64")
        frame["write_bytes"] = frame["write_chars"] = written.astype("int64")
        frame["read_chars"] = (5e6 * at).astype("int64")
        frame["read_bytes"] = 0
        out["process"].append(frame)
        out["monitor"].append(_monitor(at, node, pid + 5))
    for node in sorted({p[0] for p in places}):
        frame = _keys(at, node)
        frame["cpu_ns"] = sum(f["cpu_ns"].to_numpy() for f in out["process"] if f["node"].iloc[0] == node)
        frame["memory_bytes"] = sum(f["memory_bytes"].to_numpy() for f in out["process"] if f["node"].iloc[0] == node)
        frame["net_recv_bytes"] = (3e6 * at).astype("int64")
        frame["net_sent_bytes"] = (1e6 * at).astype("int64")
        if custom:
            frame["room_temperature"] = 21 + 3 * np.sin(at / 9) + (node == "n2")
        out["system"].append(frame)
    return {name: pd.concat(frames, ignore_index=True) for name, frames in out.items() if frames}


def write(made: Made, path: Path) -> Path:
    """Write a made run as what monitors leave: run.json and spool/*.seg; attempts as their boundaries."""
    from jumper.monitor.segment import SegmentWriter

    (path / "spool").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({**made.info, "files": {}, "finished_ns": made.info["finished_ns"]}))
    for node, facts in made.nodes.items():
        header = {"run": made.info["run"], "interval_s": made.info["interval_s"]}
        with SegmentWriter(path / "spool", header, node=node) as segment:
            segment.text({"type": "node", "node": node, **facts})
            segment.text({"type": "clock", "offset_ns": START_NS - 5 * SECOND, "error_ns": 0, "mono_ns": 5 * SECOND})
            for name, frame in made.streams.items():
                mine = frame[frame["node"] == node].drop(columns=["time_ns", "node", "segment"])
                for row in mine.to_dict("records"):
                    segment.row(name, {str(column): value for column, value in row.items()})
            rows: list[Any] = made.tasks[made.tasks["node"] == node].to_dict("records")
            for task in rows:
                for record in _boundaries(task):
                    segment.text(record)
    return path


def _boundaries(task: dict[str, Any]) -> list[dict[str, Any]]:
    known = {k: v for k, v in task.items() if isinstance(v, list) or not pd.isna(v)}
    same = ("key", "attempt_id", "attempt", "group", "kind", "node", "worker", "pid", "thread", "memory_asked_bytes",
            "memory_limit_bytes", "threads_asked")  # fmt: skip
    start = {"type": "task", "event": "start", **{k: known[k] for k in same if k in known}}
    ids = {k: known[k] for k in ("key", "attempt_id")}
    ended: dict[str, Any] = {k: known[k] for k in ("state", "reason", "exit_code", "flags") if k in known}
    if "memory_peak_bytes" in known:
        ended["hwm_bytes"] = int(known["memory_peak_bytes"])
    names = ("read_bytes", "write_bytes", "read_chars", "write_chars")
    readings = {name: int(known.get(name, 0)) for name in names} | {"cpu_ns": round(known.get("cpu_s", 0) * 1e9)}
    mono = {name: int(known[f"{name}_ns"]) - START_NS + 5 * SECOND for name in ("start", "stop")}
    return [
        {**start, "mono_ns": mono["start"], "wall_ns": int(known["start_ns"]), "base": dict.fromkeys(readings, 0)},
        {"type": "task", "event": "stop", **ids, **ended, "mono_ns": mono["stop"], "wall_ns": int(known["stop_ns"]),
         "end": readings},
    ]  # fmt: skip
