"""A run as one static picture, PNG or SVG: the rows of the timeline on one time axis, drawn by matplotlib alone.

For mails, papers and terminals without a browser; what is drawn is what the page draws
(:class:`jumper.report.data.RunRows`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jumper.analysis.timeline import OUTSIDE
from jumper.report.data import OTHER_GROUPS, RunRows, Stack
from jumper.report.extra import need
from jumper.report.theme import OTHER, Theme, theme_of
from jumper.schema.errors import RunError

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats, RunTables

#: Lanes, and height of one of them, in inches; a row of curves.
MOST_LANES, LANE, ROW = 60, 0.16, 1.35
_WIDTH = 11.0
_GIB, _MIB = 2.0**30, 2.0**20
_NOTHING = Stack({})


def picture(run: RunTables, form: Literal["png", "svg"], theme: str = "light") -> bytes:
    """Return a run as a picture.

    Parameters
    ----------
    run : Run
    form : {"png", "svg"}
    theme : {"light", "dark"}

    Raises
    ------
    RunError
        Where there is neither an attempt nor a sample to draw.
    MissingExtraError
        Where the extra ``report`` is not installed.
    """
    need("numpy", "pandas", "matplotlib")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows, colours = RunRows(run), theme_of(theme)
    drawn = [(height, draw) for height, draw in _rows(rows) if height]
    if not drawn:
        raise RunError("this run has neither attempts nor samples to draw")
    heights = [height for height, _ in drawn]
    with rc_context({"font.size": 8, "font.family": "sans-serif", "svg.hashsalt": "jumper", "path.simplify": True}):
        figure = Figure(figsize=(_WIDTH, sum(heights) + 0.45 * len(heights) + 0.4), facecolor=colours.background,
                        layout="constrained")  # fmt: skip
        axes = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (_, draw) in zip(axes, drawn, strict=True):
            _dress(axis, colours)
            draw(axis, rows, colours)
        figure.suptitle(_heading(run), x=0.01, ha="left", color=colours.text, parse_math=False)
        axes[0].set_xlim(*rows.limits)
        axes[-1].set_xlabel(f"time ({rows.zone})", color=colours.muted)
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=130, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


def _heading(run: RunTables) -> str:
    count = len(run.tasks)
    kind, name = run.info.get("kind") or "run", run.info.get("run") or ""
    return f"jumper: {kind} {name}, {count:,} task{'s' * (count != 1)}"


_Draw = Callable[[Any, RunRows, Theme], None]


def _rows(rows: RunRows) -> list[tuple[float, _Draw]]:
    """Return the height in inches of each row, 0 where it has no data, and what draws it."""
    lanes = max(end for _, end in rows.lanes[1].values()) if len(rows.bars) > 1 else 0
    moved = any(rows.transfer("process", *names) is not None for names in _TRANSFERS.values())
    return [
        (max(0.5, LANE * min(lanes, MOST_LANES)) if lanes else 0.0, _tasks),
        (ROW if rows.cpu is not None else 0.0, _cpu),
        (ROW if rows.memory is not None else 0.0, _memory),
        (ROW if moved else 0.0, _io),
        (_heat_height(rows.gpus), _gpus),
        (_heat_height(rows.node_cpu), _nodes),
    ]


def _heat_height(lines: Mapping[str, Floats]) -> float:
    return max(0.5, 0.2 * min(len(lines), 40)) if lines else 0.0


def _dress(axis: Any, theme: Theme) -> None:
    axis.set_facecolor(theme.panel)
    axis.grid(color=theme.grid, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(colors=theme.muted, length=2)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _title(axis: Any, theme: Theme, text: str) -> None:
    axis.set_title(text, loc="left", fontsize=9, fontweight="bold", color=theme.text, parse_math=False)


def _tasks(axis: Any, rows: RunRows, theme: Theme) -> None:
    collection, date2num = need("matplotlib.collections").PolyCollection, need("matplotlib.dates").date2num
    bars = rows.bars
    row, spans = rows.lanes
    height = max(end for _, end in spans.values())
    begin, end = (date2num(rows.clock(bars[name].to_numpy())) for name in ("start", "stop"))
    low = height - 1 - row + 0.06
    corners = np.stack([np.column_stack(pair) for pair in ((begin, low), (end, low), (end, low + 0.88),
                                                           (begin, low + 0.88))], axis=1)  # fmt: skip
    fill = np.array([rows.colour.get(name, OTHER) for name in bars["type"]])
    bad = bars["bad"].to_numpy(dtype=bool)
    axis.add_collection(collection(corners, facecolors=fill, linewidths=0, rasterized=len(bars) > 5000))
    axis.add_collection(collection(corners[bad], facecolors="none", edgecolors=theme.text, linewidths=1))
    ticks = {name: height - (first + last) / 2 for name, (first, last) in spans.items()}
    shown = list(ticks)[:: -(-len(ticks) // 40)]
    axis.set_yticks([ticks[name] for name in shown], [_short(name) for name in shown], parse_math=False)
    axis.set_ylim(-0.4, height + 0.4)
    axis.grid(axis="y", visible=False)
    folded = ", several lanes to a row" if rows.folded else ""
    _title(axis, theme, f"Tasks on node lanes{folded}{': failed ones are outlined' if bad.any() else ''}")
    _legend(axis, theme, {name: rows.colour[name] for name in rows.colour if (bars["type"] == name).any()})


def _cpu(axis: Any, rows: RunRows, theme: Theme) -> None:
    _stacked(axis, rows, theme, rows.cpu or _NOTHING, 1.0, "Busy cores")


def _memory(axis: Any, rows: RunRows, theme: Theme) -> None:
    _stacked(axis, rows, theme, rows.memory or _NOTHING, _GIB, "Memory in use (GiB)")


_TRANSFERS = {"storage": ("read_bytes", "write_bytes"), "system calls": ("read_chars", "write_chars")}


def _io(axis: Any, rows: RunRows, theme: Theme) -> None:
    found = {word: rows.transfer("process", *names) for word, names in _TRANSFERS.items()}
    word, moved = next((word, moved) for word, moved in found.items() if moved is not None)
    for line, colour, name in ((moved[0], theme.read, "read"), (-moved[1], theme.write, "written")):
        axis.fill_between(rows.time, line / _MIB, color=colour, linewidth=0, alpha=0.85, label=name)
    axis.axhline(0, color=theme.muted, linewidth=0.7)
    axis.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,g}")
    _title(axis, theme, f"I/O of {word} (MiB/s): read above, written below")


def _gpus(axis: Any, rows: RunRows, theme: Theme) -> None:
    _heat(axis, rows, theme, rows.gpus, "GPU utilisation")


def _nodes(axis: Any, rows: RunRows, theme: Theme) -> None:
    _heat(axis, rows, theme, rows.node_cpu, "CPU of the nodes, all users")


def _heat(axis: Any, rows: RunRows, theme: Theme, lines: Mapping[str, Floats], title: str) -> None:
    """Draw percents by line and time; missing samples in a colour of their own."""
    colormap, date2num = need("matplotlib.colors").LinearSegmentedColormap, need("matplotlib.dates").date2num
    names = sorted(lines)
    table = np.vstack([lines[name] for name in names])
    colours = colormap.from_list("busy", theme.ramp).with_extremes(bad=theme.gap)
    edges = np.array([rows.grid.start_ns, rows.grid.stop_ns])
    left, right = date2num(rows.clock(edges))
    axis.imshow(np.ma.masked_invalid(table), aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=100,
                extent=(left, right, len(names), 0))  # fmt: skip
    shown = range(0, len(names), -(-len(names) // 40))
    axis.set_yticks([i + 0.5 for i in shown], [_short(names[i]) for i in shown], parse_math=False)
    axis.grid(visible=False)
    place = axis.inset_axes((1.01, 0, 0.01, 1))
    bar = axis.figure.colorbar(axis.images[0], cax=place, ticks=[0, 100], format="%d %%")
    bar.outline.set_visible(False)
    place.tick_params(colors=theme.muted, length=0)
    missing = " (no samples where it is reddish)" if np.isnan(table).any() else ""
    _title(axis, theme, f"{title}{missing}")


def _stacked(axis: Any, rows: RunRows, theme: Theme, stack: Stack, unit: float, title: str) -> None:
    """Draw layers on each other, what was asked for, and what there is where they come near it."""
    fill = {**rows.colour, OUTSIDE: theme.outside, OTHER_GROUPS: OTHER}
    lines = [np.nan_to_num(line) / unit for line in stack.layers.values()]
    if stack.missing is not None:
        axis.fill_between(rows.time, 0, 1, where=stack.missing, transform=axis.get_xaxis_transform(), step="mid",
                          color=theme.gap, linewidth=0)  # fmt: skip
    axis.stackplot(rows.time, *lines, colors=[fill.get(name, OTHER) for name in stack.layers], linewidth=0)
    top, said = float(np.sum(lines, axis=0).max()), []
    if stack.asked is not None:
        axis.step(rows.time, stack.asked / unit, where="mid", color=theme.text, linewidth=0.9)
        top = max(top, float(np.nanmax(stack.asked)) / unit)
        said.append("line: asked for")
    capacity = (stack.capacity or np.inf) / unit
    if top > 0.25 * capacity:
        axis.axhline(capacity, color=theme.text, linewidth=0.8, linestyle="--")
        top = max(top, capacity)
        said.append(f"dashed: {stack.capacity_label}")
    if stack.missing is not None and stack.missing.any():
        said.append("no samples where it is reddish")
    axis.set_ylim(0, 1.08 * top or 1.0)
    if len(lines) > 1:
        _legend(axis, theme, {name: fill.get(name, OTHER) for name in stack.layers})
    words = f" ({'; '.join(said)})" if said else ""
    grouped = ", by task group" if len(lines) > 1 else ""
    _title(axis, theme, f"{title}{grouped}{words}")


def _legend(axis: Any, theme: Theme, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    legend = axis.legend(
        [Patch(color=colour, linewidth=0) for colour in colours.values()], [_short(name, 24) for name in colours],
        loc="upper left", bbox_to_anchor=(1.0, 1.03), frameon=False, labelcolor=theme.muted, handlelength=0.9,
        fontsize=7,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _short(name: str, most: int = 14) -> str:
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"
