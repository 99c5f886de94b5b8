"""`Run`: one run on disk, opened lazily; `open_run` merges what is not merged yet."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.schema import PART_COLUMNS, TASK_COLUMNS
from jumper.schema.errors import MissingExtraError, RunError
from jumper.store.rundir import RunDirectory, replacing

if TYPE_CHECKING:
    import pandas as pd

    from jumper.analysis.advice import Advice
    from jumper.analysis.comparison import Comparison
    from jumper.analysis.findings import Finding
    from jumper.report.plots import Plots

Progress = Callable[[int, int], None]
#: why a run's tables cannot be made where it is
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_TABLES = ("tasks.parquet", "parts.parquet", "events.parquet")


def _need(extra: str, error: ImportError) -> MissingExtraError:
    return MissingExtraError(f"reading a run needs {error.name}: pip install 'jumper-workflows[{extra}]'")


class Run:
    """What was measured: tasks, samples, events, on every node.

    Made by :func:`open_run`; tables are read when they are asked for.

    Attributes
    ----------
    path : Path
        The run directory.
    info : dict
        run.json, see docs/run.md.
    """

    def __init__(
        self, path: Path, info: dict[str, Any], tables: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self.path = path
        self.info = info
        self._temporary = tables  # lives as long as the run
        self._tables = RunDirectory(path if tables is None else tables.name)

    def __repr__(self) -> str:
        from jumper.report.card import repr_text

        return repr_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from jumper.report.card import repr_terminal

        printer.text(repr_terminal(self))

    def _repr_html_(self) -> str:
        from jumper.report.card import repr_html

        return repr_html(self)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """One row an attempt; columns and units in docs/run.md. Nullable types: Int64, Float64, string."""
        return self._frame("tasks.parquet")

    @cached_property
    def parts(self) -> pd.DataFrame:
        """One row per attempt and node."""
        return self._frame("parts.parquet")

    @cached_property
    def events(self) -> pd.DataFrame:
        """Gaps, lost workers, collectors switched off: ``time_ns``, ``node``, ``segment``, ``kind``, ``text``."""
        return self._frame("events.parquet")

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """Facts about each node that was measured, by its name."""
        nodes: dict[str, dict[str, Any]] = self.info.get("nodes", {})
        return nodes

    @property
    def streams(self) -> list[str]:
        """Streams that have samples."""
        return sorted({name.split("/")[1] for name in self.info.get("files", {})})

    def samples(self, stream: str, node: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the samples of a stream, by time.

        Parameters
        ----------
        stream : str
            One of :data:`jumper.schema.STREAMS`.
        node : str, optional
            Only of this node.
        columns : sequence of str, optional
            Only these, and ``time_ns``, ``mono_ns``, ``node``, ``segment``.

        Returns
        -------
        DataFrame
            Counters and gauges in base units (:data:`jumper.schema.COLUMNS`) with
            ``time_ns`` in UTC ns by the run's reference clock; empty where there are none.

        Raises
        ------
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        try:
            from jumper.store.tables import read_frame
        except ImportError as error:
            raise _need("report", error) from error
        files = self._tables.sample_files(stream, self.info.get("files", {}))
        wanted = None if columns is None else list(dict.fromkeys(["time_ns", "mono_ns", "node", "segment", *columns]))
        frame = read_frame(files, wanted)
        if node is not None and not frame.empty:
            frame = frame[frame["node"] == node]
        return frame.sort_values("time_ns", kind="stable", ignore_index=True) if "time_ns" in frame else frame

    @property
    def plot(self) -> Plots:
        """Pictures as HoloViews objects, ``run.plot.timeline()``: all that :class:`jumper.report.plots.Plots` has."""
        from jumper.report.plots import Plots

        return Plots(self)

    def summary(self, by: str = "group") -> pd.DataFrame:
        """Return one row a group (or ``node``, or ``key``) with what it cost."""
        from jumper.analysis.summary import summarize

        return summarize(self.tasks, by=by)

    def findings(self) -> list[Finding]:
        """Return what stands out, the most severe first, among equals what cost most; see docs/findings.md.

        Raises
        ------
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        try:
            from jumper.analysis.findings import findings
        except ImportError as error:
            raise _need("report", error) from error
        return findings(self)

    def advise(self, may_fail: float = 0.0, progress: Progress | None = None) -> list[Advice]:
        """Return what each group should ask for, the one that saves most first; see docs/advice.md.

        Parameters
        ----------
        may_fail : float
            Part of all attempts that may fail for lack of memory and be repeated with more,
            where that wastes less; 0: none of those that succeeded.
        progress : callable, optional
            Called with (groups done, groups in all).

        Raises
        ------
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        try:
            from jumper.analysis.advice import advise
            from jumper.analysis.nodetime import crowded
        except ImportError as error:
            raise _need("report", error) from error
        return advise(self.tasks, may_fail, progress, crowded=crowded(self))

    def compare(self, other: Run, columns: Sequence[str] | None = None) -> Comparison:
        """Return how the groups of another run differ from those of this one.

        Parameters
        ----------
        other : Run
        columns : sequence of str, optional
            Of the tasks table. Default: wall and CPU time, memory peak, characters read and written.

        Raises
        ------
        JumperError
            Where the runs are of different kinds or share no group.
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        try:
            from jumper.analysis.comparison import COLUMNS, compare
        except ImportError as error:
            raise _need("report", error) from error
        return compare(self.tasks, other.tasks, COLUMNS if columns is None else columns)

    def export(self, form: str, path: str | os.PathLike[str], progress: Progress | None = None) -> Path:
        """Write the run in another format and return where; see docs/export.md.

        Parameters
        ----------
        form : {"perfetto", "openmetrics", "csv", "benchmark-tsv", "png", "svg"}
        path : path
            Compressed where its name ends in ``.gz``.
        progress : callable, optional
            Called with (done, all).

        Raises
        ------
        JumperError
            Where there is no such format, or the place cannot be written.
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        from jumper.report.exports import export

        return export(self, form, Path(path), progress)

    def report(self, path: str | os.PathLike[str] | None = None, theme: str = "light") -> Path:
        """Write the report, one offline HTML file, and return its path (default: in the run).

        Raises
        ------
        MissingExtraError, RunError
            As :func:`jumper.report.page.write_report`.
        """
        from jumper.report.page import write_report

        return write_report(self, Path(path) if path is not None else self.path / "report.html", theme=theme)

    def _frame(self, name: str) -> pd.DataFrame:
        try:
            from jumper.store.tables import read_frame

            return read_frame(self._tables.path / name)
        except ImportError as error:
            raise _need("report", error) from error


def open_run(path: str | os.PathLike[str], progress: Progress | None = None) -> Run:
    """Open a run directory; what is in its spool and not in its tables is merged first.

    Where it cannot be written, or its disk is full, the tables are made in a temporary folder.

    Parameters
    ----------
    path : path
    progress : callable, optional
        Called with (segments done, segments in all) while merging.

    Raises
    ------
    RunError
        Where it is not a run, or of a newer schema.
    MissingExtraError
        Where merging or reading needs a package that is not installed.

    Examples
    --------
    >>> open_run("/nonexistent")
    Traceback (most recent call last):
        ...
    jumper.schema.errors.RunError: /nonexistent is not a run: there is no such directory
    """
    from jumper.store.merge import is_whole, segments_changed

    run = RunDirectory(path)
    info = run.read_info()
    tables = [run.path / name for name in (*_TABLES, *info.get("files", ()))]
    # tables can be made again only from segments: where these are gone, what is left is read
    whole = all(map(is_whole, tables)) if run.segments() else tables[0].exists()
    if whole and not segments_changed(run, info):
        return Run(run.path, info)
    if os.access(run.path, os.W_OK):
        try:
            return Run(run.path, _merge(run, run, info, progress))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
    apart = tempfile.TemporaryDirectory(prefix="jumper-run-")
    return Run(run.path, _merge(run, RunDirectory(apart.name), info, progress), apart)


def _merge(run: RunDirectory, out: RunDirectory, info: dict[str, Any], progress: Progress | None) -> dict[str, Any]:
    try:
        from jumper.analysis.attribution import attribute
        from jumper.store.merge import merge_segments, write_events
        from jumper.store.tables import read_frame, write_table
    except ImportError as error:
        raise _need("report", error) from error
    merged = merge_segments(run, out, info, progress)

    def load(stream: str) -> pd.DataFrame:
        return read_frame(out.sample_files(stream, merged.files))

    tasks, parts = attribute(merged, load)
    write_table(tasks, TASK_COLUMNS, out.path / "tasks.parquet")
    write_table(parts, PART_COLUMNS, out.path / "parts.parquet")
    write_events(merged, info, out)
    info = {**info, **_facts(merged, tasks, info)}
    info["coverage"]["own_cpu_s"] = _own_cpu_s(load("monitor"))
    out.write_info(info)
    return info


def _own_cpu_s(monitors: pd.DataFrame) -> float | None:
    """Return the CPU time that all monitors used, in seconds; None where none told."""
    if "cpu_ns" not in monitors:
        return None
    return float(monitors.groupby("segment")["cpu_ns"].max().sum() / 1e9)


def _facts(merged: Any, tasks: list[dict[str, Any]], info: dict[str, Any]) -> dict[str, Any]:
    """What run.json gains from merging: nodes, roots, clocks, files, coverage."""
    nodes, roots = dict(info.get("nodes", {})), []
    for record in merged.records:
        if record.get("type") == "node":
            hidden = ("type", "mono_ns", "wall_ns", "boot", "segment", "node", "interval_s")
            nodes[record["node"]] = {k: v for k, v in record.items() if k not in hidden}
        elif record.get("type") == "root":
            roots.append({k: v for k, v in record.items() if k not in ("type", "mono_ns", "wall_ns", "boot")})
    coverage = dict(info.get("coverage", {}))
    coverage["torn"] = sum(state["torn"] for state in merged.segments.values())
    coverage["missing_blocks"] = sum(state["missing"] for state in merged.segments.values())
    ends = [record for record in merged.records if record.get("type") == "end"]
    coverage["dropped"] = sum(int(record.get("dropped") or 0) for record in ends)
    coverage["gap_s"] = sum(task["gap_s"] or 0.0 for task in tasks)
    coverage["incomplete"] = sorted(name for name, state in merged.segments.items() if not state["complete"])
    created = info.get("created_ns") or min((t["start_ns"] for t in tasks if t["start_ns"]), default=time.time_ns())
    intervals = [r["interval_s"] for r in merged.records if r.get("interval_s")]
    return {
        "created_ns": created,
        "interval_s": info.get("interval_s") or (max(intervals) if intervals else None),
        "nodes": nodes,
        "roots": roots,
        "clocks": {
            name: {part: state[part] for part in ("offset_ns", "offset_end_ns", "error_ns", "exchanges")}
            for name, state in merged.segments.items()
        },
        "segments": merged.segments,
        "files": merged.files,
        "coverage": coverage,
    }


def merge(
    dirs: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], progress: Progress | None = None
) -> Run:
    """Merge runs and folders of segments into one run.

    Parameters
    ----------
    dirs : sequence of path
        Run directories, or spool folders with ``*.seg``.
    output : path
        The run to make, or to add to.

    Raises
    ------
    RunError
        Where nothing to merge is found, or the output cannot be written.
    """
    out = RunDirectory(output)
    found: list[Path] = []
    first: dict[str, Any] | None = None
    for folder in map(Path, dirs):
        run = RunDirectory(folder)
        segments = run.segments() or sorted(folder.glob("*.seg"))
        if not segments:
            raise RunError(f"{folder} has no segments to merge: expected spool/*.seg or *.seg in it")
        found += segments
        if first is None and (folder / "run.json").exists():
            first = run.read_info()
    if (out.path / "run.json").exists():
        first = out.read_info()
    else:
        first = first or {}
        more = {name: first[name] for name in ("interval_s", "coverage") if name in first}
        out.create(str(first.get("kind", "unknown")), run=first.get("run"), **more)
        out.update_info(command=first.get("command"), created_ns=first.get("created_ns"))
    for segment in found:
        target = out.spool / segment.name
        if not target.exists() or target.stat().st_size < segment.stat().st_size:
            with replacing(target) as partial:
                shutil.copyfile(segment, partial)
    return open_run(output, progress)
