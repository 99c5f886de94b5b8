"""What all benchmarks share: sizes, rows of the table, medians with quartiles, ratios with their intervals."""

from __future__ import annotations

import random
import statistics
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Row", "Size", "TINY", "USUAL", "FULL", "NotPossible", "compiled", "interval_of", "program", "row", "spread"]

HERE = Path(__file__).resolve().parent


class NotPossible(Exception):
    """A figure cannot be had on this machine; the message says why, and stands in the table."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes
    ----------
    trees : tuple of int
        Processes of the trees that are watched.
    rounds : int
        Of each alternation between ours and what it is measured against.
    round_s, schedule_s, hold_s, cost_s : float
        Seconds: of a round at 20 Hz, of the schedule at 10 Hz and the held GIL in it, of the own cost at 1 Hz.
    passes : int
        Back to back, in a round.
    pairs : int
        Of a workload with and without.
    work : float
        Its length, as a part of the usual one.
    peers : bool
        Install and measure the packages that jumper is compared with.
    seeds : int
        Random orders of each trace.
    """

    trees: tuple[int, ...]
    rounds: int
    round_s: float
    passes: int
    schedule_s: float
    hold_s: float
    cost_s: float
    pairs: int
    work: float
    peers: bool = True
    seeds: int = 5


TINY = Size((5,), 2, 0.3, 3, 0.6, 0.2, 1.2, 2, 0.05, peers=False, seeds=1)
USUAL = Size((100, 300, 1000), 7, 1.5, 20, 30.0, 5.0, 20.0, 20, 1.0)
FULL = Size((100, 300, 1000), 15, 3.0, 40, 60.0, 5.0, 60.0, 40, 1.0, seeds=20)


@dataclass(frozen=True)
class Row:
    """One line of the table: texts, and whether the figure is within its limit (None: it has none)."""

    figure: str
    ours: str
    against: str
    ratio: str
    limit: str
    reached: bool | None = None


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return median, lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def spread(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Return a median with its quartiles.

    Examples
    --------
    >>> spread([1, 2, 3, 4, 5], 1, " us")
    '3.0 us (2.0 to 4.0)'
    """
    middle, low, high = quartiles(values)
    return f"{middle:.{digits}f}{unit} ({low:.{digits}f} to {high:.{digits}f})"


def row(
    figure: str,
    ours: Sequence[float],
    against: Sequence[float],
    unit: str,
    *,
    most: float | None = None,
    least: float | None = None,
    digits: int = 0,
) -> Row:
    """Return a row of two alternating series and the ratio of their pairs.

    Parameters
    ----------
    figure : str
    ours, against : sequence of float
        As many of each, taken in turn.
    unit : str
    most : float, optional
        Limit of ours / against.
    least : float, optional
        Limit of against / ours, the other way round.
    digits : int
        Of the two series.
    """
    pairs = list(zip(ours, against, strict=True))
    ratios = [b / a if least is not None else a / b for a, b in pairs]
    middle = statistics.median(ratios)
    limit, reached = "", None
    if most is not None:
        limit, reached = f"at most {most:g}", middle <= most
    elif least is not None:
        limit, reached = f"at least {least:g} times cheaper", middle >= least
    return Row(figure, spread(ours, digits, unit), spread(against, digits, unit), spread(ratios), limit, reached)


def interval_of(values: Sequence[float], draws: int = 2000, seed: int = 1) -> tuple[float, float, float]:
    """Return the median of values and its 95 % interval by bootstrap.

    Examples
    --------
    >>> interval_of([1.0, 1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return statistics.median(values), medians[int(draws * 0.025)], medians[int(draws * 0.975) - 1]


_built: dict[str, Path] = {}
_folder = tempfile.TemporaryDirectory(prefix="jumper-bench-")


def compiled(name: str) -> Path:
    """Return the program that is built from ``<name>.c`` beside this file; others may execute it.

    Raises
    ------
    NotPossible
        Where it cannot be built.
    """
    if name not in _built:
        folder = Path(_folder.name)
        folder.chmod(0o755)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()
        command = [*compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-o", str(folder / name), str(HERE / f"{name}.c")]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise NotPossible(f"no compiler ({error})") from error
        if done.returncode:
            raise NotPossible(f"{name}.c does not compile: {done.stderr.strip()[:200]}")
        _built[name] = folder / name
    return _built[name]


@contextmanager
def program(command: Sequence[str | Path], uid: int | None = None) -> Iterator[tuple[IO[bytes], IO[bytes], int]]:
    """Have a program running that answers on its standard output and ends with its standard input.

    Parameters
    ----------
    command : sequence
    uid : int, optional
        Whose it shall be.
    """
    owner = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **owner)  # type: ignore[call-overload]
    try:
        yield process.stdin, process.stdout, process.pid
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
