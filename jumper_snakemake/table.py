"""One table of all attempts of all rules with the columns of a `benchmark:` file: `benchmarks.tsv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.store.rundir import write_atomically

if TYPE_CHECKING:
    import pandas as pd

#: Snakemake's own, in its order; what only a benchmarked job has is NA
STOCK = ("s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time")
#: who it was
OURS = ("rule", "wildcards", "attempt", "node", "external_id", "state", "exit_code", "threads", "flags")
#: columns of the tasks that they are made of
NEEDED = frozenset(
    ("wall_s", "cpu_s", "rss_peak_bytes", "memory_peak_bytes", "read_bytes", "write_bytes", "group", "wildcards",
     "attempt_id", "node", "external_id", "state", "exit_code", "threads_asked", "flags")
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
    """Yield the rows as text; memory and I/O in MiB, the load in percent of one core, as Snakemake has them.

    Examples
    --------
    >>> clock(3723.9)
    '1:02:03'
    """
    for task in tasks[[name for name in tasks if name in NEEDED]].to_dict("records"):
        known = {name: value for name, value in task.items() if not _is_null(value)}
        wall, cpu = known.get("wall_s"), known.get("cpu_s")
        load = None if not wall or cpu is None else 100 * cpu / wall
        yield [
            _number(wall, 4),
            "NA" if wall is None else clock(wall),
            _mib(known.get("rss_peak_bytes")),
            "NA",
            "NA",
            _mib(known.get("memory_peak_bytes")),
            _mib(known.get("read_bytes")),
            _mib(known.get("write_bytes")),
            _number(load),
            _number(cpu),
            str(known.get("group", "")),
            str(known.get("wildcards", "{}")),
            str(known.get("attempt_id", "")),
            *(str(known.get(name, "NA")) for name in ("node", "external_id", "state", "exit_code", "threads_asked")),
            " ".join(map(str, known.get("flags", ()))),
        ]


def clock(seconds: float) -> str:
    """Return seconds as Snakemake writes them: hours, minutes and seconds, days in front."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{days} day{'s' if days != 1 else ''}, {text}" if days else text


def _is_null(value: Any) -> bool:
    return not isinstance(value, (list, tuple)) and (
        value is None or (not hasattr(value, "__len__") and value != value)
    )


def _mib(value: float | None) -> str:
    return _number(None if value is None else value / MIB)


def _number(value: float | None, digits: int = 2) -> str:
    return "NA" if value is None else f"{float(value):.{digits}f}"
