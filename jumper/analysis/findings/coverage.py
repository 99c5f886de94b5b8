"""What the record lacks, and what it cost: absent parts, torn blocks, gaps, collectors that went off; the monitors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jumper.analysis.findings import snippets
from jumper.analysis.findings.finding import Finding, hours, listed, many, shown
from jumper.analysis.findings.thresholds import GAP_PART, OWN_PART, OWN_S
from jumper.analysis.findings.view import View
from jumper.analysis.tables import interval_of, texts
from jumper.analysis.units import human_seconds


def missing(view: View) -> Iterator[Finding]:
    """Parts that did not come, blocks that cannot be read, monitors and collectors that ended early."""
    known = view.run.info.get("coverage") or {}
    yield from _absent(view, known.get("missing") or [])
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


#: What to do about Dask workers whose figures did not come.
_WORKERS = (
    "What their tasks cost is in no sum. Give workers a spool that outlives them (JUMPER_SPOOL), and collect before "
    "they are closed; `jumper doctor` says on a node what hinders there."
)


def _absent(view: View, absent: Sequence[object]) -> Iterator[Finding]:
    """What was expected and did not come: attempts, Dask workers, nodes; the more severe where an attempt failed."""
    known = [item for item in absent if isinstance(item, dict)]
    jobs = [item for item in known if item.get("key")]
    workers = [item for item in known if item.get("worker") and not item.get("key")]
    others = [item for item in absent if not (isinstance(item, dict) and (item.get("key") or item.get("worker")))]
    if jobs:
        failed, why = _failed(view, "key", jobs), _reasons(jobs)
        told = listed([shown(str(item["key"])) for item in jobs])
        text = f"is not known ({told}){f'; {failed:,} of them failed' if failed else ''}{why}."
        subject = f"What {many(len(jobs), 'attempt')} cost"
        yield Finding("high" if failed else "medium", subject, text, _again(why), name="missing")
    if workers:
        failed, why = _failed(view, "worker", workers), _reasons(workers)
        told = listed([str(item.get("name") or item["worker"]) for item in workers])
        lost = f"; {many(failed, 'task')} of theirs failed or were lost" if failed else ""
        text = f"brought no figures home ({told}){lost}{why}."
        yield Finding("high" if failed else "medium", many(len(workers), "worker"), text, _WORKERS, name="missing")
    if others:
        named = "; ".join(map(_words, others[:5])) + ("; …" if len(others) > 5 else "")
        action = "Their figures are null, not zero. `jumper doctor` says on each node what hinders there."
        subject = many(len(others), "expected part")
        yield Finding("medium", subject, f"did not come: {named}.", action, name="missing")


def _failed(view: View, column: str, items: Sequence[dict[str, object]]) -> int:
    """Return how many attempts without a cost failed, of those whose column names one of these."""
    theirs = np.isin(view.texts(column).astype(str), [str(item[column]) for item in items])
    unknown = np.isnan(view.floats("cpu_s"))
    return int((theirs & unknown & np.isin(view.texts("state").astype(str), ["failed", "lost"])).sum())


def _reasons(items: Sequence[dict[str, object]]) -> str:
    found = sorted({str(item["reason"]) for item in items if item.get("reason")})
    return f": {'; '.join(found[:3])}" if found else ""


def _again(why: str) -> str:
    """Say what to do so that the cost of attempts is known next time."""
    if "no record" not in why:
        return "It is in no sum and no peak here. Run them again with `snakemake --logger jumper`."
    return (
        "It is in no sum and no peak here. One that failed before it began has none: its own log says why. Where jobs "
        "do not share this file system, name the folder of their logs: --logger-jumper-logs FOLDER."
    )


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
