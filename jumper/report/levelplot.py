"""Pictures of one level's samples, as a monitor has them, and in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.report.canvas import holoviews, plain
from jumper.report.extra import need
from jumper.report.theme import OTHER, PALETTE
from jumper.schema.errors import JumperError

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["DEFAULT_METRICS", "GROUPS", "level_plot", "metric_columns", "picture", "save_plot"]

#: Name -> title and the columns drawn together; a name that ends in ``_all`` has a line a device.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cpu": ("CPU, %", ("cpu_util_avg", "cpu_util_min", "cpu_util_max")),
    "memory": ("memory, GiB", ("memory",)),
    "io": ("storage, bytes/s", ("io_read", "io_write")),
    "io_count": ("storage, requests/s", ("io_read_count", "io_write_count")),
    "gpu": ("GPU, %", ("gpu_util_avg", "gpu_util_min", "gpu_util_max")),
    "gpu_band": ("GPU memory bandwidth, %", ("gpu_band_avg", "gpu_band_min", "gpu_band_max")),
    "gpu_mem": ("GPU memory, GiB", ("gpu_mem_avg", "gpu_mem_min", "gpu_mem_max")),
}
DEFAULT_METRICS = ("cpu", "memory", "io", "gpu", "gpu_mem")
_ALIASES = {"mem": "memory", "cpu_summary": "cpu", "gpu_util": "gpu"}
_DEVICES = {"cpu_all": ("CPU by core, %", "cpu_util_"), "gpu_all": ("GPU by device, %", "gpu_util_"),
            "gpu_mem_all": ("GPU memory by device, GiB", "gpu_mem_")}  # fmt: skip
#: Titles of what is never below 0.
_FROM_ZERO = {title for title, _ in (*GROUPS.values(), *_DEVICES.values())}


def metric_columns(frame: pd.DataFrame, metrics: Sequence[str] | None, empty: bool = False) -> dict[str, list[str]]:
    """Return title -> columns for the metrics that are asked for, or by default for what there is.

    Parameters
    ----------
    frame : DataFrame
    metrics : sequence of str or None
    empty : bool
        Take columns that have no value yet, too.

    Raises
    ------
    JumperError
        Where one is neither a group, nor a column, or has no values.
    """
    names = [str(name) for name in frame.columns if name not in ("time", "cell_index")]
    filled = [name for name in names if empty or frame[name].notna().any()]
    found: dict[str, list[str]] = {}
    for name in metrics or DEFAULT_METRICS:
        known = _ALIASES.get(name, name)
        if known in GROUPS:
            title, wanted = GROUPS[known]
            columns = [column for column in wanted if column in filled]
            if not empty:  # where there is one value for all, lowest and highest say nothing
                same = [c for c in columns if c[-4:] in ("_min", "_max") and frame[c].equals(frame[columns[0]])]
                columns = [column for column in columns if column not in same]
        elif known in _DEVICES:
            title, prefix = _DEVICES[known]
            columns = [column for column in filled if column.startswith(prefix) and column[len(prefix) :].isdigit()]
        else:
            title, columns = name, [name] if name in filled else []
        if columns:
            found[title] = columns
        elif metrics:
            groups = ", ".join((*GROUPS, *_DEVICES))
            raise JumperError(f"no values of {name!r} at this level; groups: {groups}; columns: {', '.join(filled)}")
    if not found:
        raise JumperError("nothing to draw yet: no sample has a value")
    return found


def level_plot(
    frame: pd.DataFrame,
    metrics: Sequence[str] | None,
    start_time: float,
    cells: pd.DataFrame | None = None,
    backend: str = "bokeh",
) -> Any:
    """Return a HoloViews layout, one picture a metric, over seconds since the start.

    Parameters
    ----------
    frame : DataFrame
        Samples of one level.
    metrics : sequence of str or None
        Groups (:data:`GROUPS`, ``cpu_all``, ``gpu_all``, ``gpu_mem_all``) or columns; default: what there is.
    start_time : float
        In the clock of the samples.
    cells : DataFrame, optional
        Cells to mark.
    backend : {"bokeh", "matplotlib"}
        Whose options it has.

    Raises
    ------
    JumperError
        See :func:`metric_columns`.
    """
    hv = holoviews()
    found = metric_columns(frame, metrics).items()
    layout = hv.Layout([picture(frame, *metric, start_time, cells, backend) for metric in found]).cols(1)
    return layout if backend == "bokeh" else layout.opts(backend=backend, sublabel_format="", vspace=0.5)


def picture(
    frame: pd.DataFrame,
    title: str,
    columns: Sequence[str],
    start_time: float,
    cells: pd.DataFrame | None = None,
    backend: str = "bokeh",
) -> Any:
    """Return one overlay: a line a column, cells as bands."""
    hv = holoviews()
    seconds = frame["time"].to_numpy("float64") - start_time
    # of its own name in each picture, or they would share an axis; no column's, or labels would be taken for data
    dimension = hv.Dimension(f"metric_{columns[0]}", label=title)
    curves = [
        hv.Curve((seconds, frame[column].to_numpy("float64")), "seconds", dimension, label=column).opts(
            backend=backend, color=PALETTE[index % len(PALETTE)]
        )
        for index, column in enumerate(columns)
    ]
    low, high = (float(seconds.min()), float(seconds.max())) if len(seconds) else (0.0, 1.0)
    bands = []
    for cell in [] if cells is None else cells.to_dict("records"):
        start, end = cell["start_time"] - start_time, cell["end_time"] - start_time
        if end > low and start < high and cell["cell_index"] % 2 == 0:  # so that one ends where the next begins
            bands.append((max(start, low), min(end, high)))
    colour = {"color": OTHER} if backend == "bokeh" else {"facecolor": OTHER, "color": None}
    marks = [hv.VSpans(bands).opts(backend=backend, alpha=0.15, **colour)] if bands else []
    size = {"responsive": True, "height": 240} if backend == "bokeh" else {"aspect": 3, "fig_inches": 6}
    legend = {"show_legend": 1 < len(columns) <= len(PALETTE), "legend_position": "right"}
    from_zero = {"ylim": (0, None)} if title in _FROM_ZERO else {}
    shown = plain(title).replace("{", "{{").replace("}", "}}")  # HoloViews formats it
    looks = {"title": shown, "xlabel": "seconds", "ylabel": "", **legend, **from_zero, **size}
    return hv.Overlay([*curves, *marks]).opts(backend=backend, **looks)


def save_plot(
    file: str | os.PathLike[str],
    frame: pd.DataFrame,
    metrics: Sequence[str] | None,
    start_time: float,
    cells: pd.DataFrame | None = None,
) -> Path:
    """Draw into a file: ``.html`` works offline with Bokeh; ``.png``, ``.jpg``, ``.svg`` and ``.pdf`` by matplotlib.

    Parameters but for ``file`` are those of :func:`level_plot`.

    Raises
    ------
    JumperError
        Where the suffix is another one.
    """
    path = Path(file).expanduser()
    suffix = path.suffix.lower()
    if suffix not in (".html", ".png", ".jpg", ".jpeg", ".svg", ".pdf"):
        raise JumperError(f"{path}: expected a name that ends in .html, .png, .jpg, .svg or .pdf")
    hv = holoviews()
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".html":
        from bokeh.embed import file_html
        from bokeh.resources import INLINE

        model = hv.render(level_plot(frame, metrics, start_time, cells), backend="bokeh")
        path.write_text(file_html(model, INLINE, path.stem), encoding="utf-8")
        return path
    current = hv.Store.current_backend
    need("matplotlib", "holoviews.plotting.mpl")
    try:
        figure = hv.render(level_plot(frame, metrics, start_time, cells, "matplotlib"), backend="matplotlib")
    finally:
        hv.Store.current_backend = current
    for axes in figure.axes:
        axes.set(xlabel="seconds", ylabel="")  # bands have put theirs over it
    figure.savefig(path, bbox_inches="tight")
    return path
