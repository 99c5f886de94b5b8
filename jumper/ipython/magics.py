"""`%perfmonitor_start` and its kin: each magic reads its line, asks the service, and shows what it answers."""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display

from jumper.core.service import PerfmonitorService, build_perfmonitor_service
from jumper.monitor.backends import ALIASES, BACKENDS
from jumper.schema.errors import JumperError

__all__ = ["PerfmonitorMagics", "load", "unload"]

_HERE = "_jumper_magics"


class _Parser(argparse.ArgumentParser):
    """Reads the line of a magic; a mistake is one line of the notebook, not the end of the kernel."""

    def __init__(self, magic: str, description: str) -> None:
        super().__init__(prog=magic, description=description, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {' '.join(self.format_usage().split())}")

    def read(self, line: str) -> argparse.Namespace:
        try:
            words = shlex.split(line)
        except ValueError as error:
            self.error(str(error))
        if "--cell" in words[:-1]:  # or "-3:" would be taken for an option
            at = words.index("--cell")
            words[at : at + 2] = [f"--cell={words[at + 1]}"]
        return self.parse_args(words)


def _monitor_options(parser: _Parser) -> _Parser:
    parser.add_argument("interval", nargs="?", type=float, default=1.0)
    parser.add_argument("--monitor", default="default", metavar="TYPE")
    return parser


def _which_options(parser: _Parser) -> _Parser:
    parser.add_argument("--cell", metavar="CELLS")
    parser.add_argument("--level", default="process")
    parser.add_argument("--node")
    return parser


START = _monitor_options(_Parser("%perfmonitor_start", "Start to measure, every second or every so many."))
START.add_argument("--check-sanity", action="store_true")
CELL = _monitor_options(_Parser("%%perfmonitor", "Run this cell and report what it cost."))
CELL.add_argument("--level", default="process")
CELL.add_argument("--text", action="store_true")
REPORT = _which_options(_Parser("%perfmonitor_perfreport", "Show duration, tags, averages, and the cost of each cell."))
REPORT.add_argument("--text", action="store_true")
PLOT = _which_options(_Parser("%perfmonitor_plot", "Draw groups (cpu, memory, io, gpu, cpu_all ...) or any columns."))
PLOT.add_argument("--metrics", metavar="A,B")
PLOT.add_argument("--file", metavar="F")
PLOT.add_argument("--live", nargs="*", type=float, metavar="SECONDS")
EXPORT = _Parser("%perfmonitor_export_perfdata", "Write the samples, or put them into a variable.")
EXPORT.add_argument("path", nargs="?", metavar="FILE")
EXPORT.add_argument("--file")
EXPORT.add_argument("--name", default="perfdata_df")
EXPORT.add_argument("--level", default="process")
EXPORT.add_argument("--node")
SAVE = _Parser("%export_session", "Write everything that was measured: a directory, or an archive that ends in .zip.")
SAVE.add_argument("path", nargs="?")
LOAD = _Parser("%import_session", "Show a session that was written.")
LOAD.add_argument("path")
_HELP = (CELL, START, _Parser("%perfmonitor_stop", "Stop; what was measured stays readable."), REPORT, PLOT, EXPORT,
         SAVE, LOAD, _Parser("%perfmonitor_resources", "Show CPUs, memory and devices of the nodes that are measured."),
         _Parser("%perfmonitor_help", "Show this."))  # fmt: skip


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except (JumperError, ValueError) as error:
        raise UsageError(str(error)) from None


def _plainly(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Let what we refuse be one line, which still ends the cell as an error."""

    @wraps(magic)
    def shown(*arguments: Any) -> Any:
        with _one_line():
            return magic(*arguments)

    return shown


@magics_class
class PerfmonitorMagics(Magics):
    """The magics, and the hooks that mark the cells.

    Attributes
    ----------
    service : PerfmonitorService
    """

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.service: PerfmonitorService = build_perfmonitor_service()
        self._open: list[tuple[Any, Any]] = []  # cells that run, the innermost last, with what the shell says of them

    def pre_run_cell(self, info: Any) -> None:
        """Mark the begin of a cell; what a front end or another cell runs unseen is none."""
        if info.store_history and not info.silent:
            self._open.append((info, self.service.start_cell(info.raw_cell, self._count())))

    def post_run_cell(self, result: Any) -> None:
        """Mark its end."""
        for at, (info, cell) in enumerate(self._open):
            if info is result.info:
                self.service.end_cell(cell)
                del self._open[at:]
                break

    @line_magic
    @_plainly
    def perfmonitor_start(self, line: str) -> None:
        """Start to measure: ``%perfmonitor_start [interval] [--monitor TYPE] [--check-sanity]``."""
        given = START.read(line)
        report = self.service.start_monitoring(given.interval, given.monitor, check_sanity=given.check_sanity)
        if report is not None and report.ok:
            print(report)

    @line_magic
    @_plainly
    def perfmonitor_stop(self, line: str) -> None:
        """Stop to measure; what was measured stays readable."""
        self.service.stop_monitoring()

    @line_magic
    @_plainly
    def perfmonitor_perfreport(self, line: str) -> None:
        """Show a report: ``%perfmonitor_perfreport [--cell CELLS] [--level L] [--node N] [--text]``."""
        given = REPORT.read(line)
        self._show(self.service.perfreport(given.cell, given.level, given.node), given.text)

    @line_magic
    @_plainly
    def perfmonitor_plot(self, line: str) -> Any:
        """Draw: ``%perfmonitor_plot [--metrics A,B] [--cell CELLS] [--level L] [--file F] [--live [EVERY]]``."""
        given = PLOT.read(line)
        metrics = [name for name in (given.metrics or "").split(",") if name]
        live: Any = False
        if given.live is not None:
            if len(given.live) > 2:
                PLOT.error("--live takes the seconds between drawings and those shown")
            live = (*given.live, *(2.0, 120.0)[len(given.live) :])
        plot = self.service.plot_performance(metrics or None, given.cell, given.level, given.node, given.file, live)
        _load_bokeh()
        return plot

    @line_magic
    @_plainly
    def perfmonitor_export_perfdata(self, line: str) -> None:
        """Write samples, or make them a table: ``%perfmonitor_export_perfdata [FILE] [--name N] [--level L]``."""
        given = EXPORT.read(line)
        file = given.file or given.path
        frame = self.service.export_perfdata(file, given.level, given.node)
        if file is None:
            self.shell.user_ns[given.name] = frame
        print(f"{len(frame)} samples in {file or f'the variable {given.name}'}")

    @line_magic
    @_plainly
    def export_session(self, line: str) -> None:
        """Write everything: ``%export_session [PATH]``, an archive where the name ends in ``.zip``."""
        print(f"session in {self.service.export_session(SAVE.read(line).path)}")

    @line_magic
    @_plainly
    def import_session(self, line: str) -> None:
        """Show what was written: ``%import_session PATH``."""
        self.service.import_session(LOAD.read(line).path)

    @line_magic
    @_plainly
    def perfmonitor_resources(self, line: str) -> None:
        """Show CPUs, memory and devices."""
        print(self.service.resources())

    @line_magic
    def perfmonitor_help(self, line: str) -> None:
        """Show what there is."""
        lines = [f"{' '.join(p.format_usage().split()[1:])}\n    {p.description}" for p in _HELP]
        kinds = ", ".join(("default", *BACKENDS, *ALIASES))
        print("\n".join([*lines, f"TYPE: {kinds}", "CELLS: 5, 2:8, :5, 3:, -1 (the last); numbered from 0"]))

    @cell_magic
    def perfmonitor(self, line: str, cell: str) -> Any:
        """Run a cell and report what it cost: ``%%perfmonitor [interval] [--monitor TYPE] [--level L] [--text]``."""
        if self._open:  # it is marked here, without what the start of a monitor takes
            self.service.cells.forget(self._open.pop()[1])
        given = CELL.read(line)
        with ExitStack() as measured:
            with _one_line():
                marked = self.service.monitored(cell, given.interval, given.monitor, self._count())
                measured.enter_context(marked)
            value = self._run(cell)
        with _one_line():
            self._show(self.service.perfreport(-1, given.level), given.text)
        return value

    def _count(self) -> int:
        """The n of this cell's ``In [n]``; the shell's own counter may be past it, depending on its version."""
        return int(self.shell.displayhook.prompt_count)

    def _run(self, cell: str) -> Any:
        """Run a cell's code in the user's namespace; what it raises is raised, its last expression returned."""
        shell = self.shell
        tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(cell)))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        name = shell.compile.cache(cell, shell.execution_count)
        exec(shell.compile(tree, name, "exec"), shell.user_global_ns, shell.user_ns)
        if last is None:
            return None
        return eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_global_ns, shell.user_ns)

    @staticmethod
    def _show(report: Any, text: bool) -> None:
        if text:
            print(report)
        else:
            display(report)  # type: ignore[no-untyped-call]


def _load_bokeh() -> None:
    """Let HoloViews put its scripts into the notebook, once."""
    from jumper.report.canvas import holoviews

    hv = holoviews()
    if not getattr(hv.extension, "_loaded", False):
        hv.extension("bokeh")


def load(shell: Any) -> None:
    """Register the magics and the hooks with an IPython shell; again, nothing happens."""
    if getattr(shell, _HERE, None) is not None:
        return
    magics = PerfmonitorMagics(shell)
    shell.register_magics(magics)
    shell.events.register("pre_run_cell", magics.pre_run_cell)
    shell.events.register("post_run_cell", magics.post_run_cell)
    setattr(shell, _HERE, magics)


def unload(shell: Any) -> None:
    """Stop to measure, and take the hooks and the magics away."""
    magics = getattr(shell, _HERE, None)
    if magics is None:
        return
    magics.service.close()
    shell.events.unregister("pre_run_cell", magics.pre_run_cell)
    shell.events.unregister("post_run_cell", magics.post_run_cell)
    for kind, names in magics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    delattr(shell, _HERE)
