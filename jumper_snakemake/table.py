"""One table of all attempts of all rules with the columns of a `benchmark:` file: `benchmarks.tsv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jumper.store.rundir import write_atomically

if TYPE_CHECKING:
    import pandas as pd

#: Snakemake's own, in its order; `max_vms` and `max_uss` are looked at for jobs that have a `benchmark:`
STOCK = ("s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time")
#: who it was
OURS = ("rule", "wildcards", "attempt", "node", "external_id", "state", "exit_code", "threads", "flags")
#: columns of the tasks that they are made of
NEEDED = (
    "wall_s", "cpu_s", "rss_peak_bytes", "vms_peak_bytes", "uss_peak_bytes", "memory_peak_bytes", "read_bytes",
    "write_bytes", "group", "wildcards", "attempt_id", "node", "external_id", "state", "exit_code", "threads_asked",
    "flags",
)  # fmt: skip
MIB = 1 << 20


def write_benchmarks(tasks: pd.DataFrame, path: Path) -> None:
    """Write the table, one row an attempt, by start."""
    text = io.StringIO()
    out = csv.writer(text, delimiter="\t", lineterminator="\n")
    out.writerow([*STOCK, *OURS])
    out.writerows(rows(tasks))
    write_atomically(path, text.getvalue().encode())


def rows(tasks: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the rows as text; memory and I/O in MiB, the load in percent of one core, as Snakemake has them."""
    known = tasks.reindex(columns=list(NEEDED)).astype(object)  # an older run lacks some
    columns = (column.where(column.notna(), None) for _, column in known.items())
    for wall, cpu, rss, vms, uss, memory, read, written, rule, wildcards, attempt, *others, flags in zip(
        *columns, strict=True
    ):
        load = None if not wall or cpu is None else 100 * cpu / wall
        yield [
            _number(wall, 4),
            "NA" if wall is None else clock(wall),
            _mib(rss),
            _mib(vms),
            _mib(uss),
            _mib(memory),
            _mib(read),
            _mib(written),
            _number(load),
            _number(cpu),
            rule,
            wildcards or "{}",
            attempt,
            *("NA" if value is None else str(value) for value in others),
            " ".join(flags),
        ]


def clock(seconds: float) -> str:
    """Return seconds as Snakemake writes them: hours, minutes and seconds, days in front.

    Examples
    --------
    >>> clock(3723.9), clock(90_000)
    ('1:02:03', '1 day, 1:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{days} day{'s' if days != 1 else ''}, {text}" if days else text


def _mib(value: float | None) -> str:
    return _number(None if value is None else value / MIB)


def _number(value: float | None, digits: int = 2) -> str:
    return "NA" if value is None else f"{float(value):.{digits}f}"
