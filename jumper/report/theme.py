"""Colours and type of the report, light and dark, declared once for page and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jumper.schema.errors import JumperError

#: Okabe and Ito (2008), ordered so that the first six stay apart for readers without red, green or blue cones.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
OTHER = "#999999"
FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one theme: page, panels, text, lines, missing data, and the ramp of images."""

    name: str
    background: str
    panel: str
    text: str
    muted: str
    grid: str
    band: str
    gap: str
    read: str
    write: str
    ramp: tuple[str, ...]
    outside: str


LIGHT = Theme(
    "light", "#f6f7f9", "#ffffff", "#1c2733", "#5c6b7e", "#e6eaf0", "#f4f6f9", "#f6d5c3", "#0072B2", "#D55E00",
    ("#edf1f6", "#bcd4ea", "#6aaad6", "#2a78b8", "#08427f"),
    "#c3cbd6",
)  # fmt: skip
DARK = Theme(
    "dark", "#11161d", "#181f29", "#e3e8ef", "#93a0b1", "#2a3441", "#1d2631", "#5a3a2c", "#56B4E9", "#E8793A",
    ("#1d2733", "#1c4c77", "#2a86c4", "#79c3f5", "#e6f5ff"),
    "#4a5666",
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}


def theme_of(name: str) -> Theme:
    """Return a theme by name.

    Raises
    ------
    JumperError
        Where there is none of that name.
    """
    if name not in THEMES:
        raise JumperError(f"the theme must be one of {', '.join(THEMES)}, not {name!r}")
    return THEMES[name]


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each of at most seven names.

    Examples
    --------
    >>> colours(["a", "b"])
    {'a': '#0072B2', 'b': '#E69F00'}
    """
    return dict(zip(names, PALETTE, strict=False))


def styles(theme: Theme) -> dict[str, dict[str, Any]]:
    """Return how the page's Bokeh plots look: the properties of each kind of model."""
    return {
        "Plot": {"background_fill_color": theme.panel, "border_fill_color": theme.panel, "outline_line_color": None},
        "Title": {"text_font": FONT, "text_font_size": "13px", "text_font_style": "bold", "text_color": theme.text,
                  "offset": 0},
        "Axis": {"axis_label_text_font": FONT, "axis_label_text_font_size": "11px",
                 "axis_label_text_font_style": "normal", "axis_label_text_color": theme.muted,
                 "major_label_text_font": FONT, "major_label_text_font_size": "11px",
                 "major_label_text_color": theme.muted, "axis_line_color": None, "major_tick_line_color": theme.grid,
                 "minor_tick_line_color": None, "major_tick_out": 4, "major_tick_in": 0},
        "ColorBar": {"major_label_text_font": FONT, "major_label_text_font_size": "10px",
                     "background_fill_alpha": 0, "major_label_text_color": theme.muted},
    }  # fmt: skip
