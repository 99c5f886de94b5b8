"""A large run: how long its page takes to build, to open and to move, and what a large spool takes to merge.

Building and merging run in a process of their own, whose imports are measured apart from them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import NotPossible, Row, Size, spread

START_NS = 1_773_740_460_000_000_000
SECOND = 10**9
#: nodes, ticks and attempts of the run that is reported; segments and ticks of the spool that is merged
USUAL, SMALL = ((100, 3600, 100_000), (100, 50_000)), ((3, 60, 100), (2, 300))
#: limits of a page: seconds, bytes, seconds until it is idle, ms of a pan; of a merge: seconds, bytes, ms of opening
BUILD_S, PAGE_BYTES, IDLE_S, PAN_MS, MERGE_S, MERGE_BYTES, OPEN_MS = 3.0, 5e6, 2.5, 200.0, 20.0, 2 << 30, 50.0
GROUPS = ("fetch", "qc", "trim", "align", "sort", "call", "train", "stats", "report")


def made_run(path: Path, nodes: int, ticks: int, tasks: int) -> Path:
    """Write a run of so many nodes, ticks of 1 s and attempts, with eight metrics a node and tick, as merged tables."""
    import pyarrow as pa

    from jumper.schema import RUN_SCHEMA, TASK_COLUMNS, VERSION
    from jumper.store.merge import write_parquet
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


def made_spool(path: Path, segments: int, ticks: int, rows_a_block: int = 10) -> int:
    """Write a run as monitors leave it: so many segments of two streams of so many ticks; return the rows."""
    from jumper.schema import RUN_SCHEMA
    from jumper.schema import segment as fmt

    spool = path / "spool"
    spool.mkdir(parents=True)
    (path / "run.json").write_text(
        json.dumps({"schema": RUN_SCHEMA, "run": "large", "kind": "dask", "interval_s": 1.0})
    )
    streams = {"process": ("pid", "cpu_ns", "memory_bytes", "read_chars", "write_chars"),
               "system": ("cpu_ns", "memory_bytes", "net_recv_bytes", "net_sent_bytes")}  # fmt: skip
    for number in range(segments):
        node = f"n{number + 1:03d}"
        name = f"{node}.1000.{number:08x}"
        header = {"format": fmt.FORMAT, "segment": name, "node": node, "pid": 1000, "boot_id": node, "interval_s": 1.0,
                  "streams": {stream: {"id": i + 1, "columns": [[c, "i8"] for c in ("mono_ns", *columns)]}
                              for i, (stream, columns) in enumerate(streams.items())}}  # fmt: skip
        with open(spool / f"{name}.seg", "wb") as file:
            text = b'{"type": "clock", "offset_ns": %d, "error_ns": 1000, "mono_ns": 1}' % START_NS
            blocks: list[tuple[fmt.Kind, bytes, int]] = [
                (fmt.SCHEMA, json.dumps(header).encode(), 0),
                (fmt.TEXT, text, 0),
            ]
            at = np.arange(ticks) * SECOND
            for begin in range(0, ticks, rows_a_block):
                tick = at[begin : begin + rows_a_block]
                for i, columns in enumerate(streams.values()):
                    width, count = len(columns) + 1, len(tick)
                    bitmaps = bytes([255]) * (-(-count // 8) * width)
                    values = np.concatenate([tick + 1, *(tick * (c + 2) + number for c in range(len(columns)))])
                    payload = fmt.ROWS_HEADER.pack(i + 1, width, count) + bitmaps.ljust(
                        -(-len(bitmaps) // 8) * 8, b"\0"
                    )
                    blocks.append((fmt.ROWS, payload + values.astype("<i8").tobytes(), int(tick[-1])))
            blocks.append((fmt.TEXT, b'{"type": "end"}', int(at[-1])))
            for sequence, (kind, payload, mono) in enumerate(blocks):
                file.write(fmt.pack_block(kind, sequence, payload, mono, START_NS + mono))
    return segments * ticks * len(streams)


_BUILD = """
import json, sys, time
import bokeh.document, bokeh.models, jinja2, pandas, pyarrow.parquet, jumper
from jumper.analysis import findings
from jumper.report.page import builder, charts, figures, words
begin, cpu = time.perf_counter(), time.process_time()
page = jumper.open_run(sys.argv[1]).report(sys.argv[2])
print(json.dumps([time.perf_counter() - begin, time.process_time() - cpu, page.stat().st_size]))
"""
_MERGE = """
import json, resource, sys, time
import pandas, pyarrow.parquet, jumper
begin, cpu = time.perf_counter(), time.process_time()
run = jumper.open_run(sys.argv[1])
merged = time.perf_counter() - begin, time.process_time() - cpu
opened = []
for _ in range(5):
    begin = time.perf_counter()
    jumper.open_run(sys.argv[1])
    opened.append(time.perf_counter() - begin)
rows = sum(run.info["files"].values())
print(json.dumps([*merged, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, min(opened), rows]))
"""
_IDLE = "() => window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle)"
_PAN = """async () => {
  const range = Bokeh.documents[0].get_model_by_name("jumper-time"), {start, end} = range, out = [];
  const width = end - start;
  for (let i = 0; i < 9; i++) {
    const begin = performance.now(), [from, to] = i % 2 ? [0.1 + i / 50, 0.6 + i / 50] : [0.2, 0.3 + i / 20];
    range.setv({start: start + from * width, end: start + to * width});
    do await new Promise(next => setTimeout(next, 0)); while (!Bokeh.documents.every(d => d.is_idle));
    await new Promise(next => requestAnimationFrame(() => setTimeout(next, 0)));
    out.push(performance.now() - begin);
  }
  return out;
}"""


def pages(size: Size) -> Iterator[Row]:
    """Yield what a page of a large run takes to build, to open in Chromium, and to pan and zoom."""
    (nodes, ticks, tasks), _ = SMALL if size.work < 1 else USUAL
    with tempfile.TemporaryDirectory(prefix="jumper-bench-") as folder:
        run = made_run(Path(folder) / "run", nodes, ticks, tasks)
        page = Path(folder) / "page.html"
        built = [_run(_BUILD, run, page) for _ in range(3 if size.work == 1 else 1)]
        what = f"page of {nodes} nodes x {ticks:,} samples x 8 metrics, {tasks:,} tasks"
        wall, cpu, weight = min(b[0] for b in built), min(b[1] for b in built), built[0][2]
        yield Row(
            f"{what}: built", f"{wall:.2f} s", f"{cpu:.2f} s of CPU", "", f"at most {BUILD_S:g} s", wall <= BUILD_S
        )
        yield Row(
            f"{what}: size", f"{weight / 1e6:.2f} MB", "", "", f"at most {PAGE_BYTES / 1e6:g} MB", weight <= PAGE_BYTES
        )
        idle, pans = _opened(page)
        yield Row(f"{what}: open and idle in Chromium", f"{min(idle):.2f} s", "", "", f"at most {IDLE_S:g} s",
                  min(idle) <= IDLE_S)  # fmt: skip
        middle = float(np.median(pans))
        yield Row(f"{what}: pan and zoom", spread(pans, 0, " ms"), "", "", f"under {PAN_MS:g} ms", middle < PAN_MS)


def merges(size: Size) -> Iterator[Row]:
    """Yield what a large spool takes to merge, and the merged run to open."""
    _, (segments, ticks) = SMALL if size.work < 1 else USUAL
    with tempfile.TemporaryDirectory(prefix="jumper-bench-") as folder:
        run = Path(folder) / "run"
        rows = made_spool(run, segments, ticks)
        wall, cpu, resident, opened, found = _run(_MERGE, run)
        if found != rows:
            raise AssertionError(f"{rows:,} rows were written and {found:,} merged")
    what = f"{rows:,} sample rows in {segments} segments"
    yield Row(f"{what}: merged", f"{wall:.1f} s", f"{cpu:.1f} s of CPU", "", f"at most {MERGE_S:g} s", wall <= MERGE_S)
    yield Row(f"{what}: resident", f"{resident / 2**30:.2f} GiB", "", "", "at most 2 GiB", resident <= MERGE_BYTES)
    yield Row(f"{what}: open_run", f"{opened * 1e3:.1f} ms", "", "", f"under {OPEN_MS:g} ms", opened * 1e3 < OPEN_MS)


def _run(code: str, *arguments: Path) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _opened(page: Path) -> tuple[list[float], list[float]]:
    """Return seconds until a page is open and idle in Chromium, of each of three times, and ms of each pan."""
    import time

    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NotPossible(f"{error}; pip install playwright") from error
    chromium = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    if not chromium:
        raise NotPossible("no Chromium on this machine")
    idle, pans = [], []
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=flags)
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1300, "height": 900})
            begin = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_function(_IDLE, timeout=120_000)
            idle.append(time.perf_counter() - begin)
            pans += tab.evaluate(_PAN)
            tab.close()
        browser.close()
    return idle, pans
