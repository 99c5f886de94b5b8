"""Pictures by group that need no script: where their lines lie, for the SVG of the template; all texts go through it.

The numbers are those of :mod:`jumper.report.charts`, which draws the same for notebooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jumper.analysis.tables import floats
from jumper.analysis.units import digits, human_bytes, human_seconds, percent
from jumper.report.charts import asked_rows, ranged, values
from jumper.report.data import RunRows
from jumper.report.theme import OTHER

if TYPE_CHECKING:
    from jumper.analysis.tables import Floats

#: Groups that a picture shows, and dots of one group beyond its whiskers.
MOST_ROWS, MOST_DOTS = 12, 20
ROW, TOP, BOTTOM = 24, 30, 20
#: column, title, how a value is said
BOXES = (("wall_s", "Duration", human_seconds), ("cores", "Cores used", digits),
         ("memory_peak_bytes", "Memory peak", human_bytes))  # fmt: skip


def boxes(rows: RunRows) -> list[dict[str, Any]]:
    """Return how duration, cores and memory are spread by group, over the attempts that succeeded.

    Returns
    -------
    list of dict
        Of each picture: ``title``, ``words``, size, ``ticks`` (place, text), ``rows``: places of
        whiskers (1.5 times the box), quartiles, median, and of what lies beyond.
    """
    found = [_boxes(values(rows, column), rows, title, say) for column, title, say in BOXES]
    return [chart for chart in found if chart is not None]


def _boxes(groups: dict[str, Floats], rows: RunRows, title: str, say: Any) -> dict[str, Any] | None:
    groups = dict(list(groups.items())[:MOST_ROWS])
    if not groups or sum(map(len, groups.values())) < 3:
        return None
    chart = _frame(title, len(groups), max(float(line.max()) for line in groups.values()), say, 400, 96, 14)
    x = chart["x"]
    for number, (name, line) in enumerate(groups.items()):
        first, median, last = np.quantile(line, [0.25, 0.5, 0.75])
        reach = 1.5 * (last - first)
        inside = line[(line >= first - reach) & (line <= last + reach)]
        beyond = np.sort(line[(line < first - reach) | (line > last + reach)])
        if len(beyond) > MOST_DOTS:
            beyond = beyond[np.linspace(0, len(beyond) - 1, MOST_DOTS).astype(int)]
        words = f"{name}: median {say(median)}, half of them {say(first)} to {say(last)}, highest {say(line.max())}"
        chart["rows"].append({
            "label": _label(name), "y": TOP + ROW * number + ROW // 2, "colour": rows.colour.get(name, OTHER),
            "low": x(inside.min()), "high": x(inside.max()), "first": x(first), "median": x(median),
            "box": max(x(last) - x(first), 1.5), "beyond": [x(value) for value in beyond], "words": words,
        })  # fmt: skip
    chart["words"] = "; ".join(row["words"] for row in chart["rows"])
    return chart


def asked(rows: RunRows) -> dict[str, Any] | None:
    """Return what memory groups asked for (else were allowed) beside their highest peak, the most wasteful first."""
    table = asked_rows(rows, "memory").head(MOST_ROWS)
    if table.empty:
        return None
    top = float(table[["highest", "asked"]].to_numpy(dtype=float).max())
    bounds = " or ".join(word for word in ("asked for", "allowed") if (table["word"] == word.split()[0]).any())
    chart = _frame(f"Memory: {bounds} (tick) and highest peak (bar)", len(table), top, human_bytes, 1200, 130, 270)
    x = chart["x"]
    figures = zip(map(str, table["group"]), floats(table, "highest"), floats(table, "least_asked"),
                  floats(table, "asked"), table["word"], strict=True)  # fmt: skip
    for number, (group, peak, least, bound, word) in enumerate(figures):
        text = f"{word} {ranged(least, bound, human_bytes)}, highest peak {human_bytes(peak)} ({percent(peak / bound)})"
        chart["rows"].append({
            "label": _label(group), "y": TOP + ROW * number + ROW // 2, "colour": rows.colour.get(group, OTHER),
            "peak": x(peak), "box": x(peak) - chart["left"], "asked": x(bound),
            "text": text, "text_x": max(x(bound), x(peak)) + 10, "words": f"{group}: {text}",
        })  # fmt: skip
    chart["words"] = "; ".join(row["words"] for row in chart["rows"])
    return chart


def _frame(title: str, count: int, top: float, say: Any, width: int, left: int, right: int) -> dict[str, Any]:
    """Return an empty picture: its size, its ticks, and ``x``, which places a value."""
    step = _step(top, 1024.0 if say is human_bytes else 10.0)
    limit = max(top * 1.03, step)

    def x(value: float) -> float:
        return round(left + float(value) / limit * (width - left - right), 1)

    ticks = [(x(value), say(value) if value else "0") for value in np.arange(0, limit + step / 1e6, step)]
    return {"title": title, "width": width, "height": TOP + ROW * count + BOTTOM, "left": left, "ticks": ticks,
            "rows": [], "x": x}  # fmt: skip


def _step(top: float, base: float) -> float:
    """Return a round distance of ticks, of which four to six reach the top.

    Examples
    --------
    >>> _step(47, 10.0), _step(3.1 * 2**30, 1024.0) / 2**30
    (10.0, 1.0)
    """
    if top <= 0:
        return 1.0
    unit = base ** np.floor(np.log(top) / np.log(base)) if base == 1024.0 else 1.0
    rough = top / 4 / unit
    power = 10.0 ** np.floor(np.log10(rough))
    nice = min((factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0)), key=lambda step: abs(step - rough))
    return float(nice * unit)


def _label(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:7]}…{name[-6:]}"
