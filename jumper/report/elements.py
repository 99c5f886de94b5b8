"""Pictures of one run as HoloViews elements: each function turns rows into one row of the timeline.

What these elements rely on: Canvas, because a software WebGL redraws 20 to 70 times slower; the
same borders on every row, so that the time axes line up; data first in each overlay, because an
overlay takes its axes from its first element (holoviews#4398); a value dimension of its own for
each row, because rows that share one share their y axis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.tables import floats, texts
from jumper.analysis.timeline import OUTSIDE
from jumper.analysis.units import human_bytes, human_seconds
from jumper.report.canvas import finish, holoviews, plain
from jumper.report.data import MOST_COLOURS, OTHER_GROUPS, Lines, RunRows, Stack
from jumper.report.stacks import hover, mirrored, stacked, top_of
from jumper.report.theme import OTHER, PALETTE, Theme

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

__all__ = ["calls", "cpu", "finish", "gpu", "holoviews", "io", "memory", "metric", "network", "nodes", "overview",
           "plain", "tasks"]  # fmt: skip

#: Rectangles that carry hover texts; past it the longest and failed, over an image of the others.
MOST_BARS = 5000
#: Of what was asked for, what must have been used for both to be drawn at one scale.
LEAST_SHARE = 0.05


def overview(rows: RunRows, theme: Theme) -> Any:
    """Attempts that run (of one attempt: its busy cores), over the whole time: the row of the brush."""
    hv = holoviews()
    line, what = rows.running, "Running tasks"
    if len(rows.bars) < 2:
        stack = rows.cpu
        line, what = (np.sum(list(stack.layers.values()), axis=0) if stack else rows.running), "Busy cores"
    area = hv.Area((rows.time, line.astype("f4")), "time", "overview").opts(
        backend="bokeh", color=theme.muted, alpha=0.45, line_width=0
    )
    title = f"{what}: drag the window to move or zoom every row"
    return finish(area, rows, theme, 92, title, yaxis=None, xaxis="bottom", ylim=(0, top_of(line)),
                  default_tools=[], active_tools=[])  # fmt: skip


def tasks(rows: RunRows, theme: Theme) -> Any | None:
    """Attempts as bars in the lanes of their nodes, coloured by group; failed ones outlined."""
    bars = rows.bars
    if len(bars) < 2:
        return None
    hv = holoviews()
    from bokeh.models import HoverTool

    lanes, spans = rows.lanes
    height = max(end for _, end in spans.values())
    drawn, rest = split_bars(bars, rows.folded)
    table = rows.run.tasks.iloc[drawn["index"].to_numpy()]
    low = height - 1 - lanes[drawn.index.to_numpy()]
    frame = pd.DataFrame({
        "time": rows.clock(drawn["start"].to_numpy()), "low": low + 0.06,
        "end": rows.clock(drawn["stop"].to_numpy()), "high": low + 0.94,
        "fill": [rows.colour.get(name, OTHER) for name in drawn["type"]], "number": drawn["index"].to_numpy(),
        "task": [text[:160] for text in texts(table, "key")], "place": _places(table),
        "wall": [human_seconds(v) for v in _known(table, "wall_s")],
        "cpu": [human_seconds(v) for v in _known(table, "cpu_s")],
        "memory": _memory_of_asked(table), "state": texts(table, "state"),
    })  # fmt: skip
    tips = [("task", "@task"), ("on", "@place"), ("start", "@left{%H:%M:%S}"), ("wall time", "@wall"),
            ("CPU time", "@cpu"), ("memory peak", "@memory"), ("state", "@state")]  # fmt: skip
    hover = HoverTool(tooltips=tips, formatters={"@left": "datetime"}, point_policy="follow_mouse")
    corners = ["time", "low", "end", "high"]
    rectangles = hv.Rectangles(frame, corners, list(frame.columns[4:])).opts(
        backend="bokeh", color="fill", line_width=0, tools=[hover, "tap"], nonselection_alpha=0.18,
        nonselection_line_alpha=0,
    )  # fmt: skip
    failed = hv.Rectangles(frame.loc[drawn["bad"].to_numpy(), corners], corners, []).opts(
        backend="bokeh", fill_alpha=0, line_color=theme.text, line_width=1.6
    )
    picture = rectangles * failed
    bands = [(height - end, height - first) for first, end in spans.values()]
    picture = picture * hv.HSpans(pd.DataFrame(bands, columns=["from", "to"]), ["from", "to"]).opts(
        backend="bokeh", color=theme.band, alpha=1, line_width=0, level="underlay"
    )
    if len(rest):
        picture = picture * _crowd(rows, rest, height)
    ticks = [(height - (first + end) / 2, plain(_short(name))) for name, (first, end) in spans.items()]
    return finish(picture, rows, theme, 48 + int(np.clip(13 * height, 44, 470)), "Tasks on node lanes",
                  yticks=ticks[:: -(-len(ticks) // 40)], ylim=(-0.6, height + 0.6))  # fmt: skip


def split_bars(bars: pd.DataFrame, folded: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (bars to draw one by one, the others), at most :data:`MOST_BARS` of the first.

    These are all that failed and the longest; where lanes share a row, those that failed and
    the others are all of them.
    """
    if len(bars) <= MOST_BARS and not folded:
        return bars, bars.iloc[:0]
    rank = np.lexsort((-(bars["stop"] - bars["start"]).to_numpy(), ~bars["bad"].to_numpy()))
    alone = rank[: min(MOST_BARS, int(bars["bad"].sum()) if folded else MOST_BARS)]
    return bars.iloc[np.sort(alone)], bars if folded else bars.iloc[np.sort(rank[MOST_BARS:])]


def _crowd(rows: RunRows, rest: pd.DataFrame, height: int) -> Any:
    """Draw many attempts as an image: the group that held a row longest in each bin."""
    hv = holoviews()
    held = dominant(rows, rest, height)
    image = np.where(held < 0, np.nan, held).astype("f4")
    return hv.Image(image, bounds=_bounds(rows, 0, height), kdims=["time", "low"], vdims="crowd").opts(
        backend="bokeh", cmap=list(rows.colour.values()), clim=(-0.5, len(rows.colour) - 0.5), hooks=[_below],
        clipping_colors={"NaN": (0, 0, 0, 0)},
    )  # fmt: skip


def dominant(rows: RunRows, bars: pd.DataFrame, height: int) -> Ints:
    """Return for each row and bin the number of the group that held it longest, -1 where none did.

    Shape (height, bins); numbers count in the order of ``rows.colour``.
    """
    bins, width = rows.grid.bins, rows.grid.width_s
    begin = rows.grid.seconds(bars["start"].to_numpy())
    end = np.maximum(rows.grid.seconds(bars["stop"].to_numpy()), begin + width * 1e-3)
    first = np.clip((begin / width).astype("int64"), 0, bins - 1)
    count = np.clip((end / width).astype("int64"), first, bins - 1) - first + 1
    # one piece a bar and bin; bars of a lane do not overlap, so there are few more than cells
    bar = np.repeat(np.arange(len(bars)), count)
    where = first[bar] + np.arange(len(bar)) - np.repeat(np.cumsum(count) - count, count)
    held = np.minimum(end[bar], (where + 1) * width) - np.maximum(begin[bar], where * width)
    names = {name: number for number, name in enumerate(rows.colour)}
    group = bars["type"].map(names).to_numpy(dtype="int64")[bar]
    key = (rows.lanes[0][bars.index.to_numpy()][bar] * bins + where) * len(names) + group
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    total, key = np.add.reduceat(held[order], starts), key[order][starts]
    longest = np.lexsort((total, key // len(names)))
    image = np.full(height * bins, -1, dtype="int64")
    image[key[longest] // len(names)] = key[longest] % len(names)  # of equal places the last one stays
    return image.reshape(height, bins)


def _short(name: str) -> str:
    """A name that fits into the left border: a longer one would shift the time axis of its row."""
    return name if len(name) <= 14 else f"{name[:6]}…{name[-7:]}"


def _below(plot: Any, element: Any) -> None:
    plot.handles["glyph_renderer"].level = "underlay"


def cpu(rows: RunRows, theme: Theme) -> Any | None:
    """Busy cores, stacked by task group; CPU time that belongs to no attempt is grey."""
    stack = rows.cpu
    if stack is None:
        return None
    fill = {**rows.colour, OUTSIDE: theme.outside, OTHER_GROUPS: OTHER}
    grouped = len(stack.layers) > 1
    title = "CPU by task group" if grouped else "CPU"
    return stacked(rows, theme, stack, "cpu", title, fill, "busy cores", "")


def memory(rows: RunRows, theme: Theme) -> Any | None:
    """Memory in use, stacked by the task group that ran in each process; memory of idle processes is grey."""
    stack = rows.memory
    if stack is None:
        return None
    used = float(np.sum(list(stack.layers.values()), axis=0).max())
    title = "Memory by task group" if len(stack.layers) > 1 else "Memory"
    asked, capacity, label = stack.asked, stack.capacity, stack.capacity_label
    if asked is not None and used < LEAST_SHARE * asked.max():  # its scale would hide what was used
        limits = [f"up to {human_bytes(float(asked.max()))} asked for", label]
        title += f" ({', '.join(word for word in limits if word)})"
        asked = capacity = None
    factor, unit = _unit(max(used, 1.0, 0.0 if asked is None else float(asked.max())))
    scaled = Stack({name: line / factor for name, line in stack.layers.items()}, capacity and capacity / factor, label,
                   None if asked is None else asked / factor)  # fmt: skip
    fill = {**rows.colour, OUTSIDE: theme.outside, OTHER_GROUPS: OTHER}
    return stacked(rows, theme, scaled, "memory", title, fill, unit, unit)


def io(rows: RunRows, theme: Theme) -> Any | None:
    """Bytes a second from and to storage, of all that is watched."""
    return _transfer(rows, theme, "storage", "Storage I/O", ("process", "read_bytes", "write_bytes"), ("read", "write"))


def calls(rows: RunRows, theme: Theme) -> Any | None:
    """Bytes a second read and written through system calls: the page cache and pipes count here."""
    return _transfer(rows, theme, "calls", "I/O through system calls", ("process", "read_chars", "write_chars"),
                     ("read", "write"))  # fmt: skip


def network(rows: RunRows, theme: Theme) -> Any | None:
    """Bytes a second over the network interfaces of the nodes, loopback left out."""
    return _transfer(rows, theme, "network", "Network of the nodes", ("system", "net_recv_bytes", "net_sent_bytes"),
                     ("received", "sent"))  # fmt: skip


def nodes(rows: RunRows, theme: Theme) -> Any | None:
    """Node by time: percent of the CPUs that are busy, whoever uses them; missing samples in a colour of their own."""
    return _heat(rows, theme, rows.node_cpu, "node", "CPU busy", "CPU of the nodes, all users")


def gpu(rows: RunRows, theme: Theme) -> Any | None:
    """Device by time: percent of the time that it is busy; missing samples in a colour of their own."""
    return _heat(rows, theme, rows.gpus, "device", "GPU busy", "GPU utilisation")


def _heat(
    rows: RunRows, theme: Theme, lines: Mapping[str, Floats], dimension: str, word: str, title: str
) -> Any | None:
    if not lines:
        return None
    hv = holoviews()
    from bokeh.models import FixedTicker, HoverTool, PrintfTickFormatter
    from bokeh.palettes import interp_palette

    names = sorted(lines)
    image = np.round(np.vstack([lines[name] for name in names])).astype("f4")
    hover = HoverTool(tooltips=[("time", "$x{%H:%M:%S}"), (word, "@image{0} %")], formatters={"$x": "datetime"})
    picture = hv.Image(image, bounds=_bounds(rows, 0, len(names)), kdims=["time", dimension], vdims="busy").opts(
        backend="bokeh", cmap=list(interp_palette(theme.ramp, 256)), clim=(0, 100), colorbar=True, clabel="",
        tools=[hover], clipping_colors={"NaN": theme.gap},
        # "%d %" would throw in the browser and blank the whole page: the sign is doubled
        colorbar_opts={"width": 8, "padding": 4, "margin": 0, "bar_line_color": None, "major_tick_line_color": None,
                       "ticker": FixedTicker(ticks=[0, 50, 100]), "formatter": PrintfTickFormatter(format="%d %%")},
    )  # fmt: skip
    ticks = [(len(names) - 0.5 - i, plain(_short(name))) for i, name in enumerate(names)]
    return finish(picture, rows, theme, int(np.clip(44 + 22 * len(names), 76, 420)), title,
                  yticks=ticks[:: -(-len(ticks) // 30)], show_grid=False)  # fmt: skip


def metric(rows: RunRows, theme: Theme, found: Lines) -> Any:
    """Any column of the samples: a line a node or process; past seven, their mean and range."""
    hv = holoviews()
    dimension = "metric_" + re.sub(r"\W", "_", f"{found.level}_{found.metric}")
    lines = {name: line.astype("f4") for name, line in found.lines.items()}
    if len(lines) > MOST_COLOURS:
        with np.errstate(all="ignore"):
            table = np.vstack(list(lines.values()))
            known = ~np.isnan(table).all(axis=0)
            blank = np.full(table.shape[1], np.nan, dtype="f4")
            lines = {"highest": blank.copy(), "mean": blank.copy(), "lowest": blank.copy()}
            for name, reduce in (("highest", np.nanmax), ("mean", np.nanmean), ("lowest", np.nanmin)):
                lines[name][known] = reduce(table[:, known], axis=0)
    fill = dict(zip(lines, PALETTE, strict=False))
    curves = [
        hv.Curve((rows.time, line), "time", dimension).opts(backend="bokeh", color=fill[name], line_width=1.4)
        for name, line in lines.items()
    ]
    values = np.concatenate([line[np.isfinite(line)] for line in lines.values()])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    low = 0.0 if 0 <= low < 0.5 * high else low
    room = (high - low or abs(high) or 1.0) * 0.1
    picture = hv.Overlay([*curves, hover(rows, dimension, lines, "{0.00}", "")])
    scope = {"system": "of the node"}.get(found.level, f"of the {found.level}")
    return finish(picture, rows, theme, 120, f"{found.metric} {scope}",
                  ylim=(low - room if low else 0.0, high + room), yticks=4)  # fmt: skip


def _transfer(
    rows: RunRows, theme: Theme, dimension: str, title: str, source: tuple[str, str, str], words: tuple[str, str]
) -> Any | None:
    moved = rows.transfer(*source)
    if moved is None:
        return None
    factor, unit = _unit(max(line.max() for line in moved))
    scaled = {word: line / factor for word, line in zip(words, moved, strict=True)}
    return mirrored(rows, theme, dimension, title, unit, scaled)


def _bounds(rows: RunRows, low: float, high: float) -> tuple[Any, float, Any, float]:
    left, right = rows.clock(np.array([rows.grid.start_ns, rows.grid.stop_ns]))
    return left, low, right, high


def _known(table: pd.DataFrame, column: str) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in floats(table, column)]


def _memory_of_asked(table: pd.DataFrame) -> list[str]:
    pairs = zip(_known(table, "memory_peak_bytes"), _known(table, "memory_asked_bytes"), strict=True)
    return [human_bytes(peak) + (f" of {human_bytes(asked)} asked" if peak and asked else "") for peak, asked in pairs]


def _places(table: pd.DataFrame) -> list[str]:
    pairs = zip(texts(table, "node"), texts(table, "worker"), strict=True)
    return [", ".join(part for part in pair if part) for pair in pairs]


def _unit(top: float) -> tuple[float, str]:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if top >= 1024.0**power:
            return 1024.0**power, unit
    return 1.0, "B"
