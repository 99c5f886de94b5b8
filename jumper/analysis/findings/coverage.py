"""What the record lacks, and what it cost: absent parts, torn blocks, gaps, collectors that went off; the monitors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, hours, many
from jumper.analysis.findings.thresholds import GAP_PART, OWN_PART, OWN_S
from jumper.analysis.findings.view import View
from jumper.analysis.tables import interval_of, texts
from jumper.analysis.units import human_seconds


def missing(view: View) -> Iterator[Finding]:
    """Parts that did not come, blocks that cannot be read, monitors and collectors that ended early."""
    known = view.run.info.get("coverage") or {}
    absent = known.get("missing") or []
    if absent:
        named = "; ".join(_words(item) for item in absent[:5]) + ("; …" if len(absent) > 5 else "")
        subject = many(len(absent), "expected part")
        yield Finding("medium", subject, f"did not come: {named}.", "Their figures are null, not zero.", name="missing")
    for name, words in (("torn", "could not be read"), ("missing_blocks", "did not come"),
                        ("dropped", "could not be written")):  # fmt: skip
        if known.get(name):
            subject = many(int(known[name]), "block")
            yield Finding("medium", subject, f"of samples {words}.", "Peaks may be too low.", name="missing")
    open_ended = known.get("incomplete") or []
    if open_ended and view.run.info.get("finished_ns"):
        text = f"did not end in order: {', '.join(map(str, open_ended[:5]))}."
        yield Finding(
            "info", many(len(open_ended), "monitor"), text, "What was taken until then is here.", name="missing"
        )
    kinds, words_of = texts(view.run.events, "kind"), texts(view.run.events, "text")
    for kind, subject in (("monitor-lost", "A monitor was lost:"), ("collector-off", "A collector was switched off:")):
        said = sorted({words_of[i] for i, k in enumerate(kinds) if k == kind})
        for text in said[:5]:
            yield Finding("medium", subject, text or "no reason was recorded.", name="missing")


def gaps(view: View) -> Iterator[Finding]:
    """Time inside of attempts that no sample covers."""
    lacking = np.nan_to_num(view.floats("gap_s"))
    seconds, wall = float(lacking.sum()), float(np.nansum(view.wall))
    if seconds > 0 and seconds >= GAP_PART * wall:
        share = f" ({seconds / wall:.0%} of their time)" if wall > 0 else ""
        text = f"without samples, inside {many(int((lacking > 0).sum()), 'attempt')}{share}."
        yield Finding("info", human_seconds(seconds), text, "Sampled peaks there are lower bounds.", name="gap")


def own_cost(view: View) -> Iterator[Finding]:
    """Monitors that used more than they should."""
    samples = view.run.samples("monitor")
    if not {"cpu_ns", "time_ns", "segment"} <= set(samples.columns) or samples.empty:
        return
    found = samples.groupby("segment")[["time_ns", "cpu_ns"]].agg(["min", "max"]).astype("float64")
    watched = float(np.nansum(found["time_ns"]["max"] - found["time_ns"]["min"]))
    used = float(np.nansum(found["cpu_ns"]["max"] - found["cpu_ns"]["min"]))
    if watched >= OWN_S * 1e9 and used >= OWN_PART * watched:
        text = (f"took {used / watched:.1%} of a core for each of {many(len(found), 'monitor')}: "
                f"{hours(used / 3.6e12, 'core')}.")  # fmt: skip
        wanted = 2 * interval_of(view.run)
        snippet = snippets.interval(str(view.run.info.get("kind") or ""), wanted)
        action = f"Sample every {human_seconds(wanted)}, or watch fewer levels."
        yield Finding("info", "Measuring", text, action, snippet, "own-cost", used / 3.6e12)


def _words(item: object) -> str:
    if isinstance(item, dict):
        reason = f": {item['reason']}" if item.get("reason") else ""
        return ", ".join(f"{key} {value}" for key, value in item.items() if key != "reason") + reason
    return str(item)
