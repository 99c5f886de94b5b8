"""The performance report of a monitor: how long, what limited it, averages, and what each cell cost."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from jumper.analysis.units import digits, human_bytes, human_seconds
from jumper.report.extra import need

if TYPE_CHECKING:
    import pandas as pd

    from jumper.adapters.data import NodeInfo

__all__ = ["Figure", "PerfReport", "perfreport"]

_MIB, _GIB = 2**20, 2**30
_HEADS = ("cell", "wall", "CPU", "cores", "memory peak", "read", "written", "code")


@dataclass(frozen=True)
class Figure:
    """One measured quantity: mean over time, lowest, highest, and what there is in all (None: no limit is known)."""

    name: str
    unit: str
    mean: float
    lowest: float
    highest: float
    limit: float | None = None


@dataclass(frozen=True)
class PerfReport:
    """A report; its text is ``str(report)``, a notebook shows it as HTML.

    Attributes
    ----------
    level, node : str
    duration_s : float
        Of the whole measurement, or of the cells that were asked for.
    samples, missed : int
        Ticks that were taken; ticks of the schedule that were not.
    tags : list of str
        See :func:`jumper.analysis.level.tags`; empty where nothing was the limit.
    figures : list of Figure
    cells : DataFrame
        A row a cell with :data:`jumper.analysis.level.CELL_COSTS`.
    """

    level: str
    node: str
    duration_s: float
    samples: int
    missed: int
    tags: list[str]
    figures: list[Figure]
    cells: pd.DataFrame

    def __str__(self) -> str:
        lines = [self._title(), self._how_long()]
        if self.tags:
            lines.append("tags: " + ", ".join(self.tags))
        rows = [("", "average", "lowest", "highest", "of"), *(_figure(figure) for figure in self.figures)]
        lines += ["", *_aligned(rows, left={0})]
        if len(self.cells):
            lines += ["", *_aligned([_HEADS, *_cells(self.cells)], left={0, 7})]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        tags = "".join(
            f"<span style='border:1px solid;border-radius:9px;padding:0 8px;margin-right:6px'>{escape(tag)}</span>"
            for tag in self.tags
        )
        body = [f"<b>{escape(self._title())}</b>", f"<div style='opacity:.7'>{escape(self._how_long())}</div>"]
        body += [f"<div style='margin:6px 0'>{tags}</div>"] if tags else []
        body.append(_table(("", "average", "lowest", "highest", "of"), [_figure(f) for f in self.figures], left={0}))
        if len(self.cells):
            table = _table(_HEADS, _cells(self.cells), left={0, 7})
            body.append(f"<div style='max-height:400px;overflow:auto'>{table}</div>")
        border = "border:1px solid rgba(128,128,128,.35);border-radius:8px"
        return f"<div style='{border};padding:10px 14px;display:inline-block'>{''.join(body)}</div>"

    def _title(self) -> str:
        return f"Performance of {self.node}, level {self.level}"

    def _how_long(self) -> str:
        count = len(self.cells)
        parts = [human_seconds(self.duration_s) or "0 s", f"{count} cell{'s' * (count != 1)}" if count else "",
                 f"{self.samples} sample{'s' * (self.samples != 1)}",
                 f"{self.missed} missed" if self.missed else ""]  # fmt: skip
        return ", ".join(part for part in parts if part)


def perfreport(
    frame: pd.DataFrame, cells: pd.DataFrame, info: NodeInfo, level: str, interval_s: float, duration_s: float
) -> PerfReport:
    """Return the report of one level's samples.

    Parameters
    ----------
    frame : DataFrame
        The samples in question.
    cells : DataFrame
        The cells in question; may be empty.
    info : NodeInfo
        The node's hardware, or that of all nodes; limits in GiB by level.
    level : str
    interval_s, duration_s : float

    Raises
    ------
    MissingExtraError
        Where pandas is not installed.
    """
    need("pandas")
    from jumper.analysis.level import averages, cell_costs, missed_samples, tags

    limit = info.memory_limits.get(level) or None
    gpu_limit = info.gpu_memory if info.num_gpus else None
    cpus = info.num_system_cpus if level == "system" else info.num_cpus
    figures = []
    for name, column, unit, factor, of in (
        (f"CPU of {cpus}", "cpu_util_avg", "%", 1.0, 100.0),
        ("memory", "memory", "GiB", 1.0, limit),
        ("read from storage", "io_read", "MiB/s", _MIB, None),
        ("written to storage", "io_write", "MiB/s", _MIB, None),
        (f"GPU of {info.num_gpus}", "gpu_util_avg", "%", 1.0, 100.0),
        ("GPU memory", "gpu_mem_avg", "GiB", 1.0, gpu_limit),
    ):
        found = averages(frame, column, interval_s)
        if found is not None:
            mean, lowest, highest = (value / factor for value in found)
            figures.append(Figure(name, unit, mean, lowest, highest, of))
    return PerfReport(
        level=level,
        node=info.node,
        duration_s=duration_s,
        samples=len(frame),
        missed=missed_samples(frame, interval_s) if len(frame) else 0,
        tags=tags(frame, interval_s, {"memory": limit, "gpu_memory": gpu_limit}),
        figures=figures,
        cells=cell_costs(frame, cells, cpus),
    )


def _figure(figure: Figure) -> tuple[str, ...]:
    values = (figure.mean, figure.lowest, figure.highest, figure.limit)
    return (f"{figure.name}, {figure.unit}", *("-" if value is None else digits(value) for value in values))


def _cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in table.to_dict("records"):
        known: dict[str, Any] = {
            str(name): value for name, value in row.items() if value == value and value is not None
        }
        cpu, wall = known.get("cpu_s"), float(row["wall_s"])
        count = known.get("execution_count")
        rows.append((
            f"{row['cell_index']}" + (f"  In [{int(count)}]" if count is not None else ""), human_seconds(wall),
            "-" if cpu is None else human_seconds(cpu),
            digits(cpu / wall) if cpu is not None and wall else "-",
            human_bytes(known.get("memory_peak_bytes")) or "-", human_bytes(known.get("read_bytes")) or "-",
            human_bytes(known.get("write_bytes")) or "-", str(row["code"])[:60],
        ))  # fmt: skip
    return rows


def _aligned(rows: list[tuple[str, ...]], left: set[int]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in rows
    ]  # fmt: skip


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], left: set[int]) -> str:
    def line(row: tuple[str, ...], tag: str) -> str:
        sides = ("left" if i in left else "right" for i in range(len(row)))
        styles = (f"padding:1px 10px 1px 0;text-align:{side}" for side in sides)
        cells = [f"<{tag} style='{style}'>{escape(cell)}</{tag}>" for cell, style in zip(row, styles, strict=True)]
        return f"<tr>{''.join(cells)}</tr>"

    return f"<table style='margin:6px 0'>{line(heads, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"
