"""Findings: what stands out in a run, each with its evidence and what to do; pure functions of tables.

Findings about memory read ``memory_peak_bytes`` only. docs/findings.md explains each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jumper.analysis.findings import cores, coverage, failures, gpu, idle, memory, network, pressure, slowness
from jumper.analysis.findings.finding import Finding, Severity, hours, listed, many
from jumper.analysis.findings.thresholds import MOST
from jumper.analysis.findings.view import View
from jumper.analysis.tables import RunTables

__all__ = ["Finding", "Severity", "findings"]

_RANK = {"high": 0, "medium": 1, "info": 2}
#: Memory of a core where no node says it: what a GB hour is held against a core hour by.
_GB_A_CORE = 4.0

#: A new finding is one function and one line here.
RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (
    failures.failed,
    failures.killed,
    memory.near,
    memory.far,
    memory.swapping,
    memory.leaks,
    pressure.pressure,
    pressure.kills,
    cores.threads,
    cores.crowded,
    gpu.gpus,
    slowness.stragglers,
    slowness.io,
    network.bound,
    idle.idle,
    coverage.missing,
    coverage.gaps,
    coverage.own_cost,
)


def findings(run: RunTables) -> list[Finding]:
    """Return all findings of a run: the most severe first, among equals the one that cost most.

    A GB hour weighs as much of a core hour as it holds of the memory that a core of the
    run's nodes has.

    Parameters
    ----------
    run : RunTables

    Examples
    --------
    >>> import jumper                                                       # doctest: +SKIP
    >>> [found.subject for found in findings(jumper.open_run("RUN"))]       # doctest: +SKIP
    ['align', 'n3']
    """
    view = View(run)
    per_gb = 1 / _gb_a_core(run)

    def weight(found: Finding) -> tuple[int, float]:
        return _RANK[found.severity], -((found.core_hours or 0.0) + (found.gb_hours or 0.0) * per_gb)

    return sorted((found for rule in RULES for found in _folded(sorted(rule(view), key=weight))), key=weight)


def _folded(found: list[Finding]) -> Iterator[Finding]:
    """Yield the first findings of a rule, and what is beyond in one line."""
    most = int(MOST)
    yield from found[:most]
    rest = found[most:]
    if rest:
        cost = sum(one.core_hours or 0.0 for one in rest)
        spent = f", {hours(cost, 'core')} in all" if 3600 * cost >= 1 else ""
        text = f"like these{spent}: {listed(list(dict.fromkeys(one.subject for one in rest)))}."
        yield Finding(rest[0].severity, many(len(rest), "more finding"), text, name=rest[0].name)


def _gb_a_core(run: RunTables) -> float:
    sizes = [(node.get("memory_bytes"), node.get("num_cpus")) for node in run.nodes.values()]
    known = [(float(memory), float(cpus)) for memory, cpus in sizes if memory and cpus]
    total = sum(cpus for _, cpus in known)
    return sum(memory for memory, _ in known) / 1e9 / total if total else _GB_A_CORE
