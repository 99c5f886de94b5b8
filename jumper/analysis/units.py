"""Figures for people: bytes and seconds with a unit that fits; stdlib only."""

from __future__ import annotations

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(value: float | None) -> str:
    """Return bytes with a binary unit and three digits.

    Examples
    --------
    >>> human_bytes(512), human_bytes(1.5 * 2**30), human_bytes(-2048), human_bytes(None)
    ('512 B', '1.50 GiB', '-2.00 KiB', '')
    """
    if value is None:
        return ""
    size, unit = float(value), 0
    while abs(size) >= 999.5 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{digits(size)} {_BYTES[unit]}"


def human_seconds(value: float | None) -> str:
    """Return seconds for reading.

    Examples
    --------
    >>> human_seconds(0.0123), human_seconds(4.2), human_seconds(83), human_seconds(7384), human_seconds(None)
    ('12.3 ms', '4.20 s', '1 min 23 s', '2 h 03 min', '')
    """
    if value is None:
        return ""
    if 0 < value < 0.9995:
        return f"{digits(value * 1e3)} ms"
    if value < 60:
        return f"{digits(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def digits(value: float) -> str:
    """Return a number with three digits, no exponent, no padding beyond its unit.

    Examples
    --------
    >>> digits(0), digits(1.234), digits(12.34), digits(1234.5)
    ('0', '1.23', '12.3', '1,234')
    """
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def percent(part: float) -> str:
    """Return a part in percent; what is there and rounds to nothing is below 1 %.

    Examples
    --------
    >>> percent(0.372), percent(0.0028), percent(0), percent(1.5)
    ('37%', '<1%', '0%', '150%')
    """
    return "<1%" if 0 < part <= 0.005 else f"{part:.0%}"


def counted(number: int, thing: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "node"), counted(1200, "attempt")
    ('1 node', '1,200 attempts')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
