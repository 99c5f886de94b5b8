"""A run in other formats: Perfetto, OpenMetrics, CSV, Snakemake's benchmark table, a picture; piece by piece."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast, get_args

from jumper.report.extra import need
from jumper.schema.errors import JumperError
from jumper.store.rundir import replacing, writing

if TYPE_CHECKING:
    import pandas as pd

    from jumper.analysis.tables import RunTables

Format = Literal["perfetto", "openmetrics", "csv", "benchmark-tsv", "png", "svg"]
Progress = Callable[[int, int], None]
#: What the name of a file says; a ``.gz`` behind it is compression.
SUFFIXES: dict[str, Format] = {
    ".json": "perfetto", ".txt": "openmetrics", ".prom": "openmetrics", ".csv": "csv", ".tsv": "benchmark-tsv",
    ".png": "png", ".svg": "svg",
}  # fmt: skip
#: Rows written at once.
CHUNK = 50_000
_MIB = 2**20
#: Header of Snakemake's benchmark files, with ``--benchmark-extended`` (snakemake.benchmark.BenchmarkRecord).
BENCHMARK = (
    "s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time",
    "jobid", "rule_name", "wildcards", "params", "threads", "cpu_usage", "resources", "input_size_mb",
)  # fmt: skip


def format_of(path: Path) -> Format:
    """Return the format that the name of a file says.

    Raises
    ------
    JumperError
        Where it says none.

    Examples
    --------
    >>> format_of(Path("trace.json.gz")), format_of(Path("run.PNG"))
    ('perfetto', 'png')
    """
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f"{end} is {form}" for end, form in SUFFIXES.items())
        raise JumperError(f"the name {path.name!r} says no format: name one, or end it in one of these: {known}")
    return SUFFIXES[suffix]


def export(run: RunTables, form: str, path: Path, progress: Progress | None = None) -> Path:
    """Write a run in another format, and return where; the file appears when it is whole.

    Parameters
    ----------
    run : Run
    form : {"perfetto", "openmetrics", "csv", "benchmark-tsv", "png", "svg"}
        A trace for ui.perfetto.dev; a text for Prometheus; the tasks table; the same with
        the columns of Snakemake's benchmark files; a picture of the timeline.
    path : Path
        Compressed where its name ends in ``.gz``.
    progress : callable, optional
        Called with (attempts or streams done, all of them).

    Raises
    ------
    JumperError
        Where there is no such format, or the place cannot be written.
    MissingExtraError
        Where the extra ``report`` is not installed.
    """
    if form not in get_args(Format):
        raise JumperError(f"no format {form!r}; there are {', '.join(get_args(Format))}")
    need("numpy", "pandas", "pyarrow")
    done = 0
    with writing(path), replacing(path) as partial, _opened(partial, path) as file:
        for piece, more in _pieces(run, form):
            file.write(piece if isinstance(piece, bytes) else piece.encode())
            if more and progress is not None:
                done += more
                progress(done, _total(run, form))
    return path


def _opened(path: Path, target: Path) -> AbstractContextManager[IO[bytes]]:
    if target.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "wb", compresslevel=6))
    return path.open("wb")


def _total(run: RunTables, form: str) -> int:
    from jumper.schema.columns import STREAMS

    return len(STREAMS) if form == "openmetrics" else len(run.tasks)


def _pieces(run: RunTables, form: str) -> Iterator[tuple[bytes | str, int]]:
    if form == "perfetto":
        from jumper.report.perfetto import pieces

        yield from pieces(run)
    elif form == "openmetrics":
        from jumper.report import openmetrics

        yield from openmetrics.pieces(run)
    elif form in ("png", "svg"):
        from jumper.report.picture import picture

        yield picture(run, cast("Literal['png', 'svg']", form)), len(run.tasks)
    else:
        make = _csv if form == "csv" else _benchmark
        for begin in range(0, max(len(run.tasks), 1), CHUNK):
            chunk = run.tasks.iloc[begin : begin + CHUNK]
            yield make(chunk, begin == 0), len(chunk)


def _csv(tasks: pd.DataFrame, first: bool) -> bytes:
    """Return the tasks table as CSV: lists joined by ``;``, null as nothing, an empty string as ``""``."""
    import pyarrow as pa
    import pyarrow.csv

    from jumper.store.tables import arrow_schema

    schema = arrow_schema([column for column in _declared() if column.name in tasks])
    table = pa.Table.from_pandas(tasks, schema=schema, preserve_index=False)
    for index, field in enumerate(schema):
        if pa.types.is_list(field.type):
            table = table.set_column(index, field.name, pa.compute.binary_join(table[field.name], ";"))
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=first))
    return out.getvalue()


def _declared() -> tuple[Any, ...]:
    from jumper.schema.tasks import TASK_COLUMNS

    return TASK_COLUMNS


def _benchmark(tasks: pd.DataFrame, first: bool) -> str:
    """Return attempts as lines of Snakemake's benchmark table; what is not known is NA."""
    import numpy as np

    from jumper.analysis.tables import floats, texts

    wall, cpu = floats(tasks, "wall_s"), floats(tasks, "cpu_s")
    with np.errstate(invalid="ignore", divide="ignore"):
        load = np.where(wall > 0, 100 * cpu / wall, np.nan)
    mib = {name: floats(tasks, name) / _MIB for name in ("rss_peak_bytes", "memory_peak_bytes", "read_bytes",
                                                         "write_bytes", "input_bytes")}  # fmt: skip
    none = ["NA"] * len(tasks)
    columns: dict[str, list[str]] = {
        "s": _numbers(wall),
        "h:m:s": [_clock(seconds) for seconds in wall],
        "max_rss": _numbers(mib["rss_peak_bytes"]),
        "max_vms": none,
        "max_uss": none,
        "max_pss": _numbers(mib["memory_peak_bytes"]),
        "io_in": _numbers(mib["read_bytes"]),
        "io_out": _numbers(mib["write_bytes"]),
        "mean_load": _numbers(load),
        "cpu_time": _numbers(cpu),
        "jobid": _words(texts(tasks, "external_id")),
        "rule_name": _words(texts(tasks, "group")),
        "wildcards": _words(texts(tasks, "wildcards")),
        "params": none,
        "threads": _numbers(floats(tasks, "threads_asked"), 0),
        "cpu_usage": _numbers(100 * cpu),
        "resources": none,
        "input_size_mb": _numbers(mib["input_bytes"]),
    }
    lines = ["\t".join(row) for row in zip(*(columns[name] for name in BENCHMARK), strict=True)]
    return "".join(f"{line}\n" for line in (["\t".join(BENCHMARK)] if first else []) + lines)


def _numbers(values: Any, digits: int = 4) -> list[str]:
    return ["NA" if value != value else f"{value:.{digits}f}" for value in values]


def _clock(seconds: float) -> str:
    return "NA" if seconds != seconds else str(timedelta(seconds=int(seconds)))


def _words(values: list[str]) -> list[str]:
    return [" ".join(value.split()) or "NA" for value in values]
