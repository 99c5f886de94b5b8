"""What the sub-processes of a lost attempt cost: its worker died before it could say, so the samples must.

What a worker's tree used beyond its own threads is its sub-processes'. It goes to the attempts that were at work when
the worker died, in equal parts, less what attempts that ended meanwhile had for their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jumper.analysis.series import Samples, Series

if TYPE_CHECKING:
    from jumper.analysis.attribution import Attempt

Row = dict[str, Any]
#: counter of the samples -> (column of the tasks table, its unit in that of the counter)
_COUNTERS = {"cpu_ns": ("cpu_s", 1e9)} | {
    name: (name, 1) for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")
}


class Place(NamedTuple):
    """The process that attempts ran in."""

    node: str
    boot: str
    pid: int


def add_children(rows: Iterable[Row], attempts: Iterable[Attempt], samples: Samples) -> None:
    """Add to each lost attempt's row its share of what its worker's sub-processes had used by the last sample.

    Only where processes were seen to begin while it ran; its row is then flagged ``estimated``.

    Parameters
    ----------
    rows : iterable of dict
        Of the tasks table, changed in place.
    attempts : iterable of Attempt
        What was recorded of each.
    samples : Samples
    """
    lost: dict[Place, list[tuple[Row, Row]]] = {}
    ended: dict[Place, list[Mapping[str, Any]]] = {}
    for row, attempt in zip(rows, attempts, strict=True):
        start, facts = attempt.start, attempt.facts
        if start is None or start.get("witness") is not None or not facts.get("base"):
            continue
        place = Place(str(start["node"]), str(start["boot"]), int(facts["pid"]))
        if facts.get("end"):
            ended.setdefault(place, []).append(facts)
        elif row["state"] == "lost":
            lost.setdefault(place, []).append((row, start))
    for place, those in lost.items():
        tree = samples.process(*place)
        if tree is None:
            continue
        threads = samples.threads(*place)
        for row, start in those:
            _add(row, _Stretch.of(tree, int(start["mono_ns"])), tree, threads, ended.get(place, ()), len(those))


class _Stretch(NamedTuple):
    """From the last sample before an attempt, else the first one, to the last one of all; monotonic ns."""

    begin: int
    end: int

    @classmethod
    def of(cls, tree: Series, start: int) -> _Stretch:
        low, _ = tree.window(start, start)
        return cls(int(tree.mono[max(0, low - 1)]), int(tree.mono[-1]))

    def grown(self, series: Series, name: str, born_here: bool = False) -> float | None:
        """Return what a counter grew by; of what is ``born_here``, all that it has if it was not there before."""
        first = series.last(name, 0, series.window(self.begin, self.begin)[1])
        last = series.last(name, 0, series.window(self.end, self.end)[1])
        if first is None and born_here:
            first = 0.0
        return None if last is None or first is None else last - first


def _add(
    row: Row,
    stretch: _Stretch,
    tree: Series,
    threads: list[Series],
    ended: Iterable[Mapping[str, Any]],
    at_work: int,
) -> None:
    if not stretch.grown(tree, "processes_seen"):
        return
    known = [facts.get("children") or {} for facts in ended if int(facts["mono_ns"]) > stretch.begin]
    for counter, (column, unit) in _COUNTERS.items():
        whole = stretch.grown(tree, counter)
        own = sum(stretch.grown(series, counter, born_here=True) or 0.0 for series in threads)
        if whole is None or row[column] is None:
            continue
        share = (whole - own - sum(float(children.get(counter) or 0) for children in known)) / at_work
        if share > 0:
            row[column] += share / unit if unit != 1 else int(share)
    row["flags"].append("estimated")
