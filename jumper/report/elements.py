"""Pictures of one run over time: each function turns rows into one row of the timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jumper.analysis.tables import floats, texts
from jumper.analysis.timeline import OUTSIDE
from jumper.analysis.units import human_bytes, human_seconds
from jumper.report.canvas import Picture, plain
from jumper.report.data import MOST_COLOURS, OTHER_GROUPS, Lines, RunRows, Stack
from jumper.report.marks import Bars, Image, add, milliseconds
from jumper.report.stacks import area, mirrored, said, stacked, top_of
from jumper.report.theme import OTHER, PALETTE, Theme

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, Ints

#: Rectangles that carry hover texts; past it the longest and failed, over an image of the others.
MOST_BARS = 5000
#: Of what was asked for, what must have been used for both to be drawn at one scale.
LEAST_SHARE = 0.05


def overview(rows: RunRows, theme: Theme) -> Picture:
    """Attempts that run (of one attempt: its busy cores), over the whole time: the row of the brush."""
    line, what = rows.running, "Running tasks"
    if len(rows.bars) < 2:
        stack = rows.cpu
        line, what = (np.sum(list(stack.layers.values()), axis=0) if stack else rows.running), "Busy cores"
    return Picture(
        rows=rows, theme=theme, mark=said(rows, "overview", {what: line}, "{0.0}", ""), height=92,
        title=f"{what}: drag the window to move or zoom every row", limits=(0, top_of(line)),
        paint=lambda figure, source: area(figure, source, 0, "overview_0", theme.muted, 0.45),
    )  # fmt: skip


def tasks(rows: RunRows, theme: Theme) -> Picture | None:
    """Attempts as bars in the lanes of their nodes, coloured by group; failed ones outlined."""
    bars = rows.bars
    if len(bars) < 2:
        return None
    lanes, spans = rows.lanes
    height = max(end for _, end in spans.values())
    drawn, rest = split_bars(bars, rows.folded)
    table = rows.run.tasks.iloc[drawn["index"].to_numpy()]
    low = height - 1 - lanes[drawn.index.to_numpy()]
    corners = {"left": rows.clock(drawn["start"].to_numpy()), "bottom": low + 0.06,
               "right": rows.clock(drawn["stop"].to_numpy()), "top": low + 0.94}  # fmt: skip
    words = {
        "fill": [rows.colour.get(name, OTHER) for name in drawn["type"]], "number": drawn["index"].to_numpy(),
        "task": [text[:160] for text in texts(table, "key")], "place": _places(table),
        "wall": [human_seconds(v) for v in _known(table, "wall_s")],
        "cpu": [human_seconds(v) for v in _known(table, "cpu_s")],
        "memory": _memory_of_asked(table), "state": texts(table, "state"),
    }  # fmt: skip
    tips = [("task", "@task"), ("on", "@place"), ("start", "@left{%H:%M:%S}"), ("wall time", "@wall"),
            ("CPU time", "@cpu"), ("memory peak", "@memory"), ("state", "@state")]  # fmt: skip
    bad = drawn["bad"].to_numpy()
    crowd = dominant(rows, rest, height) if len(rest) else None

    def paint(figure: Any, source: Any) -> None:
        from bokeh.models import ColumnDataSource, HStrip, Quad

        rows_of_nodes = height - np.array(list(spans.values()))
        bands: dict[str, Any] = {"from": rows_of_nodes[:, 1], "to": rows_of_nodes[:, 0]}
        strip = HStrip(y0="from", y1="to", fill_color=theme.band, line_width=0, line_color=None)
        figure.add_glyph(ColumnDataSource(bands), strip, level="underlay")
        if crowd is not None:
            _crowd(figure, rows, crowd)
        outline = Quad(left="left", bottom="bottom", right="right", top="top", fill_color=None,
                       line_color=theme.text, line_width=1.6)  # fmt: skip
        failed = ColumnDataSource({name: values[bad] for name, values in corners.items()})
        add(figure, failed, outline)

    ticks = [(height - (first + end) / 2, plain(_short(name))) for name, (first, end) in spans.items()]
    return Picture(
        rows=rows, theme=theme, mark=Bars({**corners, **words}, tips), title="Tasks on node lanes", paint=paint,
        height=48 + int(np.clip(13 * height, 44, 470)), limits=(-0.6, height + 0.6),
        ticks=ticks[:: -(-len(ticks) // 40)],
    )  # fmt: skip


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


def _crowd(figure: Any, rows: RunRows, held: Ints) -> None:
    """Paint many attempts as an image: the group that held a row longest in each bin."""
    from bokeh.models import ColumnDataSource, Image, LinearColorMapper

    left, right = map(milliseconds, _span(rows))
    mapper = LinearColorMapper(palette=list(rows.colour.values()), low=-0.5, high=len(rows.colour) - 0.5,
                               nan_color=(0, 0, 0, 0))  # fmt: skip
    source = ColumnDataSource({"image": [np.where(held < 0, np.nan, held)[::-1].astype("f4")]})
    image = Image(image="image", x=left, y=0, dw=right - left, dh=len(held), color_mapper=mapper)
    figure.add_glyph(source, image, level="underlay")


def dominant(rows: RunRows, bars: pd.DataFrame, height: int) -> Ints:
    """Return for each row and bin the number of the group that held it longest, -1 where none did.

    Shape (height, bins); numbers count in the order of ``rows.colour``.
    """
    bins, width = rows.grid.bins, rows.grid.width_s
    begin = rows.grid.seconds(bars["start"].to_numpy())
    end = np.maximum(rows.grid.seconds(bars["stop"].to_numpy()), begin + width * 1e-3)
    first = np.clip((begin / width).astype("int64"), 0, bins - 1)
    count = np.clip((end / width).astype("int64"), first, bins - 1) - first + 1
    # one piece a bar and bin; bars of a lane do not overlap, so there are few more pieces than cells
    bar = np.repeat(np.arange(len(bars)), count)
    where = first[bar] + np.arange(len(bar)) - np.repeat(np.cumsum(count) - count, count)
    held = np.minimum(end[bar], (where + 1) * width) - np.maximum(begin[bar], where * width)
    group, groups = bars["type"].cat.codes.to_numpy(dtype="int64")[bar], len(rows.colour)
    cell = rows.lanes[0][bars.index.to_numpy()][bar] * bins + where
    total = np.bincount(cell * groups + group, held, minlength=height * bins * groups).reshape(-1, groups)
    return np.where(total.any(axis=1), total.argmax(axis=1), -1).reshape(height, bins)


def _short(name: str) -> str:
    """A name that fits into the left border: a longer one would shift the time axis of its row."""
    return name if len(name) <= 14 else f"{name[:6]}…{name[-7:]}"


def cpu(rows: RunRows, theme: Theme) -> Picture | None:
    """Busy cores, stacked by task group; CPU time that belongs to no attempt is grey."""
    stack = rows.cpu
    if stack is None:
        return None
    fill = {**rows.colour, OUTSIDE: theme.outside, OTHER_GROUPS: OTHER}
    grouped = len(stack.layers) > 1
    title = "CPU by task group" if grouped else "CPU"
    return stacked(rows, theme, stack, "cpu", title, fill, "busy cores", "")


def memory(rows: RunRows, theme: Theme) -> Picture | None:
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
                   None if asked is None else asked / factor, stack.missing)  # fmt: skip
    fill = {**rows.colour, OUTSIDE: theme.outside, OTHER_GROUPS: OTHER}
    return stacked(rows, theme, scaled, "memory", title, fill, unit, unit)


def io(rows: RunRows, theme: Theme) -> Picture | None:
    """Bytes a second from and to storage, of all that is watched."""
    return _transfer(rows, theme, "storage", "Storage I/O", ("process", "read_bytes", "write_bytes"), ("read", "write"))


def calls(rows: RunRows, theme: Theme) -> Picture | None:
    """Bytes a second read and written through system calls: the page cache and pipes count here."""
    return _transfer(rows, theme, "calls", "I/O through system calls", ("process", "read_chars", "write_chars"),
                     ("read", "write"))  # fmt: skip


def network(rows: RunRows, theme: Theme) -> Picture | None:
    """Bytes a second over the network interfaces of the nodes, loopback left out."""
    return _transfer(rows, theme, "network", "Network of the nodes", ("system", "net_recv_bytes", "net_sent_bytes"),
                     ("received", "sent"))  # fmt: skip


def nodes(rows: RunRows, theme: Theme) -> Picture | None:
    """Node by time: percent of the CPUs that are busy, whoever uses them; missing samples in a colour of their own."""
    return _heat(rows, theme, rows.node_cpu, "node", "CPU busy", "CPU of the nodes, all users")


def gpu(rows: RunRows, theme: Theme) -> Picture | None:
    """Device by time: percent of the time that it is busy; missing samples in a colour of their own."""
    return _heat(rows, theme, rows.gpus, "device", "GPU busy", "GPU utilisation")


def _heat(
    rows: RunRows, theme: Theme, lines: Mapping[str, Floats], dimension: str, word: str, title: str
) -> Picture | None:
    if not lines:
        return None
    names = sorted(lines)
    values = np.round(np.vstack([lines[name] for name in names])).astype("f4")
    ticks = [(len(names) - 0.5 - i, plain(_short(name))) for i, name in enumerate(names)]
    return Picture(
        rows=rows, theme=theme, mark=Image(values, dimension, _span(rows), theme.ramp, theme.gap, word), title=title,
        height=int(np.clip(44 + 22 * len(names), 92, 420)), limits=(0, len(names)),
        ticks=ticks[:: -(-len(ticks) // 30)], grid=False,
    )  # fmt: skip


def metric(rows: RunRows, theme: Theme, found: Lines) -> Picture:
    """Any column of the samples: a line a node or process; past seven, their mean and range."""
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

    def paint(figure: Any, source: Any) -> None:
        from bokeh.models import Line

        for number, colour in zip(range(len(lines)), PALETTE, strict=False):
            line = Line(x="time", y=f"{dimension}_{number}", line_color=colour, line_width=1.4)
            add(figure, source, line)

    values = np.concatenate([line[np.isfinite(line)] for line in lines.values()])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    low = 0.0 if 0 <= low < 0.5 * high else low
    room = (high - low or abs(high) or 1.0) * 0.1
    scope = {"system": "of the node"}.get(found.level, f"of the {found.level}")
    return Picture(
        rows=rows, theme=theme, mark=said(rows, dimension, lines, "{0.00}", ""), title=f"{found.metric} {scope}",
        height=120, limits=(low - room if low else 0.0, high + room), ticks=4, paint=paint,
    )  # fmt: skip


def _transfer(
    rows: RunRows, theme: Theme, dimension: str, title: str, source: tuple[str, str, str], words: tuple[str, str]
) -> Picture | None:
    moved = rows.transfer(*source)
    if moved is None:
        return None
    factor, unit = _unit(max(line.max() for line in moved))
    scaled = {word: line / factor for word, line in zip(words, moved, strict=True)}
    return mirrored(rows, theme, dimension, title, unit, scaled)


def _span(rows: RunRows) -> tuple[Any, Any]:
    left, right = rows.clock(np.array([rows.grid.start_ns, rows.grid.stop_ns]))
    return left, right


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
