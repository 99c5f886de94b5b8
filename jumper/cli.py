"""The command line: `jumper run`, and what reads a run: `summary`, `findings`, `advise`, `report` and others.

A command is one function; its docstring is its help. The rooms that it needs are
imported when it is called, so that `jumper run` starts at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumper.schema import VERSION
from jumper.schema.errors import JumperError, MissingExtraError
from jumper.utilities import parse_interval

if TYPE_CHECKING:
    from rich.console import Console

#: Status of an error of ours; click's own for wrong use is the same.
ERROR = 2
LEVELS = ("process", "user", "system", "slurm")

RUN = click.argument("run", type=click.Path(path_type=Path), metavar="RUN")


def _interval(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_interval(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _console() -> Console:
    from rich.console import Console

    return Console()


@contextmanager
def _progress(words: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a long work is, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task(words, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try: jumper demo, or jumper run -- COMMAND, then jumper summary RUN.",
)
@click.version_option(VERSION, prog_name="jumper", message="%(prog)s %(version)s")
def cli() -> None:
    """Measure what each task of a workflow really cost, on every node."""


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--interval",
    callback=_interval,
    default="1.0",
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples.",
)
@click.option(
    "--backend",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Who takes the samples: default, subprocess, thread. An unknown name lists those that are known.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="RUN", help="Folder for the run.")
@click.option(
    "--collectors",
    type=click.Path(path_type=Path),
    metavar="YAML",
    help="Collectors of your own, added to the built-in ones by name.",
)
@click.option(
    "--level",
    "levels",
    type=click.Choice(LEVELS),
    multiple=True,
    help="What to measure; may be repeated. Default: process and system.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND [ARGUMENT]...")
def run(
    interval: float,
    backend: str,
    output: Path | None,
    collectors: Path | None,
    levels: tuple[str, ...],
    command: tuple[str, ...],
) -> None:
    """Run a command and measure it with all its children.

    Exit status, signals and output are the command's; everything after -- goes
    to it untouched. A command that does not exist is status 127, as in a shell.

    \b
    Examples:
      jumper run -- make -j8
      jumper run --interval 0.2 -o runs/sort -- sort -S 1G big.txt -o sorted.txt
      jumper run -- sh -c 'a | b'
      srun -n64 jumper run -o SHARED -- ./solver
    """
    from jumper.core import command as core

    status = core.run(
        command,
        interval=interval,
        backend=backend,
        output=output,
        collectors=collectors,
        levels=list(levels) or None,
    )
    raise click.exceptions.Exit(status)


@cli.command()
@RUN
@click.option(
    "--by",
    type=click.Choice(["group", "node", "key"]),
    default="group",
    show_default=True,
    help="One row for each of these.",
)
@click.option("--json", "as_json", is_flag=True, help="One document; by key it has the list `tasks`.")
def summary(run: Path, by: str, as_json: bool) -> None:
    """Print what the tasks of a run cost.

    \b
    Examples:
      jumper summary jumper-runs/20260101T120000Z-sort
      jumper summary RUN --by key --json | jq '.tasks[].cpu_s'
    """
    from jumper import open_run
    from jumper.report import terminal

    opened = open_run(run)
    if as_json:
        _print_json(terminal.summary_json(opened, by))
    else:
        _console().print(terminal.summary_table(opened, by))


@cli.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="One document with the list `findings`.")
def findings(run: Path, as_json: bool) -> None:
    """Print what stands out in a run: what costs most first, each with what to do.

    \b
    Examples:
      jumper findings RUN
      jumper findings RUN --json | jq -r '.findings[].subject'
    """
    from jumper import open_run
    from jumper.report import found

    opened = open_run(run)
    if as_json:
        _print_json(found.as_json(opened))
    else:
        _console().print(found.FindingsText(opened))


@cli.command()
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "snakemake-profile", "resources", "dask"]),
    default="table",
    show_default=True,
    help="What to print: for reading, or to paste.",
)
@click.option(
    "--may-fail",
    type=click.FloatRange(0, 50),
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="Part of the attempts that may run out of memory and be repeated with more, where that wastes less.",
)
@click.option("--json", "as_json", is_flag=True, help="One document with the list `groups`.")
def advise(run: Path, form: str, may_fail: float, as_json: bool) -> None:
    """Print what each group should ask for: memory, threads, runtime.

    \b
    Examples:
      jumper advise RUN
      jumper advise RUN --format snakemake-profile > profile/config.yaml
      jumper advise RUN --format resources --may-fail 1
      jumper advise RUN --format dask
    """
    from jumper import open_run
    from jumper.report.extra import need

    need("numpy", "pandas")
    from jumper.report import advised

    opened = open_run(run)
    if form == "dask" and not as_json:
        from jumper.analysis.advice import advise_dask

        click.echo(advised.dask_lines(advise_dask(opened)), nl=False)
        return
    with _progress("learning") as progress:
        advice = opened.advise(may_fail / 100, progress)
    if as_json:
        _print_json(advised.as_json(advice, may_fail / 100))
    elif form == "table":
        _console().print(advised.AdviceTable(advice))
    else:
        text = advised.snakemake_profile if form == "snakemake-profile" else advised.resources_lines
        click.echo(text(advice), nl=False)


@cli.command()
@RUN
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The page. Default: report.html in the run.",
)
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True)
def report(run: Path, output: Path | None, theme: str) -> None:
    """Write a run as one HTML page that needs no network, and print where it is.

    \b
    Examples:
      jumper report RUN
      jumper report RUN -o night.html --theme dark
    """
    from jumper import open_run

    opened = open_run(run)
    click.echo(opened.report(output, theme=theme))


@cli.command()
@click.argument("a", type=click.Path(path_type=Path), metavar="A")
@click.argument("b", type=click.Path(path_type=Path), metavar="B")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit with status 1 where a median changed by more, as in 'memory_peak_bytes > 10%'; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One document with the list `differences`.")
def compare(a: Path, b: Path, conditions: tuple[str, ...], as_json: bool) -> None:
    """Compare run B with run A, group by group.

    A change that chance alone would often make breaks no condition. Where there are too
    few attempts to tell, the medians alone decide.

    \b
    Examples:
      jumper compare before after
      jumper compare before after --fail-if 'memory_peak_bytes > 10%' --fail-if 'wall_s > 20%'
    """
    from jumper import open_run
    from jumper.report.extra import need

    need("numpy", "pandas")
    from jumper.analysis.comparison import COLUMNS, parse_limit
    from jumper.report import compared

    limits = [parse_limit(condition) for condition in conditions]
    columns = list(dict.fromkeys([*COLUMNS, *(limit.column for limit in limits)]))
    found = open_run(a).compare(open_run(b), columns)
    if as_json:
        _print_json(compared.as_json(found, limits))
    else:
        _console().print(compared.ComparisonTable(found))
    broken = compared.broken(found, limits)
    for line in broken:
        click.echo(f"jumper: {line}", err=True)
    if broken:
        raise click.exceptions.Exit(1)


@cli.command()
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "openmetrics", "csv", "benchmark-tsv"]),
    required=True,
    help="A trace for ui.perfetto.dev; a text for Prometheus; the tasks table; the same as Snakemake's benchmarks.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Compressed where its name ends in .gz.",
)
def export(run: Path, form: str, output: Path) -> None:
    """Write a run for other tools, and print where it is.

    \b
    Examples:
      jumper export RUN --format perfetto -o trace.json.gz
      jumper export RUN --format csv -o tasks.csv
    """
    from jumper import open_run

    opened = open_run(run)
    with _progress("writing") as progress:
        opened.export(form, output, progress)
    click.echo(str(output))


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="RUN", help="The merged run.")
def merge(folders: tuple[Path, ...], output: Path) -> None:
    """Merge runs, or spools that were left behind, into one run, and print where it is.

    Merging again changes nothing, and may be done while the run goes on.

    \b
    Examples:
      jumper merge node1-run node2-run -o both
      jumper merge /tmp/jumper-1000 -o recovered
    """
    from jumper.core import run as core

    core.merge(list(folders), output)
    click.echo(str(output))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One document with the list `checks`.")
def doctor(as_json: bool) -> None:
    """Say what can be measured here, what is missing, and what to do about it."""
    from jumper import doctor as checks

    found = checks.examine()
    if as_json:
        _print_json(checks.as_document(found))
    else:
        console = _console()
        for table in checks.as_tables(found):
            console.print(table)


@cli.command()
@click.argument("front_end", type=click.Choice(["dask", "snakemake"]), default="dask", metavar="[dask|snakemake]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("jumper-demo"),
    show_default=True,
    metavar="RUN",
    help="Folder for the run and its report.",
)
def demo(front_end: str, output: Path) -> None:
    """Measure a real Dask computation or Snakemake workflow on this machine; leaves a run with report.html in it."""
    if front_end == "snakemake":
        from jumper_snakemake import demo as workflow

        workflow.run_demo(output, _console())
        return
    try:
        from jumper_dask.demo import run_demo
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the demo needs {error.name}: pip install 'jumper-workflows[dask,report]'") from error

    run_demo(output, _console())


def _fail(message: str) -> int:
    click.echo(f"jumper: {' '.join(message.split())}", err=True)
    return ERROR


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its status; an error is one line on stderr.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of this process.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    jumper ...
    0
    """
    try:
        status = cli.main(None if arguments is None else list(arguments), prog_name="jumper", standalone_mode=False)
        if sys.stdout is not None:  # closed by who started us
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ERROR
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "jumper"
        return _fail(f"{error.format_message()} (`{path} --help` shows how)")
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.Abort:
        return 130
    except BrokenPipeError:
        # what is left in the buffer has no reader; else Python would complain about it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (JumperError, OSError) as error:
        return _fail(str(error))
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
