"""Writing the page: rows and figures into the template, and the whole into one file that asks for nothing."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.report.extra import need
from jumper.store.rundir import replacing, writing

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
    with writing(target, "the report to "), replacing(target) as partial:
        partial.write_text(text, encoding="utf-8")
    return target


def page(run: RunTables, theme: str = "light") -> str:
    """Return the page as text; see :func:`write_report`."""
    need("numpy", "pandas", "jinja2", "bokeh")
    from jinja2 import Environment, PackageLoader

    from jumper.analysis.findings import findings
    from jumper.analysis.summary import headline
    from jumper.report.data import RunRows
    from jumper.report.found import lead
    from jumper.report.page import charts, figures, tables, words
    from jumper.report.theme import FONT, theme_of

    colours = theme_of(theme)
    rows = RunRows(run)
    run = rows.run
    key, found = headline(run), findings(run)
    timeline = figures.linked(rows, colours)
    drawing = _json(_item(timeline)) if timeline is not None else ""
    attempts, nodes = tables.tasks(rows), tables.nodes(rows)
    groups = tables.groups(rows, found)
    environment = Environment(loader=PackageLoader("jumper.report", "page"), autoescape=True)
    folder = files("jumper.report") / "page"
    return environment.get_template("template.html").render(
        title=title_of(run), subtitle=_subtitle(rows, key), lead=lead(found), calm=words.calm(key),
        figures=words.key_figures(rows, key), findings=found, parts=_parts(bool(groups), bool(nodes)),
        theme=colours, font=FONT, legend=rows.colour, marks=words.marks(rows, colours),
        has_failed=bool(rows.bars["bad"].any()), drawing=drawing, words=words.in_words(rows),
        notes=words.notes(rows, attempts), groups=groups, group_heads=tables.GROUP_HEADS,
        more_groups=words.left_out(len(rows.by_group), len(groups), "groups", "the most CPU time"),
        boxes=charts.boxes(rows), asked=charts.asked(rows), nodes=nodes,
        more_nodes=words.left_out(words.node_count(rows), len(nodes), "nodes", "the first names"),
        provenance=tables.provenance(rows, key), data=_json(attempts), css=(folder / "page.css").read_text("utf-8"),
        js=(folder / "page.js").read_text("utf-8"), bokeh=_bokeh_js() if drawing else "",
    )  # fmt: skip


def _parts(groups: bool, nodes: bool) -> list[tuple[str, str]]:
    """Return anchors of the page and their names, those that it has."""
    parts = [("findings", "findings", True), ("timeline", "timeline", True), ("groups", "groups", groups),
             ("tasks-part", "tasks", groups), ("nodes", "nodes", nodes), ("provenance", "measuring", True)]  # fmt: skip
    return [(name, text) for name, text, there in parts if there]


def _item(layout: Any) -> dict[str, Any]:
    """Return what ``Bokeh.embed.embed_item`` draws.

    That of ``bokeh.embed.json_item``, which spends half of its time on checking for mistakes that only we could make.
    """
    from bokeh.document import Document

    document = Document()
    document.add_root(layout)
    return {"root_id": layout.id, "doc": document.to_json(deferred=False)}


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


def _json(value: Any) -> str:
    """Return JSON that may stand inside a script element whatever it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
