"""The rows behind the pictures of a run: one grid, one order of groups, one clock for all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis import busy, held, timeline
from jumper.analysis.lanes import pack_nodes
from jumper.analysis.summary import summarize
from jumper.analysis.tables import Cached, RunTables, custom_columns, floats, interval_of, texts, times
from jumper.analysis.units import human_bytes
from jumper.report.theme import OTHER, colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jumper.analysis.tables import Floats, Ints
    from jumper.analysis.timeline import Grouping

#: Groups or lines that get a colour of their own; the rest is drawn together.
MOST_COLOURS = 7
OTHER_GROUPS = "other groups"
#: Lanes that are drawn one by one; past it, several share a row.
MOST_LANES = 400
LEVELS = ("process", "system", "user", "slurm")
_DEVICE = re.compile(r"gpu_(\d+)_busy_ns")


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of one stack by name, each of shape (bins,), NaN filled with 0.

    And what there is, what was asked for, and the bins in which attempts ran and nothing is known of them.
    """

    layers: dict[str, Floats]
    capacity: float | None = None
    capacity_label: str = ""
    asked: Floats | None = None
    missing: NDArray[np.bool_] | None = None


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
        span = timeline.span_of(self.run)
        self.empty = span is None
        created = int(run.info.get("created_ns") or 0)
        start, stop = span or (created, created + 1_000_000_000)
        self.grid = timeline.make_grid(start, stop)
        local = datetime.fromtimestamp(start / 1e9, UTC).astimezone()
        self._moved: dict[tuple[str, str, str], tuple[Floats, Floats] | None] = {}
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
        """Busy cores by group as drawn, and outside of tasks."""
        return busy.cpu_by_group(self.run, self.grid, self.interval_s, self._drawn, self._processes)

    @cached_property
    def _processes(self) -> pd.DataFrame:
        return timeline.processes(self.run)

    @cached_property
    def group(self) -> Grouping:
        """Number of each attempt's group, and the names."""
        return timeline.group_codes(self.run.tasks)

    @cached_property
    def state(self) -> NDArray[np.object_]:
        """State of each attempt."""
        return np.array(texts(self.run.tasks, "state"), dtype=object)

    @cached_property
    def by_group(self) -> pd.DataFrame:
        """What each group cost, the most CPU first; see :func:`jumper.analysis.summary.summarize`."""
        return summarize(self.run.tasks)

    @cached_property
    def groups(self) -> list[str]:
        """Groups with a colour of their own, the most CPU first; what shares one is drawn as other groups."""
        codes, names = self.group
        cpu, wall = (np.nan_to_num(floats(self.run.tasks, name)) for name in ("cpu_s", "wall_s"))
        weight = dict(zip(names, np.bincount(codes, cpu + 1e-6 * wall, minlength=len(names)), strict=True))
        return sorted(weight, key=lambda name: (-weight[name], name))[:MOST_COLOURS]

    @cached_property
    def colour(self) -> dict[str, str]:
        """Colour of each group that is drawn by itself, and of the other groups where there are any."""
        out = colours(self.groups)
        if len(self.group[1]) > len(out):
            out[OTHER_GROUPS] = OTHER
        return out

    @cached_property
    def bars(self) -> pd.DataFrame:
        """Attempts to draw: ``row`` (0 at the top), ``start``, ``stop`` (UTC ns), ``index`` in the table, ``bad``.

        ``type`` is the group, or what it is drawn as, by its place in :attr:`colour`.
        """
        tasks = self.run.tasks
        start = times(tasks, "start_ns")
        keep = np.flatnonzero(start > 0)
        stop = times(tasks, "stop_ns", self.grid.stop_ns)[keep]
        node, worker = (np.array(texts(tasks, name), dtype=object)[keep] for name in ("node", "worker"))
        node[node == ""] = "(no node)"
        rows, self.node_rows = pack_nodes(node, worker, start[keep], stop)
        place = {name: number for number, name in enumerate(self.colour)}
        drawn, names = self._drawn
        codes = np.array([place.get(name, -1) for name in names])[drawn[keep]]
        return pd.DataFrame({
            "index": keep, "row": rows, "start": start[keep], "stop": np.maximum(stop, start[keep]),
            "type": pd.Categorical.from_codes(codes, pd.Index(list(place))),
            "bad": np.isin(self.state[keep], ["failed", "lost"]),
        })  # fmt: skip

    @property
    def folded(self) -> bool:
        """Whether there are so many lanes that several share a row of the picture."""
        return len(self.bars) > 0 and max(end for _, end in self.node_rows.values()) > MOST_LANES

    @cached_property
    def lanes(self) -> tuple[Ints, dict[str, tuple[int, int]]]:
        """Row of each bar of :attr:`bars`, and rows (first, end) of each node."""
        row = self.bars["row"].to_numpy()
        if not self.folded:
            return row, self.node_rows
        room = max(1, MOST_LANES // (2 * len(self.node_rows)))
        spans, drawn, top = {}, np.zeros(len(row), dtype="int64"), 0
        begins = np.array([first for first, _ in self.node_rows.values()])
        of_node = np.searchsorted(begins, row, side="right") - 1
        for number, (name, (first, end)) in enumerate(self.node_rows.items()):
            count = min(room, end - first)
            here = of_node == number
            drawn[here] = top + (row[here] - first) * count // (end - first)
            spans[name] = (top, top + count)
            top += count + (1 if count > 1 else 0)
        return drawn, spans

    @cached_property
    def running(self) -> Floats:
        """Attempts that run, mean of each bin."""
        begin, end = self.grid.seconds(times(self.bars, "start")), self.grid.seconds(times(self.bars, "stop"))
        return timeline.spread(begin, end, end - begin, self.grid.edges) / self.grid.width_s

    @cached_property
    def _drawn(self) -> Grouping:
        """Groups as they are drawn: those with a colour of their own in their order, and all others as one."""
        codes, names = self.group
        place = {name: number for number, name in enumerate(self.groups)}
        return np.array([place.get(name, len(place)) for name in names], dtype="int64")[codes], [*place, OTHER_GROUPS]

    def _stack(self, lines: dict[str, Floats]) -> dict[str, Floats]:
        """Return lines in the order in which they are stacked."""
        return {name: lines[name] for name in (*self._drawn[1], timeline.OUTSIDE) if name in lines}

    @cached_property
    def cpu(self) -> Stack | None:
        """Busy cores by group."""
        layers = self._stack(self.cpu_lines)
        if not any(line.any() for line in layers.values()):
            return None
        cores = sum(int(node.get("num_cpus") or 0) for node in self.run.nodes.values())
        label = f"{cores} CPUs in all" if len(self.run.nodes) > 1 else f"{cores} CPUs"
        return Stack(layers, float(cores) or None, label, held.asked(self.run, self.grid, "threads_asked"))

    @cached_property
    def memory(self) -> Stack | None:
        """Memory in use by group, highest of each bin, in bytes."""
        lines = held.memory_by_group(self.run, self.grid, self.interval_s, self._drawn, self._processes)
        layers = self._stack(lines)
        if not layers:
            return None
        total = sum(float(node.get("memory_bytes") or 0) for node in self.run.nodes.values())
        label = f"{human_bytes(total)} of the {'nodes' if len(self.run.nodes) > 1 else 'node'}"
        asked = held.asked(self.run, self.grid, "memory_asked_bytes")
        missing = (self.running > 0) & (np.sum(list(layers.values()), axis=0) <= 0)
        return Stack(layers, total or None, label if total else "", asked, missing)

    def transfer(self, stream: str, inward: str, outward: str) -> tuple[Floats, Floats] | None:
        """Return summed (read, written) bytes a second of two counters, or None where nothing moved."""
        key = stream, inward, outward
        if key not in self._moved:
            samples = self._processes if stream == "process" else self.run.samples(stream)
            lines = timeline.total_rates(samples, (inward, outward), self.grid, self.interval_s)
            zero = np.zeros(self.grid.bins)
            read, written = (zero if line is None else line for line in lines)
            self._moved[key] = (read, written) if read.any() or written.any() else None
        return self._moved[key]

    @cached_property
    def node_cpu(self) -> dict[str, Floats]:
        """Percent of the CPUs of each node that were busy, NaN where there is no sample.

        A node without any is there too, unless there are no such samples at all.
        """
        lines = timeline.by_series(self.run.samples("system"), "cpu_ns", self.grid, self.interval_s, counter=True)
        out: dict[str, Floats] = {}
        for (node, _), line in lines.items():
            facts = self.run.nodes.get(node, {})
            cpus = facts.get("num_system_cpus") or facts.get("num_cpus")
            if cpus:
                out[node] = np.minimum(line / 1e9 / int(cpus) * 100, 100.0)
        for node in self.silent if out else ():
            out.setdefault(node, np.full(self.grid.bins, np.nan))
        return out

    @cached_property
    def silent(self) -> list[str]:
        """Nodes that ran attempts or are known, and left no samples."""
        seen = {str(node) for stream in ("process", "system") for node in _nodes(self.run.samples(stream))}
        return sorted({*self.run.nodes, *map(str, _nodes(self.run.tasks))} - seen - {""})

    @cached_property
    def gpus(self) -> dict[str, Floats]:
        """Percent of the time that each device was busy, NaN where there is no sample."""
        samples = self.run.samples("system")
        out: dict[str, Floats] = {}
        for column in samples.columns:
            device = _DEVICE.fullmatch(str(column))
            if device is None:
                continue
            lines = timeline.by_series(samples, device[0], self.grid, self.interval_s, counter=True)
            for (node, _), line in lines.items():
                out[f"{node} GPU {device[1]}"] = np.minimum(line / 1e7, 100.0)
        return dict(sorted(out.items()))

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
        columns = [name for name in ("node", "pid", "worker") if name in tasks]
        tasks = tasks[columns].drop_duplicates()
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


def _nodes(frame: pd.DataFrame) -> list[str]:
    return list(frame["node"].dropna().unique()) if "node" in frame else []
