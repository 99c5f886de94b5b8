"""A run as OpenMetrics text: every stored column of every stream with its times, and what groups cost.

The metrics and their units are those of :mod:`jumper.schema.columns` in base units (seconds,
bytes). Labels are nodes, processes, groups and states, never single tasks. Prometheus takes
the file with ``promtool tsdb create-blocks-from openmetrics FILE``.

Source: the OpenMetrics specification, 1.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jumper.analysis.summary import summarize
from jumper.analysis.tables import RunTables, custom_columns, floats, texts, times
from jumper.analysis.timeline import span_of
from jumper.schema.columns import DEVICE_COLUMNS, STREAMS, Column, declared, stored_columns

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

#: what the columns of single devices begin with -> what such a device is called
_DEVICES = {"cpu_": "core", "gpu_": "device", "energy_": "package"}
#: Rows turned into text at once.
CHUNK = 200_000
#: what groups cost: column of the summary, its unit, what it says
_GROUPS = {
    "cpu_s": ("seconds", "CPU time of the attempts of a group"),
    "wall_s": ("seconds", "wall time of the attempts of a group"),
    "memory_peak_bytes": ("bytes", "highest memory peak of an attempt of a group"),
    "memory_asked_bytes": ("bytes", "highest memory that an attempt of a group asked for"),
    "read_chars": ("bytes", "read through system calls by a group"),
    "write_chars": ("bytes", "written through system calls by a group"),
}


def pieces(run: RunTables) -> Iterator[tuple[str, int]]:
    """Yield the text in pieces, each with how many streams it completes."""
    yield from ((text, 0) for text in _groups(run))
    for stream in STREAMS:
        samples = run.samples(stream)
        for base, column, parts in _metrics(stream, samples):
            yield from ((text, 0) for text in _family(base, column, parts, samples))
        yield "", 1
    yield "# EOF\n", 0


def _metrics(stream: str, samples: pd.DataFrame) -> Iterator[tuple[str, Column, dict[str, str]]]:
    """Yield the metrics of a stream: name, what it is, and its columns, each with its device or ``""``."""
    for column in stored_columns(stream):
        if column.kind != "key" and column.name in samples:
            yield f"{stream}_{column.name}", column, {column.name: ""}
    for column in DEVICE_COLUMNS:
        before, after = column.name.split("#")
        parts = {name: name[len(before) : -len(after)] for name in samples.columns if declared(name) is column}
        if parts:
            yield f"{stream}_{_DEVICES[before]}_{before}{after[1:]}", column, parts
    for name in custom_columns(samples):
        column = Column(name, "1", "gauge", (stream,), "none", "none", "none", "column of a collector of the user's")
        yield f"{stream}_{name}", column, {name: ""}


def _family(base: str, column: Column, parts: dict[str, str], samples: pd.DataFrame) -> Iterator[str]:
    """Yield one metric: its description, then each of its series by time."""
    keys = [key for key in ("node", "pid", "tid") if key in samples]
    base, unit, factor = _unit(base, column.unit)
    metric, counter = _safe(f"jumper_{base}"), column.kind == "counter"
    head = _head(metric, "counter" if counter else "gauge", unit, column.source)
    for name, number in parts.items():
        values = floats(samples, name)
        kept = np.flatnonzero(np.isfinite(values))
        if not len(kept):
            continue
        device = {_label(column): number} if number else {}
        labels, codes = _series({key: texts(samples.iloc[kept], key) for key in keys}, device)
        time_ms = times(samples, "time_ns")[kept] // 10**6
        order = np.lexsort((time_ms, codes))
        codes, time_ms, values = codes[order], time_ms[order], values[kept][order]
        # Prometheus keeps milliseconds, and one value for each
        last = np.append((codes[1:] != codes[:-1]) | (time_ms[1:] != time_ms[:-1]), True)
        yield head
        head = ""
        prefixes = pa.array([f"{metric}{'_total' if counter else ''}{label} " for label in labels])
        yield from _lines(prefixes, codes[last], values[last] * factor, time_ms[last])


def _label(column: Column) -> str:
    return _DEVICES[column.name.partition("#")[0]]


def _series(labels: Mapping[str, list[str]], more: Mapping[str, str]) -> tuple[list[str], Ints]:
    """Return the label sets that there are, as OpenMetrics writes them, and which one each row has."""
    codes, unique = pd.factorize(pd.Series(list(zip(*labels.values(), strict=True)), dtype=object))
    return [_labels({**dict(zip(labels, values, strict=True)), **more}) for values in unique], codes


def _lines(prefixes: pa.Array, codes: Ints, values: Floats, time_ms: Ints) -> Iterator[str]:
    for begin in range(0, len(codes), CHUNK):
        part = slice(begin, begin + CHUNK)
        seconds = pc.cast(pa.array(time_ms[part] // 1000), pa.string())
        thousandths = pc.utf8_lpad(pc.cast(pa.array(time_ms[part] % 1000), pa.string()), 3, "0")
        lines = pc.binary_join_element_wise(
            prefixes.take(pa.array(codes[part])), pc.cast(pa.array(values[part]), pa.string()),
            " ", seconds, ".", thousandths, "\n", "",
        )  # fmt: skip
        yield "".join(lines.to_pylist())


def _groups(run: RunTables) -> Iterator[str]:
    """Yield what groups cost, as it stands at the end of the run."""
    rows, span = summarize(run.tasks), span_of(run)
    if span is None:
        return
    at = f"{span[1] // 10**9}.{span[1] // 10**6 % 1000:03d}"
    states = Counter(zip(*(texts(run.tasks, name) for name in ("group", "state")), strict=True))
    lines = [
        f"jumper_group_attempts{_labels({'group': group, 'state': state})} {count} {at}\n"
        for (group, state), count in sorted(states.items())
    ]
    yield _head("jumper_group_attempts", "gauge", "", "attempts of a group by their state") + "".join(lines)
    for name, (unit, words) in _GROUPS.items():
        known = rows[name].dropna()
        base = _unit(name.removesuffix("_s") + "_seconds" if name.endswith("_s") else name, unit)[0]
        lines = [f"jumper_group_{base}{_labels({'group': str(g)})} {float(v)} {at}\n" for g, v in known.items()]
        if lines:
            yield _head(f"jumper_group_{base}", "gauge", unit, words) + "".join(lines)


_SMALL = {"uJ": ("joules", 1e-6), "uW": ("watts", 1e-6), "C": ("celsius", 1.0)}


def _unit(name: str, unit: str) -> tuple[str, str, float]:
    """Return (name that ends in its base unit, base unit, factor to it).

    Examples
    --------
    >>> _unit("cpu_ns", "ns"), _unit("read_chars", "bytes"), _unit("reads", "1")
    (('cpu_seconds', 'seconds', 1e-09), ('read_chars_bytes', 'bytes', 1.0), ('reads', '', 1.0))
    """
    if unit == "ns":
        return name.removesuffix("_ns") + "_seconds", "seconds", 1e-9
    if unit in _SMALL:
        words, factor = _SMALL[unit]
        return f"{name.rpartition('_')[0]}_{words}", words, factor
    if unit in ("bytes", "seconds"):
        return (name if name.endswith(f"_{unit}") else f"{name}_{unit}"), unit, 1.0
    return name, "", 1.0


def _head(metric: str, kind: str, unit: str, words: str) -> str:
    lines = [f"# TYPE {metric} {kind}\n", f"# UNIT {metric} {unit}\n" if unit else ""]
    return "".join([*lines, f"# HELP {metric} {_escaped(words)}\n"])


def _safe(name: str) -> str:
    # a name of a counter may not end so itself, nor one of a gauge in what marks other types
    clean = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"{clean}_value" if re.search(r"_(total|created|count|sum|bucket|info|gcount|gsum)$", clean) else clean


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
