"""Writing the page: rows and figures into the template, and the whole into one file that asks for nothing."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need
from jumper.schema.errors import RunError

if TYPE_CHECKING:
    from jumper.analysis.tables import RunTables
    from jumper.report.data import RunRows


def write_report(run: RunTables, path: str | os.PathLike[str], theme: str = "light") -> Path:
    """Write a run as one HTML file that works offline; return its path.

    Parameters
    ----------
    run : Run
    path : path
        The file, replaced whole where it exists; in a folder that exists, ``report.html``.
    theme : {"light", "dark"}

    Raises
    ------
    MissingExtraError
        Where the extra ``report`` is not installed.
    RunError
        Where the file cannot be written.

    Examples
    --------
    >>> import jumper                                                       # doctest: +SKIP
    >>> write_report(jumper.open_run("jumper-demo"), "report.html")         # doctest: +SKIP
    PosixPath('report.html')
    """
    target = Path(path)
    if target.is_dir():
        target = target / "report.html"
    text = page(run, theme)
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(draft, 0o644)
            os.replace(draft, target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot write the report to {target}: {reason}; choose another place") from error
    return target


def page(run: RunTables, theme: str = "light") -> str:
    """Return the page as text; see :func:`write_report`."""
    need("numpy", "pandas", "jinja2", "bokeh", "holoviews")
    from bokeh.embed import components
    from jinja2 import Environment, PackageLoader

    from jumper.analysis.findings import findings
    from jumper.analysis.summary import headline
    from jumper.report.data import RunRows
    from jumper.report.page import figures, tables
    from jumper.report.theme import FONT, bokeh_theme, theme_of

    colours = theme_of(theme)
    rows = RunRows(run)
    run = rows.run
    key = headline(run)
    timeline = figures.linked(rows, colours)
    script, div = components(timeline, theme=bokeh_theme(colours)) if timeline is not None else ("", "")
    attempts = tables.tasks(rows)
    environment = Environment(loader=PackageLoader("jumper.report", "page"), autoescape=True)
    folder = files("jumper.report") / "page"
    return environment.get_template("template.html").render(
        title=title_of(run), subtitle=_subtitle(rows, key), figures=_key_figures(key), findings=findings(run),
        theme=colours, font=FONT, legend=rows.colour, has_failed=bool(rows.bars["bad"].any()),
        timeline=div, script=script, notes=_notes(rows, attempts),
        groups=tables.groups(rows), attempts=attempts["total"], nodes=tables.nodes(rows),
        provenance=tables.provenance(rows, key), data=_json(attempts), css=(folder / "page.css").read_text("utf-8"),
        js=(folder / "page.js").read_text("utf-8"),
        bokeh=_bokeh_js() if timeline is not None else "",
    )  # fmt: skip


def _bokeh_js() -> str:
    """Return BokehJS alone; ``Resources.render`` would add what imported extensions (Panel) load from elsewhere."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


def title_of(run: RunTables) -> str:
    """Return what to call a run: its command, or its kind and id."""
    from jumper.report.page.tables import command_of

    command = command_of(run)
    if command and run.info.get("kind") == "command":
        return command if len(command) <= 120 else command[:119] + "…"
    kind = {"dask": "Dask run", "snakemake": "Snakemake run"}.get(str(run.info.get("kind")), "Run")
    return f"{kind} {run.info.get('run', '')}"


def _subtitle(rows: RunRows, key: dict[str, Any]) -> str:
    import numpy as np

    parts = []
    if key["start_ns"] is not None:
        start, stop = (
            datetime.fromtimestamp(int(t.astype("int64")) / 1e6, UTC)
            for t in rows.clock(np.array([key["start_ns"], key["stop_ns"]]))
        )
        end = f"{stop:%H:%M:%S}" if start.date() == stop.date() else f"{stop:%d %B %Y, %H:%M:%S}"
        parts.append(f"{start:%d %B %Y, %H:%M:%S} to {end} ({rows.zone})")
    if rows.run.info.get("finished_ns") is None:
        cluster = rows.run.info.get("kind") == "dask"
        parts.append("collected while the cluster was up" if cluster else "not finished when this was written")
    name = str(rows.run.info.get("run", ""))
    parts += ["" if name in title_of(rows.run) else name, f"samples every {rows.interval_s:g} s"]
    return " · ".join(part for part in parts if part)


def _key_figures(key: dict[str, Any]) -> list[tuple[str, str]]:
    from jumper.analysis.units import digits, human_bytes, human_seconds

    bad = key["failed"] + key["lost"]
    words = "task" if key["attempts"] == 1 else "tasks"
    out = [(human_seconds(key["wall_s"]), "wall time"),
           (f"{key['attempts']:,}", f"{words}, {bad} failed or lost" if bad else f"{words}, none failed")]  # fmt: skip
    if key["nodes"]:
        out.append((f"{key['nodes']}", ("node" if key["nodes"] == 1 else "nodes") +
                    (f", {key['cores']} CPUs" if key["cores"] else "")))  # fmt: skip
    outside = key["tasks_cpu_s"] is not None and key["cpu_s"] > 1.05 * key["tasks_cpu_s"]
    inside = f", {human_seconds(key['tasks_cpu_s'])} of it in tasks" if outside else ""
    out.append((human_seconds(key["cpu_s"]), f"CPU time{inside}"))
    if key["busy_cores"] is not None:
        part = f", {key['busy_cores'] / key['cores']:.0%} of all" if key["cores"] else ""
        out.append((digits(key["busy_cores"]), f"cores busy{part}"))
    out.append((human_bytes(key["memory_peak_bytes"]), "highest memory peak of a task"))
    for name, words in (("read", "read"), ("write", "written")):
        stored, called = key[f"{name}_bytes"], key[f"{name}_chars"]
        if stored or called:
            out.append((human_bytes(stored or called), f"{words} {'on storage' if stored else 'through system calls'}"))
    return [(figure, words) for figure, words in out if figure]


def _notes(rows: RunRows, attempts: dict[str, Any]) -> list[str]:
    """Return what the page leaves out, in words."""
    from jumper.report.elements import MOST_BARS

    notes = []
    total, drawn = attempts["total"], len(rows.bars)
    if rows.folded:
        lanes = max(end for _, end in rows.node_rows.values())
        notes.append(f"{drawn:,} attempts on {lanes:,} lanes: a row stands for several lanes and shows the group that "
                     "held them longest; those that failed are drawn one by one.")  # fmt: skip
    elif drawn > MOST_BARS:
        notes.append(f"The {MOST_BARS:,} longest and failed of {drawn:,} attempts are drawn one by one; for the others "
                     "each lane shows the group that held it longest.")  # fmt: skip
    if drawn < total:
        notes.append(f"{total - drawn:,} attempts have no start time and are not drawn.")
    if len(attempts["number"]) < total:
        notes.append(f"The table holds the {len(attempts['number']):,} longest and failed of {total:,} attempts; "
                     "all of them are in tasks.parquet of the run.")  # fmt: skip
    return notes


def _json(value: Any) -> str:
    """Return JSON that may stand inside a script element whatever it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
