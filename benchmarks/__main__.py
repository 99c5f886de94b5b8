"""`make bench`: run the benchmarks, print their figures as one table, and write it into a document when asked."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import jumper
from benchmarks import bench_advice, bench_cost, bench_peer, bench_schedule, bench_start, bench_tick
from benchmarks.measuring import FULL, TINY, USUAL, NotPossible, Row, Size

MARKS = re.compile(r"<!-- from benchmarks -->\n.*?<!-- end -->", re.DOTALL)
HEAD = ("figure", "jumper", "against", "ratio", "must reach", "reached")
#: of the table where there is no terminal
WIDTH = 180
SIZES = {"tiny": TINY, "usual": USUAL, "full": FULL}


def _optional(module: str, function: str, extra: str = "dask") -> Callable[[Size], Iterator[Row | str]]:
    def measured(size: Size) -> Iterator[Row | str]:
        try:
            found = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        except ImportError as error:
            raise NotPossible(f"{error}; pip install 'jumper-workflows[{extra}]'") from error
        yield from found(size)

    return measured


#: name -> what yields rows, and in between, where that takes long, what it does now
BENCHMARKS: dict[str, Callable[[Size], Iterator[Row | str]]] = {
    "tick": bench_tick.ticks,
    "peer": bench_peer.peers,
    "schedule": bench_schedule.on_time,
    "cost": bench_cost.own_cost,
    "slowdown": bench_cost.slowdown,
    "agent": bench_start.agents,
    "run": bench_start.runs,
    "dask": _optional("bench_dask_boundary", "boundary"),
    "dask-tasks": _optional("bench_dask_tasks", "paired"),
    "dask-scheduler": _optional("bench_dask_scheduler", "at_the_scheduler"),
    "snakemake": _optional("bench_snakemake", "costs", "snakemake"),
    "advice": bench_advice.traces,
    "report": _optional("bench_report", "pages", "report"),
    "merge": _optional("bench_report", "merges", "report"),
}


def measure(names: list[str], size: Size, console: Console) -> list[Row]:
    """Return the rows of benchmarks; one that cannot be had says why in its row."""
    rows: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        for name in progress.track(names, description="measuring"):
            try:
                for said in BENCHMARKS[name](size):
                    if isinstance(said, Row):
                        rows.append(said)
                    words = said.figure if isinstance(said, Row) else said
                    progress.update(progress.task_ids[0], description=words[:60])
                    if not console.is_terminal:
                        print(words, file=sys.stderr, flush=True)
            except NotPossible as error:
                rows.append(Row(name, "", "", f"not measured: {error}", ""))
    return rows


def machine(load: tuple[float, float, float]) -> str:
    """Return what the figures were taken on, in words, and the load before."""
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return (
        f"jumper {jumper.__version__}, {platform.python_implementation()} {platform.python_version()}, {system}, "
        f"{os.cpu_count()} virtual CPUs, {datetime.now(UTC):%Y-%m-%d}, load before it {load[0]:.1f}"
    )


def reached(row: Row) -> str:
    """Return whether a row is within its limit, in a word."""
    return "" if row.reached is None else "yes" if row.reached else "no"


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row."""
    return row.figure, row.ours, row.against, row.ratio, row.limit, reached(row)


def markdown(rows: list[Row], words: str) -> str:
    """Return the table as Markdown."""
    lines = [words, "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(row))} |" for row in rows]
    return "\n".join(lines)


def write(path: Path, table: str) -> None:
    """Put the table between the marks of a document.

    Raises
    ------
    ValueError
        Where it has none.
    """
    text = path.read_text(encoding="utf-8")
    if not MARKS.search(text):
        raise ValueError(f"{path} has no marks for the table: <!-- from benchmarks --> and <!-- end -->")
    path.write_text(MARKS.sub(lambda _: f"<!-- from benchmarks -->\n{table}\n<!-- end -->", text), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run benchmarks and print their table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of them only: {', '.join(BENCHMARKS)}")
    parser.add_argument("--full", dest="size", action="store_const", const="full", help="more and longer rounds")
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="whether they run at all")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the table into this document")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    console, load, began = Console(width=None if sys.stdout.isatty() else WIDTH), os.getloadavg(), time.monotonic()
    rows = measure(given.names or list(BENCHMARKS), SIZES[given.size or "usual"], console)
    table = Table(*HEAD, title=machine(load), caption=f"medians (quartiles); {time.monotonic() - began:.0f} s")
    for row in rows:
        table.add_row(*cells(row), style="red" if row.reached is False else None)
    console.print(table)
    if given.write:
        write(given.write, markdown(rows, machine(load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
