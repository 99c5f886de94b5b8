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
from jumper.analysis.backtest import Attempts, Replay, Trial, replay

VARIABLE = "JUMPER_TRACES"
#: of what may fail at most, learned first; fewest attempts of a group
MAY_FAIL, LEARN, LEAST = 0.01, 0.3, 34
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
    totals: list[list[tuple[float, float]]] = []
    for file in files:
        processes = groups(file)
        found = [replayed(processes, FIRST_SEED + seed) for seed in range(size.seeds)]
        ours, theirs = [], []
        for replays in found:
            ours.append((sum(r.advised.wasted_gb_h for r in replays), sum(r.advised.failed for r in replays)))
            theirs.append((sum(r.highest.wasted_gb_h for r in replays), sum(r.highest.failed for r in replays)))
        attempts = sum(r.advised.attempts for r in found[0])
        totals.append([(a[0], b[0]) for a, b in zip(ours, theirs, strict=True)])
        ratios = [a / b for a, b in totals[-1]]
        failed = max(a[1] / attempts for a in ours)
        yield Row(
            f"advice on {file.stem.removeprefix('trace_')}, {attempts:,} attempts: GB hours wasted, attempts failed",
            _spread(ours), _spread(theirs), _range(ratios), "at most 1, 1 % failed",
            max(ratios) <= 1 and failed <= MAY_FAIL,
        )  # fmt: skip
    sums = [(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)) for pairs in zip(*totals, strict=True)]
    ratios = [a / b for a, b in sums]
    yield Row(
        f"advice on all {len(files)}, {size.seeds} seeds: GB hours wasted", _range([a for a, _ in sums], 0),
        _range([b for _, b in sums], 0), _range(ratios), "at most 0.75", max(ratios) <= 0.75,
    )  # fmt: skip


def _range(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _spread(values: list[tuple[float, int]]) -> str:
    failed = [failed for _, failed in values]
    return f"{_range([wasted for wasted, _ in values], 0)}; failed {_range(failed, 0)}"
