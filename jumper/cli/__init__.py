"""The command line: `jumper run`, `merge`, `doctor`, `demo`, and how errors end; reading.py has what reads a run.

A command is one function; its docstring is its help. The rooms that it needs are
imported when it is called, so that `jumper run` starts at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from jumper.cli.output import console, print_json
from jumper.cli.reading import COMMANDS
from jumper.schema import VERSION
from jumper.schema.errors import JumperError, MissingExtraError
from jumper.utilities import parse_interval

#: Status of an error of ours; click's own for wrong use is the same.
ERROR = 2
LEVELS = ("process", "user", "system", "slurm")


def _interval(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_interval(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
    help="Who takes the samples: default (native where it is built), native, subprocess, or thread.",
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
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="RUN", help="The merged run.")
def merge(folders: tuple[Path, ...], output: Path) -> None:
    """Merge runs, or spools that were left behind, into one.

    Prints where it is. Merging again changes nothing, and may be done while the run goes on.

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
    """Say what can be measured here, what is missing, and why."""
    from jumper import doctor as checks

    found = checks.examine()
    if as_json:
        print_json(checks.as_document(found))
    else:
        for table in checks.as_tables(found):
            console().print(table)


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
    """Measure a real Dask or Snakemake workflow on this machine.

    Leaves a run with report.html in it.
    """
    if front_end == "snakemake":
        from jumper_snakemake import demo as workflow

        workflow.run_demo(output, console())
        return
    try:
        from jumper_dask.demo import run_demo
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the demo needs {error.name}: pip install 'jumper-workflows[dask,report]'") from error

    run_demo(output, console())


for command in COMMANDS:
    cli.add_command(command)


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
