"""The page `/jumper` in the scheduler's own dashboard: what the groups of tasks cost so far, and where.

Nothing is computed unless somebody looks: then each second the messages that came meanwhile are decoded
(`live.Live.look`) and the rows that changed are sent to the browser.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from jumper.analysis.units import human_bytes, human_seconds
from jumper_dask.live import Group

__all__ = ["PAGE", "PLOT", "add_page", "group_rows", "node_rows"]

PAGE = "/jumper"
#: Its name begins as those that Dask lists for JupyterLab (`/individual-plots.json`).
PLOT = "/individual-jumper-tasks"
PERIOD_MS = 1000
#: Rows of the tables, names of workers that are not measured, points of the lines: at most so many.
GROUPS_SHOWN = 50
NODES_SHOWN = 50
MISSING_SHOWN = 5
HISTORY = 300

Row = dict[str, Any]


def add_page(scheduler: Any) -> bool:
    """Add our pages to a running dashboard; return whether they are there.

    No where the scheduler has no dashboard, or bokeh is not installed. Pages cannot be removed again, and say so
    once the collector is gone.
    """
    module = sys.modules.get("distributed.dashboard.scheduler")
    bokeh = sys.modules.get("bokeh.server.tornado")
    if module is None or bokeh is None:
        return False
    applications = getattr(getattr(scheduler, "http_application", None), "applications", ())
    servers = [each for each in applications if isinstance(each, bokeh.BokehTornado)]
    if not servers or any(PAGE in each.app_paths for each in servers):
        return bool(servers)
    _serve(scheduler, module, servers[0])
    return True


def _serve(scheduler: Any, module: Any, first: Any) -> None:
    from tornado.ioloop import IOLoop

    variables = module.template_variables(scheduler)
    ours = module.BokehApplication(
        {PAGE: _page, PLOT: _plot}, scheduler, prefix=first.prefix, template_variables=variables
    )
    scheduler.http_application.add_application(ours)
    ours.initialize(IOLoop.current())
    ours.start()
    # the navigation bar of all pages is made from these lists; plots for JupyterLab from the first server's paths
    variables["pages"].append(PAGE.strip("/"))
    variables["plots"].append({"url": PLOT.strip("/"), "name": "Jumper Tasks"})
    first._applications[PLOT] = ours._applications[PLOT]


def group_rows(side: Any) -> list[Row]:
    """Return a row a group of tasks, the dearest first.

    Parameters
    ----------
    side : jumper_dask.scheduler.SchedulerSide

    Returns
    -------
    list of dict
        ``group``, counts ``processing``, ``waiting``, ``done``, ``failed``, then ``cpu_s``, ``wall_s``,
        ``peak_bytes``, ``read_bytes``, ``write_bytes`` as far as monitored workers reported them,
        and ``share`` of all CPU.
    """
    totals = side.live.look()
    prefixes = side.scheduler.task_prefixes
    all_ns = sum(group.cpu_ns for group in totals.values())
    rows = []
    for name in {*totals, *(name for name, prefix in prefixes.items() if any(prefix.states.values()))}:
        group = totals.get(name) or Group()
        states = prefixes[name].states if name in prefixes else {}
        rows.append(
            {
                "group": name,
                "processing": states.get("processing", 0),
                "waiting": sum(states.get(state, 0) for state in ("waiting", "queued", "no-worker")),
                "done": group.done,
                "failed": group.failed,
                "cpu_s": group.cpu_ns / 1e9,
                "cpu_each_s": group.cpu_ns / 1e9 / max(1, group.done + group.failed + group.cancelled),
                "share": group.cpu_ns / all_ns if all_ns else 0.0,
                "wall_s": group.wall_ns / 1e9,
                "busy": group.cpu_ns / group.wall_ns if group.wall_ns else 0.0,
                "peak_bytes": group.peak_bytes,
                "read_bytes": group.read_chars,
                "write_bytes": group.write_chars,
            }
        )
    return sorted(rows, key=lambda row: (-row["cpu_s"], -row["wall_s"], row["group"]))


def node_rows(side: Any) -> list[Row]:
    """Return a row a node with living workers: how many, how busy, how full, what measuring takes.

    ``cores`` is null until two messages came; ``own`` is the CPU of samplers, in per cent of a core;
    ``limit_bytes`` is null where a worker has no limit. Unmeasured workers stand under the host of their address.
    """
    seen = {each.worker: each for each in side.live.processes()}
    nodes: dict[str, Row] = {}
    for address, ws in side.scheduler.workers.items():
        name = side.node_of(address)
        row = nodes.setdefault(
            name,
            {"node": name, "workers": 0, "measured": 0, "threads": 0, "cores": None, "rss_bytes": 0,
             "limit_bytes": 0, "own": 0.0, "age_s": None},
        )  # fmt: skip
        row["workers"] += 1
        row["measured"] += side.is_measured(address)
        row["threads"] += ws.nthreads
        if row["limit_bytes"] is not None:
            row["limit_bytes"] = row["limit_bytes"] + ws.memory_limit if ws.memory_limit else None
        if (said := seen.get(address)) is not None:
            row["cores"] = _sum(row["cores"], said.cores)
            row["rss_bytes"] += said.rss_bytes
            row["own"] += 100 * said.own
            row["age_s"] = max(row["age_s"] or 0.0, said.age_s)
    return [nodes[name] for name in sorted(nodes)]


def _sum(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b


# what is drawn of them

STYLE = """
:host {font: 13px system-ui, sans-serif; color: #222}
.bk-clearfix {display: block; width: 100%; overflow-x: auto}
.figures {display: flex; flex-wrap: wrap; gap: 10px 34px; margin: 6px 8px}
.figures b {display: block; font-size: 22px; font-weight: 600; line-height: 1.2}
.figures span, caption, th {color: #666; font-weight: normal}
table {border-collapse: collapse; width: 100%; margin: 8px 0}
caption {text-align: left; padding: 2px 8px; font-weight: 600; color: #444}
th, td {text-align: right; padding: 4px 8px; white-space: nowrap; font-variant-numeric: tabular-nums}
th:first-child, td:first-child {text-align: left; max-width: 22em; overflow: hidden; text-overflow: ellipsis}
thead tr {border-bottom: 1px solid #bbb} tbody tr + tr {border-top: 1px solid #e6e6e6}
td.bar {width: 22%; min-width: 8em; padding-right: 14px} td.bar i {display: block; height: 12px; min-width: 1px}
p {margin: 4px 8px; color: #666} .bad {color: #b3261e}
"""
#: In Dask's frame. Its own `simple.html` stays empty where panel, which replaces bokeh's handlers, is imported.
TEMPLATE = """{% extends "base.html" %}{% block content %}{% from macros import embed %}
{{ embed(roots.jumper) }}{{ plot_script }}{% endblock %}"""


class _View:
    """The models of one session, and what renews them."""

    def __init__(self, scheduler: Any) -> None:
        from bokeh.models import ColumnDataSource

        self.scheduler = scheduler
        self.head, self.groups, self.nodes, self.foot = (
            _text(name) for name in ("jumper-head", "jumper-groups", "jumper-nodes", "jumper-foot")
        )
        self.history = ColumnDataSource({"time": [], "cores": [], "rss_gib": []}, name="jumper-history")
        self._points: deque[tuple[float, float, float]] = deque(maxlen=HISTORY)

    def update(self) -> None:
        """Renew what has changed since the last time; a model tells the browser so only where its value is another."""
        side = getattr(self.scheduler.plugins.get("jumper-collector"), "side", None)
        if side is None:
            self.head.text = "<p>Nothing is measured now: no jumper plugin is registered.</p>"
            return
        groups, nodes = group_rows(side), node_rows(side)
        cores = [row["cores"] for row in nodes if row["cores"] is not None]
        self.head.text = _head(groups, nodes)
        self.groups.text = _group_table(groups)
        self.nodes.text = _node_table(nodes)
        self.foot.text = _foot(side)
        memory = sum(row["rss_bytes"] for row in nodes) / 2**30
        self._points.append((time.time() * 1e3, sum(cores) if cores else math.nan, memory))
        # `stream` would import pandas on the scheduler's loop
        self.history.data = {
            name: [point[index] for point in self._points] for index, name in enumerate(("time", "cores", "rss_gib"))
        }

    def figure(self, column: str, title: str, color: str) -> Any:
        """Return a line over the time that this session has been looking."""
        from bokeh.models import DataRange1d
        from bokeh.plotting import figure

        plot = figure(
            title=title,
            x_axis_type="datetime",
            y_range=DataRange1d(start=0, range_padding=0.15),
            height=170,
            sizing_mode="stretch_width",
            tools="",
            toolbar_location=None,
            output_backend="canvas",
        )
        plot.varea("time", y1=0, y2=column, source=self.history, fill_color=color, fill_alpha=0.25)
        plot.line("time", column, source=self.history, line_color=color, line_width=2)
        plot.xgrid.grid_line_color = None
        plot.outline_line_color = None
        return plot


def _page(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    from bokeh.layouts import column, row

    view = _View(scheduler)
    cores = view.figure("cores", "cores busy, of all workers", "#2d6a8e")
    memory = view.figure("rss_gib", "resident memory of all workers, GiB", "#8a5a00")
    lines = row(cores, memory, sizing_mode="stretch_width")
    _show(
        doc,
        view,
        column(view.head, lines, view.groups, view.nodes, view.foot, sizing_mode="stretch_width", name="jumper"),
    )
    components = sys.modules["distributed.dashboard.components.scheduler"]
    doc.template = components.env.from_string(TEMPLATE)
    doc.template_variables.update(extra)


def _plot(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    view = _View(scheduler)
    _show(doc, view, view.groups)


def _show(doc: Any, view: _View, root: Any) -> None:
    view.update()
    doc.add_periodic_callback(view.update, PERIOD_MS)
    doc.add_root(root)
    doc.title = "Dask: Jumper"
    doc.theme = sys.modules["distributed.dashboard.components.scheduler"].BOKEH_THEME


def _text(name: str) -> Any:
    from bokeh.models.widgets import Div

    return Div(name=name, sizing_mode="stretch_width", stylesheets=[STYLE])


def _head(groups: list[Row], nodes: list[Row]) -> str:
    """Return the key figures of all groups and nodes, as HTML."""
    cores = [row["cores"] for row in nodes if row["cores"] is not None]
    measured, workers = sum(row["measured"] for row in nodes), sum(row["workers"] for row in nodes)
    own = sum(row["own"] for row in nodes) / max(1, measured)
    figures = [
        (human_seconds(sum(row["cpu_s"] for row in groups)), "CPU of tasks so far"),
        (f"{sum(row['done'] for row in groups):,}", "tasks done"),
        (f"{sum(row['failed'] for row in groups):,}", "failed"),
        (f"{sum(cores):.1f} of {sum(row['threads'] for row in nodes)}" if cores else "-", "cores busy, of threads"),
        (human_bytes(sum(row["rss_bytes"] for row in nodes)), "resident memory"),
        (f"{measured} of {workers}", "workers measured"),
        (f"{own:.2f} %", "of a core for sampling a worker"),
    ]
    cells = "".join(f"<div><b>{html.escape(value)}</b><span>{name}</span></div>" for value, name in figures)
    return f'<div class="figures">{cells}</div>'


def _group_table(rows: list[Row]) -> str:
    """Return what the groups cost as an HTML table, a bar for each group's share in the colour that Dask gives it."""
    from distributed.diagnostics import progress_stream

    color_of: Any = vars(progress_stream)["color_of"]
    most = max((row["share"] for row in rows), default=0.0) or 1.0
    lines = [
        (
            html.escape(row["group"]),
            f'<i style="width:{row["share"] / most:.1%};background:{color_of(row["group"])}"></i>',
            human_seconds(row["cpu_s"]),
            f"{row['share']:.0%}",
            human_seconds(row["cpu_each_s"]),
            human_seconds(row["wall_s"]),
            f"{row['busy']:.2f}",
            human_bytes(row["peak_bytes"]) if row["peak_bytes"] else "",
            human_bytes(row["read_bytes"]),
            human_bytes(row["write_bytes"]),
            f"{row['processing']:,}",
            f"{row['waiting']:,}",
            f"{row['done']:,}",
            f"{row['failed']:,}",
        )
        for row in rows[:GROUPS_SHOWN]
    ]
    names = ("task group", "", "CPU", "of all", "CPU a task", "wall", "cores", "memory peak", "read", "written",
             "at work", "waiting", "done", "failed")  # fmt: skip
    said = "tasks by group" + (f", the first {GROUPS_SHOWN} of {len(rows)}" if len(rows) > GROUPS_SHOWN else "")
    return _table(said, names, lines)


def _node_table(rows: list[Row]) -> str:
    lines = [
        (
            html.escape(row["node"]),
            f"{row['workers']:,}",
            f"{row['measured']:,}",
            f"{row['threads']:,}",
            "" if row["cores"] is None else f"{row['cores']:.2f}",
            human_bytes(row["rss_bytes"]),
            human_bytes(row["limit_bytes"]),
            f"{row['own']:.2f} %",
            human_seconds(None if row["age_s"] is None else round(row["age_s"])),
        )
        for row in rows[:NODES_SHOWN]
    ]
    names = ("node", "workers", "measured", "threads", "cores busy", "resident memory", "memory limit",
             "sampling, of a core", "heard ago")  # fmt: skip
    said = "nodes" + (f", the first {NODES_SHOWN} of {len(rows)}" if len(rows) > NODES_SHOWN else "")
    return _table(said, names, lines)


def _table(caption: str, names: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f'<td class="bar">{c}</td>' if c[:2] == "<i" else f"<td>{c}</td>" for c in line) + "</tr>"
        for line in lines
    )
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _foot(side: Any) -> str:
    """Return which run it is, how much of it is home, and who is missing, as HTML."""
    info = side.info()
    missing = info["coverage"]["missing"]
    home = human_bytes(side.folder.total)
    lines = [f"<p>Run {html.escape(info['run'])}, {home} at the scheduler. A task is added when it has ended.</p>"]
    lines += [
        f'<p class="bad">not measured: {html.escape(str(each["name"]))}: {html.escape(str(each["reason"]))}</p>'
        for each in missing[:MISSING_SHOWN]
    ]
    if len(missing) > MISSING_SHOWN:
        lines.append(f'<p class="bad">and {len(missing) - MISSING_SHOWN} more</p>')
    return "".join(lines)
