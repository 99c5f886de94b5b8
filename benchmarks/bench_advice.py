"""Advice on memory against real runs: what asking for the highest use seen + 5 % would have wasted, and what it does.

Reads traces of Nextflow (``*.csv``) from the folder that ``JUMPER_TRACES`` names; those published with
the Sizey paper (Bader et al., CLUSTER 2024) have the columns.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measuring import NotPossible, Row, Size
from jumper.analysis.backtest import Attempts, Outcome, Replay, Trial, replay

VARIABLE = "JUMPER_TRACES"
#: of what may fail at most, learned first; fewest attempts of a group
MAY_FAIL, LEARN, LEAST = 0.01, 0.3, 34
#: part of the waste for the highest seen + 5 % that all traces together may waste
MOST = 0.75
#: other seeds than those on which the rules were made
FIRST_SEED = 1000


def groups(path: Path) -> list[pd.DataFrame]:
    """Return the attempts of each process that has enough, all with a runtime and memory."""
    trace = pd.read_csv(path)
    trace = trace[trace["rss"] > 0]
    return [rows for _, rows in trace.groupby("process") if len(rows) >= LEAST and (rows["realtime"] > 0).all()]


def replayed(processes: list[pd.DataFrame], seed: int) -> list[Replay]:
    """Learn on a random part, then one by one over the rest, in a random order."""
    chance = np.random.default_rng(seed)
    trials = []
    for rows in processes:
        rows = rows.iloc[chance.permutation(len(rows))]
        order = np.sort(chance.choice(10**9, len(rows), replace=False))
        used, hours, inputs, asked = (rows[name].to_numpy("float64") for name in ("rss", "realtime", "rchar", "memory"))
        trials.append(Trial(Attempts(used, hours / 3.6e6, inputs, asked, order)))
    return replay(trials, MAY_FAIL, LEARN)


def traces(size: Size) -> Iterator[Row]:
    """Yield a row for each trace, and one for all of them."""
    folder = os.environ.get(VARIABLE)
    files = sorted(Path(folder).glob("*.csv")) if folder else []
    if not files:
        raise NotPossible(f"no traces: {VARIABLE} names no folder with *.csv")
    totals: list[list[tuple[Outcome, Outcome]]] = []
    for file in files:
        processes = groups(file)
        found = [replayed(processes, FIRST_SEED + seed) for seed in range(size.seeds)]
        pairs = [(_sum([r.advised for r in replays]), _sum([r.highest for r in replays])) for replays in found]
        totals.append(pairs)
        often = statistics.mean(ours.failed / ours.attempts for ours, _ in pairs)
        name = file.stem.removeprefix("trace_")
        yield _row(f"advice on {name}, {pairs[0][0].attempts:,} attempts", pairs, 1.0, often)
    pairs = [
        (_sum([ours for ours, _ in seed]), _sum([theirs for _, theirs in seed])) for seed in zip(*totals, strict=True)
    ]
    often = max(ours.failed / ours.attempts for ours, _ in pairs)
    yield _row(f"advice on all {len(files)}, {size.seeds} seeds", pairs, MOST, often)


def _row(figure: str, pairs: list[tuple[Outcome, Outcome]], most: float, often: float) -> Row:
    """Return waste and failures of the advice against the highest seen + 5 %; the worst seed decides on the waste."""
    ratios = [ours.wasted_gb_h / theirs.wasted_gb_h for ours, theirs in pairs]
    texts = [
        f"{_range([o.wasted_gb_h for o in outcomes])}; {_range([o.failed for o in outcomes])} failed"
        for outcomes in zip(*pairs, strict=True)
    ]
    limit = f"at most {most:g}, {MAY_FAIL:.0%} failed"
    reached = max(ratios) <= most and often <= MAY_FAIL
    return Row(f"{figure}: GB hours wasted", texts[0], texts[1], _range(ratios, 2), limit, reached)


def _sum(outcomes: list[Outcome]) -> Outcome:
    return sum(outcomes[1:], outcomes[0])


def _range(values: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
