"""Advice to paste: a table for a terminal, a Snakemake profile, `resources:` lines, Dask worker settings, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jumper.analysis.sizing import MARGIN
from jumper.analysis.units import digits, human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from jumper.analysis.advice import Advice
    from jumper.analysis.backtest import Outcome
    from jumper.analysis.sizing import Rule
    from jumper.analysis.workers import DaskAdvice

#: Version of the document of :func:`as_json`.
SCHEMA = 1
#: Times that an attempt may be repeated where the first one may fail for lack of memory.
RETRIES = 3
_MIB = 2**20


def mem_mb(rule: Rule, retry_bytes: float | None = None) -> str:
    """Return a rule as a Python expression of Snakemake's ``input`` and ``attempt``, in MB.

    Parameters
    ----------
    rule : Rule
    retry_bytes : float, optional
        Where the first attempt may fail: what the second one gets; each later one gets double.

    Examples
    --------
    >>> import numpy as np
    >>> from jumper.analysis.sizing import Rule
    >>> none = np.empty(0)
    >>> mem_mb(Rule("constant", none, np.array([3.2e9])))
    '3200'
    >>> mem_mb(Rule("line", none, np.array([1e8]), 2.0, 2**20))
    'max(103, 100 + 2.098 * input.size_mb)'
    >>> mem_mb(Rule("steps", np.array([2.0**30]), np.array([1e8, 3e9])), 4e9)
    '(100 if input.size_mb < 1024 else 3000) if attempt == 1 else 4000 * 2 ** (attempt - 2)'
    """
    if rule.shape == "line":
        least = _mb(float(rule.bytes(_array(rule.lowest))[0]))
        first = f"max({least}, {_mb(rule.levels[0])} + {_ceiled(rule.slope * _MIB / 1e6)} * input.size_mb)"
    else:
        heights = [_mb(level) for level in rule.levels]
        steps = zip(heights, heights[1:], rule.edges, strict=False)
        lower = [f"{height} if input.size_mb < {_mib(edge)} else" for height, after, edge in steps if height != after]
        first = " ".join([*lower, str(heights[-1])])
    if retry_bytes is None:
        return first
    return f"{f'({first})' if ' if ' in first else first} if attempt == 1 else {_mb(retry_bytes)} * 2 ** (attempt - 2)"


def snakemake_profile(advice: Sequence[Advice]) -> str:
    """Return a Snakemake profile (``config.yaml``) that sets what is advised for each rule.

    Source: "Profiles" in Snakemake's documentation, ``--set-resources``, ``--set-threads``.
    """
    lines: list[str] = []
    if any(item.may_fail and item.memory for item in advice):
        lines += [f"retries: {RETRIES}"]
    threads = [item for item in advice if item.threads]
    if threads:
        lines += ["set-threads:", *(f"  {json.dumps(item.group)}: {item.threads}" for item in threads)]
    resources = [(item, pairs) for item in advice if (pairs := list(_resources(item)))]
    if resources:
        lines.append("set-resources:")
    for item, pairs in resources:
        lines.append(f"  {json.dumps(item.group)}:")
        lines += [f"    # {line}" for line in _evidence(item)]
        lines += [f"    {name}: {json.dumps(value) if ' ' in value else value}" for name, value in pairs]
    return "\n".join([*_head(advice), *lines]) + "\n"


def resources_lines(advice: Sequence[Advice]) -> str:
    """Return ``threads:`` and ``resources:`` of each rule, to paste into a Snakefile."""
    lines = _head(advice)
    for item in advice:
        pairs = list(_resources(item))
        if not pairs and not item.threads:
            continue
        lines += ["", f"# rule {json.dumps(item.group)[1:-1]}", *(f"#   {line}" for line in _evidence(item))]
        if item.threads:
            lines.append(f"    threads: {item.threads}")
        if item.may_fail and item.memory:
            lines.append(f"    retries: {RETRIES}")
        if pairs:
            lines.append("    resources:")
        for name, value in pairs:
            known = [word for word in ("input", "attempt") if word in value]
            lines.append(f"        {name}={f'lambda {_arguments(known)}: {value}' if known else value},")
    return "\n".join(lines) + "\n"


def dask_lines(advice: Sequence[DaskAdvice]) -> str:
    """Return commands that start workers with what is advised, one for each kind of node."""
    lines: list[str] = []
    for item in advice:
        lines += [f"# on {', '.join(item.nodes[:5])}{' …' if len(item.nodes) > 5 else ''}: {item.evidence}"]
        limit = f"{math.ceil(item.memory_limit_bytes / _MIB)}MiB"
        lines += [f"dask worker SCHEDULER --nworkers {item.workers} --nthreads {item.threads} --memory-limit {limit}"]
    return "\n".join(lines or ["# no advice: too few Dask tasks with CPU time and a memory peak"]) + "\n"


def as_json(advice: Sequence[Advice], may_fail: float) -> dict[str, Any]:
    """Return advice as one JSON document.

    Returns
    -------
    dict
        ``schema`` (1), ``may_fail``, ``groups``: the attributes of
        :class:`~jumper.analysis.advice.Advice`; ``memory`` has ``shape``, ``edges``, ``levels``
        (bytes), ``slope`` (bytes a byte), ``lowest`` and ``mem_mb``, the expression.
    """
    return {"schema": SCHEMA, "may_fail": may_fail, "groups": [_group(item) for item in advice]}


class AdviceTable:
    """Advice as a table that rich prints, with the back-test below it."""

    def __init__(self, advice: Sequence[Advice]) -> None:
        self.advice = advice

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, what the back-test says, and what was left out."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        heads = ("group", "attempts", "memory used", "asked", "ask for", "threads", "runtime")
        rows = [_cells(item) for item in self.advice]
        kept = [i for i, head in enumerate(heads) if i < 2 or head == "ask for" or any(row[i] for row in rows)]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for i in kept:
            table.add_column(heads[i], justify="right" if 0 < i < 4 else "left", no_wrap=0 < i < 4, overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[i]) for i in kept))
        yield table
        yield Text()
        for line in _tested(self.advice):
            yield Text(line)
        notes: dict[str, list[str]] = {}
        for item in self.advice:
            for note in item.notes:
                notes.setdefault(note, []).append(item.group or "(no name)")
        for note, groups in notes.items():
            more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
            yield Text(f"{', '.join(groups[:3])}{more}: {note}", style="dim")


def _cells(item: Advice) -> tuple[str, ...]:
    threads = ""
    if item.threads:
        threads = f"{item.threads} instead of {item.threads_asked} ({digits(item.cores or 0)} busy)"
    return (
        item.group or "(no name)",
        f"{item.attempts:,}",
        human_bytes(item.highest_bytes),
        human_bytes(item.asked_bytes),
        _words(item.memory),
        threads,
        human_seconds(item.runtime_s),
    )


def _words(rule: Rule | None) -> str:
    if rule is None:
        return ""
    if rule.shape == "line":
        least = human_bytes(float(rule.bytes(_array(rule.lowest))[0]))
        start, follows = human_bytes(abs(rule.levels[0])), f"{rule.slope:.2g} x input"
        return f"{f'{start} + {follows}' if rule.levels[0] >= 0 else f'{follows} - {start}'}, at least {least}"
    lowest, highest = human_bytes(rule.levels.min()), human_bytes(rule.levels.max())
    return highest if rule.shape == "constant" else f"{lowest} to {highest}, by input in {len(rule.levels)} steps"


def _tested(advice: Sequence[Advice]) -> Iterator[str]:
    tested = [item.backtest for item in advice if item.backtest]
    if not tested:
        yield "No group has enough attempts for a back-test."
        return
    advised, highest = (_sum([getattr(item, name) for item in tested]) for name in ("advised", "highest"))
    asked = [item.asked for item in tested if item.asked]
    yield (
        f"Back-test: learned on the first 30 % of {len(tested)} group{'s' * (len(tested) != 1)}, applied to the "
        f"{advised.attempts:,} attempts after them:"
    )
    yield f"  as advised        {_outcome(advised)}"
    yield f"  highest seen + 5 %{_outcome(highest)}"
    if len(asked) == len(tested):
        yield f"  as asked          {_outcome(_sum(asked))}"


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    first, *rest = outcomes
    for outcome in rest:
        first = first + outcome
    return first


def _outcome(outcome: Outcome) -> str:
    share = outcome.failed / outcome.attempts if outcome.attempts else 0.0
    return f"{outcome.wasted_gb_h:10,.2f} GB h wasted, {outcome.failed:,} failures ({share:.2%})"


def _evidence(item: Advice) -> Iterator[str]:
    if item.memory:
        asked = f", asked for {human_bytes(item.asked_bytes)}" if item.asked_bytes else ""
        yield f"memory: {item.attempts:,} attempts used at most {human_bytes(item.highest_bytes)}{asked}"
        yield from (f"memory: {note}" for note in item.notes if "ended at the limit" in note)
    if item.memory and item.backtest:
        test = item.backtest
        against = test.asked or test.highest
        word = "as asked" if test.asked else "for the highest seen + 5 %"
        yield (
            f"back-test over {test.advised.attempts:,} attempts: {digits(test.advised.wasted_gb_h)} GB h wasted and "
            f"{test.advised.failed} failures, instead of {digits(against.wasted_gb_h)} and {against.failed} {word}"
        )
    if item.threads:
        yield f"threads: at most {digits(item.cores or 0)} of {item.threads_asked} cores were busy"
    if item.runtime_s:
        yield f"runtime: the longest took {human_seconds(item.longest_s)}"


def _resources(item: Advice) -> Iterator[tuple[str, str]]:
    if item.memory and item.memory_bytes and item.needed_bytes:
        retry = None
        if item.may_fail:
            retry = MARGIN * item.needed_bytes if item.needed_bytes > item.memory_bytes else 2 * item.memory_bytes
        yield "mem_mb", mem_mb(item.memory, retry)
    if item.runtime_s:
        yield "runtime", str(round(item.runtime_s / 60))


def _head(advice: Sequence[Advice]) -> list[str]:
    if not any(item.memory or item.threads or item.runtime_s for item in advice):
        return ["# no advice: no group has enough attempts; `jumper advise RUN` says what each one lacks"]
    return [f"# {line}" for line in _tested(advice)]


def _arguments(known: list[str]) -> str:
    return ", ".join(["wildcards", *known])


def _group(item: Advice) -> dict[str, Any]:
    from dataclasses import asdict

    rule = item.memory
    plain = {name: getattr(item, name) for name in item.__slots__ if name not in ("memory", "backtest", "notes")}
    memory = None
    if rule is not None:
        memory = {
            "shape": rule.shape, "edges": rule.edges.tolist(), "levels": rule.levels.tolist(), "slope": rule.slope,
            "lowest": rule.lowest, "mem_mb": dict(_resources(item)).get("mem_mb"),
        }  # fmt: skip
    return {**plain, "memory": memory, "backtest": asdict(item.backtest) if item.backtest else None,
            "notes": list(item.notes)}  # fmt: skip


def _mb(value: float) -> int:
    return math.ceil(round(value) / 1e6)


def _mib(value: float) -> str:
    """Return bytes as MiB, rounded down: an input of just this size belongs to the next step."""
    return f"{math.floor(value * 1e6 / _MIB) / 1e6:.6f}".rstrip("0").rstrip(".")


def _ceiled(value: float) -> str:
    """Return a number with four digits, rounded up."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale) / scale:.4g}"


def _array(value: float) -> Any:
    import numpy as np

    return np.array([value])
