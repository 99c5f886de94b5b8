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

    schema, all_rows = arrow_schema(columns), list(rows)
    values = [pa.array(_values(all_rows, column), type_) for column, type_ in zip(columns, schema.types, strict=True)]
    write_parquet(pa.Table.from_arrays(values, schema=schema), path)


def _values(rows: Sequence[Mapping[str, Any]], column: TaskColumn) -> list[Any]:
    values = [row.get(column.name) for row in rows]
    if column.dtype == "int":
        return [None if value is None else int(value) for value in values]
    if column.dtype == "json":
        return [
            value if value is None or isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
            for value in values
        ]
    return values


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
                wanted = None if columns is None else [name for name in columns if name in names]
                # threads of their own cost small files more than they give
                tables.append(opened.read(wanted, use_threads=len(files) == 1))
        except (pa.ArrowException, OSError) as error:
            hint = "remove it, and opening the run makes it again from spool/"
            said = " ".join(str(error).split())
            raise RunError(f"{file} is damaged or gone: {said}; {hint}") from error
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    return frame
