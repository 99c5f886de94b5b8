"""The rows behind the pictures of a run: one grid, one order of groups, one clock for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis import timeline
from jumper.analysis.lanes import pack_nodes
from jumper.analysis.tables import Cached, RunTables, custom_columns, floats, interval_of, texts, times
from jumper.report.theme import OTHER, colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jumper.analysis.tables import Floats, Ints

#: Groups, workers or lines that get a colour of their own; the rest is drawn together.
MOST_COLOURS = 7
OTHER_GROUPS = "other groups"
LEVELS = ("process", "system", "user", "slurm")


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of one stack by name, each of shape (bins,), NaN filled with 0; and a line to compare it with."""

    layers: dict[str, Floats]
    capacity: float | None = None
    capacity_label: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of one metric by name, each of shape (bins,), NaN where not known."""

    metric: str
    level: str
    lines: dict[str, Floats]


class RunRows:
    """What the pictures of one run draw, computed once, as arrays and small frames.

    Parameters
    ----------
    run : RunTables

    Attributes
    ----------
    zone : str
        Name of the one time zone of all pictures: this machine's, at the start of the run.
    """

    def __init__(self, run: RunTables) -> None:
        self.run: RunTables = run if isinstance(run, Cached) else Cached(run)
        self.interval_s = interval_of(run)
        span = timeline.span_of(run)
        self.empty = span is None
        created = int(run.info.get("created_ns") or 0)
        start, stop = span or (created, created + 1_000_000_000)
        self.grid = timeline.make_grid(start, stop)
        local = datetime.fromtimestamp(start / 1e9, UTC).astimezone()
        self.zone = local.tzname() or "UTC"
        self._offset_ns = round((local.utcoffset() or local - local).total_seconds()) * 1_000_000_000

    def clock(self, time_ns: Ints) -> NDArray[np.datetime64]:
        """Return UTC ns as naive times of the run's zone: what is drawn, never stored."""
        return (time_ns + self._offset_ns).astype("datetime64[ns]").astype("datetime64[us]")

    @cached_property
    def time(self) -> NDArray[np.datetime64]:
        """Middles of the bins, shape (bins,)."""
        return self.clock(np.asarray(np.round(self.grid.centers * 1e9), dtype="int64") + self.grid.start_ns)

    @cached_property
    def limits(self) -> NDArray[np.datetime64]:
        """First and last time drawn, with 0.5 % of room, shape (2,)."""
        room = round((self.grid.stop_ns - self.grid.start_ns) * 0.005)
        return self.clock(np.array([self.grid.start_ns - room, self.grid.stop_ns + room]))

    @cached_property
    def cpu_lines(self) -> dict[str, Floats]:
        """Busy cores by group, and outside of tasks."""
        return timeline.cpu_by_group(self.run, self.grid, self.interval_s)

    @cached_property
    def groups(self) -> list[str]:
        """Groups with a colour of their own, the most CPU first; what shares one is drawn as other groups."""
        tasks = self.run.tasks
        names = [name or "(no name)" for name in texts(tasks, "group")]
        weight = dict.fromkeys(names, 0.0)
        for name, cpu, wall in zip(names, floats(tasks, "cpu_s"), floats(tasks, "wall_s"), strict=True):
            weight[name] += float(np.nan_to_num(cpu)) + 1e-6 * float(np.nan_to_num(wall))
        return sorted(weight, key=lambda name: (-weight[name], name))[:MOST_COLOURS]

    @cached_property
    def colour(self) -> dict[str, str]:
        """Colour of each group that is drawn by itself, and of the other groups where there are any."""
        out = colours(self.groups)
        if len(set(texts(self.run.tasks, "group"))) > len(out):
            out[OTHER_GROUPS] = OTHER
        return out

    @cached_property
    def bars(self) -> pd.DataFrame:
        """Attempts to draw: ``row`` (0 at the top), ``start``, ``stop`` (UTC ns), ``type``, ``index`` in the table."""
        tasks = self.run.tasks
        start = times(tasks, "start_ns")
        keep = np.flatnonzero(start > 0)
        stop = times(tasks, "stop_ns", self.grid.stop_ns)
        node = [name or "(no node)" for name in texts(tasks, "node")]
        worker = texts(tasks, "worker")
        rows, self.node_rows = pack_nodes([node[i] for i in keep], [worker[i] for i in keep], start[keep], stop[keep])
        names = [name or "(no name)" for name in texts(tasks, "group")]
        states = texts(tasks, "state")
        return pd.DataFrame({
            "index": keep, "row": rows, "start": start[keep], "stop": np.maximum(stop[keep], start[keep]),
            "type": [names[i] if names[i] in self.colour else OTHER_GROUPS for i in keep],
            "bad": [states[i] in ("failed", "lost") for i in keep], "node": [node[i] for i in keep],
        })  # fmt: skip

    @cached_property
    def running(self) -> Floats:
        """Attempts that run, mean of each bin."""
        begin, end = self.grid.seconds(times(self.bars, "start")), self.grid.seconds(times(self.bars, "stop"))
        return timeline.spread(begin, end, end - begin, self.grid.edges) / self.grid.width_s

    @cached_property
    def cpu(self) -> Stack | None:
        """Busy cores by group."""
        layers = {name: self.cpu_lines[name] for name in self.groups if name in self.cpu_lines}
        others = [line for name, line in self.cpu_lines.items() if name not in layers and name != timeline.OUTSIDE]
        if others:
            layers[OTHER_GROUPS] = np.sum(others, axis=0)
        if timeline.OUTSIDE in self.cpu_lines:
            layers[timeline.OUTSIDE] = self.cpu_lines[timeline.OUTSIDE]
        if not any(line.any() for line in layers.values()):
            return None
        cores = sum(int(node.get("num_cpus") or 0) for node in self.run.nodes.values())
        return Stack(layers, float(cores) or None, f"{cores} CPUs")

    @cached_property
    def memory(self) -> Stack | None:
        """Memory in use by worker (by node where there are too many), highest of each bin, in bytes."""
        samples = self.run.samples("process")
        if "pid" not in samples or len(samples[["node", "pid"]].drop_duplicates()) > MOST_COLOURS:
            named = timeline.total_gauge(samples, "memory_bytes", self.grid, self.interval_s)
        else:
            named = self._named(timeline.by_series(samples, "memory_bytes", self.grid, self.interval_s, counter=False))
        if not named:
            return None
        if len(named) > MOST_COLOURS:
            named = {f"{len(named)} nodes": np.sum([np.nan_to_num(line) for line in named.values()], axis=0)}
        total = sum(float(node.get("memory_bytes") or 0) for node in self.run.nodes.values())
        layers = {name: np.nan_to_num(line) for name, line in named.items()}
        return Stack(layers, total or None, "of the nodes" if len(self.run.nodes) > 1 else "of the node")

    def transfer(self, stream: str, inward: str, outward: str) -> tuple[Floats, Floats] | None:
        """Return summed (read, written) bytes a second of two counters, or None where nothing moved."""
        samples = self.run.samples(stream)
        lines = [timeline.total_rate(samples, name, self.grid, self.interval_s) for name in (inward, outward)]
        zero = np.zeros(self.grid.bins)
        read, written = (zero if line is None else line for line in lines)
        return (read, written) if read.any() or written.any() else None

    @cached_property
    def node_cpu(self) -> dict[str, Floats]:
        """Percent of the CPUs of each node that were busy, NaN where there is no sample."""
        lines = timeline.by_series(self.run.samples("system"), "cpu_ns", self.grid, self.interval_s, counter=True)
        out: dict[str, Floats] = {}
        for (node, _), line in lines.items():
            facts = self.run.nodes.get(node, {})
            cpus = facts.get("num_system_cpus") or facts.get("num_cpus")
            if cpus:
                out[node] = np.minimum(line / 1e9 / int(cpus) * 100, 100.0)
        return out

    @cached_property
    def custom(self) -> list[Lines]:
        """Metrics of custom collectors, one a column and level; a level where all is 0 gives way to one with data."""
        found: list[Lines] = []
        for level in LEVELS:
            for name in custom_columns(self.run.samples(level)):
                metric = self.metric(name, level)
                if metric is not None:
                    found.append(metric)
        live = {metric.metric for metric in found if any(np.nan_to_num(line).any() for line in metric.lines.values())}
        return [
            metric for metric in found
            if metric.metric not in live or any(np.nan_to_num(line).any() for line in metric.lines.values())
        ]  # fmt: skip

    def metric(self, name: str, level: str = "system") -> Lines | None:
        """Return a column of a level as lines, counters as rates; None where it holds no value."""
        from jumper.schema.columns import declared

        column = declared(name)
        counter = column is not None and column.kind == "counter"
        lines = timeline.by_series(self.run.samples(level), name, self.grid, self.interval_s, counter=counter)
        return Lines(name, level, self._named(lines)) if lines else None

    def _named(self, lines: dict[tuple[str, int | None], Floats]) -> dict[str, Floats]:
        tasks = self.run.tasks
        workers = {
            (node, int(pid)): worker
            for node, pid, worker in zip(
                texts(tasks, "node"), times(tasks, "pid"), texts(tasks, "worker"), strict=True
            ) if worker
        }  # fmt: skip
        for root in self.run.info.get("roots") or []:
            if root.get("name") and root.get("pid"):
                workers.setdefault((str(root.get("node", "")), int(root["pid"])), str(root["name"]))
        nodes = {node for node, _ in lines}
        out: dict[str, Floats] = {}
        for (node, pid), line in lines.items():
            name = node if pid is None else workers.get((node, pid), f"pid {pid}")
            if name in out or (pid is not None and len(nodes) > 1 and node not in name):
                name = f"{name} on {node}"
            out[name if name not in out else f"{name} ({pid})"] = line
        return out
