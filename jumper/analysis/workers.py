"""Advice on Dask workers: how many a node, of how many threads and how much memory, from the tasks that ran."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.needs import ENOUGH, needs
from jumper.analysis.sizing import LEAST_BYTES
from jumper.analysis.summary import lists
from jumper.analysis.tables import RunTables, floats, texts, times
from jumper.analysis.units import counted, human_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Process memory over a Dask worker's limit at which it begins to spill.
DASK_SPILL = 0.7


@dataclass(frozen=True, slots=True)
class DaskAdvice:
    """Workers for nodes of one size.

    Attributes
    ----------
    nodes : tuple of str
    workers : int
        Worker processes a node.
    threads : int
        Threads of each.
    memory_limit_bytes : float
        Of each.
    evidence : str
        The figures that it follows from.
    """

    nodes: tuple[str, ...]
    workers: int
    threads: int
    memory_limit_bytes: float
    evidence: str


def advise_dask(run: RunTables) -> list[DaskAdvice]:
    """Return worker settings for each kind of node; none where too few attempts were measured.

    The memory of a worker is what its attempts at once held at most, so that it stays below
    the part of the limit at which workers spill; its threads are as many as there were.
    Where memory ended an attempt, a worker gets no less than what its group is advised to ask for.
    Cores that an attempt keeps busy say how many attempts a node should run at once.
    """
    tasks = run.tasks[run.tasks["kind"] == "dask"] if "kind" in run.tasks else run.tasks[:0]
    wall, cpu, peak = (floats(tasks, name) for name in ("wall_s", "cpu_s", "memory_peak_bytes"))
    worker = np.array(texts(tasks, "worker"), dtype=object)
    truncated = np.array(["truncated" in flags for flags in lists(tasks, "flags")], dtype=bool)
    good = np.isfinite(wall) & np.isfinite(cpu) & np.isfinite(peak) & (worker != "") & ~truncated
    if good.sum() < ENOUGH or not wall[good].sum() > 0:
        return []
    cores = float(cpu[good].sum() / wall[good].sum())
    lanes = pd.Series(floats(tasks, "thread")).groupby(worker).transform("nunique").to_numpy()
    threads = max(1, int(np.median(lanes[good])))  # a worker that one task ended showed only one of its threads
    highest = float(peak[good].max())
    dead = _dead(tasks)
    kinds: dict[tuple[int, int], list[str]] = {}
    for name, node in run.nodes.items():
        size = _size(node)
        if size is not None:
            kinds.setdefault(size, []).append(name)
    found = []
    for (cpus, memory), names in sorted(kinds.items()):
        at_once = max(1, min(2 * cpus, round(cpus / max(cores, 1e-3))))
        each = max(highest / DASK_SPILL, dead or 0, LEAST_BYTES)
        width = min(threads, at_once)
        workers = max(1, min(at_once // width, int(memory // each)))
        evidence = (
            f"{counted(int(good.sum()), 'task')} on {counted(_at_once(run, tasks, worker), 'worker')} of "
            f"{counted(threads, 'thread')} kept {cores:.2f} cores busy each; "
            f"the fullest worker held {human_bytes(highest)}"
        )
        if dead:
            evidence += f"; memory ended tasks that are advised to ask for {human_bytes(dead)}"
        if each > memory:
            evidence += f", and such a node has {human_bytes(memory)}"
        found.append(DaskAdvice(tuple(names), workers, width, min(each, memory / workers), evidence))
    return found


def _dead(tasks: pd.DataFrame) -> float | None:
    """Return the most that a group of which memory ended tasks is advised to ask for, in bytes; None without one."""
    needed, groups = needs(tasks), np.array(texts(tasks, "group"), dtype=object)
    ended = set(groups[needed.open & np.isfinite(needed.bytes)])
    return max((needed.amount(np.flatnonzero(groups == group)) for group in ended), default=None)


def _at_once(run: RunTables, tasks: pd.DataFrame, worker: NDArray[np.object_]) -> int:
    """Return how many workers with tasks lived at one moment at most: one that was restarted is no second one.

    A worker lives from its first task to its last, and as long as the scheduler saw it.
    """
    begun, ended = times(tasks, "start_ns"), times(tasks, "stop_ns")
    named = worker != ""
    start = pd.Series(begun[named]).groupby(worker[named]).min().to_dict()
    stop = pd.Series(np.maximum(begun, ended)[named]).groupby(worker[named]).max().to_dict()
    events = run.events
    for kind, at, detail in zip(*(texts(events, name) for name in ("kind", "time_ns", "detail")), strict=True):
        name = json.loads(detail or "{}").get("worker")
        if name in start and kind == "worker-joined":
            start[name] = min(start[name], int(at))
        elif name in stop and kind == "worker-left":
            stop[name] = max(stop[name], int(at))
    changes = sorted([*((at, 1) for at in start.values()), *((at, -1) for at in stop.values())])
    return int(max(np.cumsum([change for _, change in changes]), default=0))


def _size(node: Any) -> tuple[int, int] | None:
    cpus, memory = node.get("num_cpus"), node.get("memory_bytes")
    return (int(cpus), int(memory)) if cpus and memory else None
