"""The tasks and parts tables on disk: typed by the schema, a missing value is null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.schema.errors import RunError
from jumper.schema.tasks import TaskColumn
from jumper.store.merge import write_parquet

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def arrow_schema(columns: Sequence[TaskColumn]) -> pa.Schema:
    """Return the Arrow schema of a table whose columns are declared in :mod:`jumper.schema.tasks`."""
    import pyarrow as pa

    types = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "list": pa.list_(pa.string()),
        "json": pa.string(),
    }
    return pa.schema([pa.field(column.name, types[column.dtype]) for column in columns])


def write_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[TaskColumn], path: Path) -> None:
    """Write rows as a table with exactly these columns."""
    import pyarrow as pa

    json_columns = [c.name for c in columns if c.dtype == "json"]
    whole = [c.name for c in columns if c.dtype == "int"]
    plain: list[dict[str, Any]] = []
    for row in rows:
        clean = dict(row)
        for name in json_columns:
            if clean.get(name) is not None and not isinstance(clean[name], str):
                clean[name] = json.dumps(clean[name], default=str, sort_keys=True)
        for name in whole:
            if clean.get(name) is not None:
                clean[name] = int(clean[name])
        plain.append(clean)
    write_parquet(pa.Table.from_pylist(plain, arrow_schema(columns)), path)


def read_frame(paths: Path | Sequence[Path], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read Parquet files with nullable types; columns that only some files have are null in the others.

    Returns
    -------
    DataFrame
        Int64, Float64 and string columns; lists as objects.

    Raises
    ------
    RunError
        Where a file is damaged.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.string(): pd.StringDtype()}
    files = [paths] if isinstance(paths, Path) else list(paths)
    tables = []
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                names = opened.schema_arrow.names
                tables.append(opened.read(None if columns is None else [name for name in columns if name in names]))
        except (pa.ArrowException, OSError) as error:
            hint = "remove it, and opening the run makes it again from spool/"
            said = " ".join(str(error).split())
            raise RunError(f"{file} is damaged or gone: {said}; {hint}") from error
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    return frame
