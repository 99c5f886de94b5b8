"""What measuring costs: `make bench` runs each benchmark and prints its table.

A benchmark is one function that returns the rows of its table, in pairs: with and without.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

import jumper

ROUNDS = 5
BURN = "import time\nwhile time.process_time() < 2: pass"
SLEEP = [sys.executable, "-I", "-c", "import time; time.sleep(3)"]

Rows = list[tuple[str, ...]]


def measured(folder: Path, interval: str, command: list[str]) -> list[str]:
    """Return a command line that runs the command under jumper."""
    return [sys.executable, "-m", "jumper.cli", "run", "--interval", interval, "-o", str(folder), "--", *command]


def wall_s(command: list[str]) -> float:
    """Return the seconds that a command takes."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def a_command_of_two_seconds() -> Rows:
    """Wall time of a command that burns 2 s of CPU, without and with `jumper run`."""
    command = [sys.executable, "-I", "-c", BURN]
    rows: Rows = [("", "median s", "slowest s")]
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, Callable[[int], list[str]]] = {
            "without": lambda _: command,
            "interval 1 s": lambda n: measured(Path(folder, f"a{n}"), "1", command),
            "interval 0.1 s": lambda n: measured(Path(folder, f"b{n}"), "0.1", command),
        }
        for name, case in cases.items():
            times = [wall_s(case(n)) for n in range(ROUNDS)]
            rows.append((name, f"{statistics.median(times):.3f}", f"{max(times):.3f}"))
    return rows


@contextmanager
def sleepers(count: int) -> Iterator[None]:
    """Have so many idle processes of this user."""
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def a_tick() -> Rows:
    """The monitor's own CPU time a tick, by the number of the user's processes beside it."""
    rows: Rows = [("processes beside", "ticks", "CPU ms a tick", "latest start ms")]
    for count in (0, 100, 300):
        with sleepers(count), tempfile.TemporaryDirectory() as folder:
            subprocess.run(measured(Path(folder, "run"), "0.1", SLEEP), check=True)
            own = jumper.open_run(Path(folder, "run")).samples("monitor")
        ticks = int(own["ticks"].iloc[-1] - own["ticks"].iloc[0])
        cpu_ms = (own["cpu_ns"].iloc[-1] - own["cpu_ns"].iloc[0]) / 1e6
        rows.append((str(count), str(ticks), f"{cpu_ms / ticks:.2f}", f"{own['late_ns'].max() / 1e6:.2f}"))
    return rows


BENCHMARKS: tuple[Callable[[], Rows], ...] = (a_command_of_two_seconds, a_tick)


def main() -> None:
    """Run all benchmarks and print their tables."""
    console = Console()
    console.print(
        f"jumper {jumper.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {ROUNDS} rounds"
    )
    for benchmark in BENCHMARKS:
        head, *rows = benchmark()
        console.print(f"\n{benchmark.__doc__}")
        table = Table(*head, box=None)
        for row in rows:
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    main()
