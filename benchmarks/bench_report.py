"""The report and merging at scale: how long a page takes to build and to open, and what a large spool takes to merge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

START_NS = 1_773_740_460_000_000_000
SECOND = 10**9
GROUPS = ("fetch", "qc", "trim", "align", "sort", "call", "train", "stats", "report")


def made_run(path: Path, nodes: int, ticks: int, tasks: int) -> Path:
    """Write a run of so many nodes, ticks (of 1 s) and attempts, with eight metrics a node and tick, as merged tables."""
    from jumper.schema import RUN_SCHEMA, TASK_COLUMNS, VERSION
    from jumper.store.tables import arrow_schema

    chance = np.random.default_rng(1)
    names = [f"n{n + 1:03d}" for n in range(nodes)]
    files: dict[str, int] = {}
    at = np.arange(ticks) * SECOND
    for node in names:
        busy = np.clip(np.cumsum(chance.normal(0, 1, ticks)) + 20, 0, 32)
        grown = np.cumsum(busy * 1e9).astype("i8")
        moved = np.cumsum(chance.integers(0, 10**8, (4, ticks)), axis=1)
        common: dict[str, Any] = {"mono_ns": at + 5 * SECOND, "time_ns": at + START_NS, "node": node}
        memory = (chance.integers(4, 9, ticks) * 2**30).astype("i8")
        for stream, columns in {
            "process": {"pid": 1000, "cpu_ns": grown, "memory_bytes": memory, "read_chars": moved[0],
                        "write_chars": moved[1]},
            "system": {"cpu_ns": grown + at // 50, "memory_bytes": memory + 2**30, "net_recv_bytes": moved[2],
                       "net_sent_bytes": moved[3]},
        }.items():  # fmt: skip
            name = f"samples/{stream}/n-{node}/{node}.1000.00.parquet"
            _write(pd.DataFrame({**common, "segment": f"{node}.1000.00", **columns}), path / name)
            files[name] = ticks
    place = chance.integers(0, nodes, tasks)
    group = chance.integers(0, len(GROUPS), tasks)
    start = np.sort(chance.uniform(0, max(ticks - 60, 1), tasks))
    wall = chance.gamma(2.0, 8.0, tasks) * (1 + group / 4)
    peak = (chance.uniform(0.5, 1.0, tasks) * (1 + group) * 2**29).astype("i8")
    import pyarrow as pa

    columns = {
        "key": [f"{GROUPS[g]}-{i:06d}" for i, g in enumerate(group)], "attempt_id": [str(i) for i in range(tasks)],
        "attempt": np.ones(tasks, "i8"), "group": [GROUPS[g] for g in group], "kind": ["dask"] * tasks,
        "node": [names[p] for p in place], "worker": [f"tcp://{names[p]}:1" for p in place],
        "pid": np.full(tasks, 1000), "thread": 1001 + np.arange(tasks) % 32,
        "start_ns": START_NS + (start * 1e9).astype("i8"), "stop_ns": START_NS + ((start + wall) * 1e9).astype("i8"),
        "wall_s": wall, "state": np.where(chance.random(tasks) < 0.001, "failed", "done").tolist(),
        "cpu_s": wall * chance.uniform(0.3, 1.0, tasks), "memory_peak_bytes": peak,
        "memory_peak_source": ["rss"] * tasks, "memory_asked_bytes": np.full(tasks, 16 * 2**30),
        "threads_asked": np.ones(tasks, "i8"), "read_chars": (wall * 1e7).astype("i8"),
        "write_chars": (wall * 3e6).astype("i8"), "samples": wall.astype("i8"), "gap_s": np.zeros(tasks),
    }  # fmt: skip
    schema = arrow_schema(TASK_COLUMNS)
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(tasks, f.type) for f in schema]
    from jumper.store.merge import write_parquet

    write_parquet(pa.Table.from_arrays(arrays, schema=schema), path / "tasks.parquet")
    write_parquet(pa.Table.from_arrays(arrays, schema=schema), path / "parts.parquet")
    write_parquet(pa.table({"time_ns": pa.array([], pa.int64())}), path / "events.parquet")
    facts = {"num_cpus": 32, "num_system_cpus": 32, "memory_bytes": 128 * 2**30, "kernel": "6.1.0"}
    info = {
        "schema": RUN_SCHEMA, "run": "large", "kind": "dask", "command": None, "created_ns": START_NS,
        "finished_ns": START_NS + ticks * SECOND, "interval_s": 1.0, "versions": {"jumper": VERSION},
        "nodes": dict.fromkeys(names, facts), "roots": [], "clocks": {}, "segments": {}, "files": files,
        "coverage": {"expected": nodes, "came": nodes, "missing": []},
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(info))
    return path


def _write(frame: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa

    from jumper.store.merge import write_parquet

    write_parquet(pa.Table.from_pandas(frame, preserve_index=False), path)
