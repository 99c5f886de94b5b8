"""`jumper-snakemake`: measure workflows of tools that call Snakemake themselves."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from jumper_snakemake.settings import VARIABLE, Settings, encode

if TYPE_CHECKING:
    from jumper_snakemake.main import MainRun


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jumper-workflows", prog_name="jumper-snakemake")
def main() -> None:
    """Measure what each job of a Snakemake workflow costs."""


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("--interval", default=Settings._field_defaults["interval"], help="Seconds between two samples of a job.")
@click.option("--dir", "folder", default=None, help="Runs are made in its folder runs/; default: .snakemake/jumper.")
@click.option(
    "--benchmark",
    type=click.Choice(["replace", "keep"]),
    default="replace",
    help="Whose values `benchmark:` files have: ours, or Snakemake's.",
)
@click.option("--report", type=click.Choice(["html", "none"]), default="html", help="What is made at the end.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(interval: float, folder: str | None, benchmark: str, report: str, command: tuple[str, ...]) -> None:
    """Run COMMAND and measure the jobs of every Snakemake that it starts.

    Exit status, signals and output are the command's.
    """
    from jumper.monitor.launcher import CannotExecute, Launcher, end_as
    from jumper.schema.errors import JumperError
    from jumper.utilities import parse_interval
    from jumper_snakemake.boot import say
    from jumper_snakemake.main import FOLDER, MainRun, finish

    try:
        wanted = Settings("", parse_interval(interval), benchmark=benchmark, jobs_only=False)
    except ValueError as error:
        raise click.UsageError(f"--interval: {error}") from None
    environment = dict(os.environ)
    made = MainRun(folder or FOLDER, wanted, list(command))
    try:
        environment[VARIABLE] = encode(made.settings())
    except JumperError as error:
        say(f"not measured: {error}; the command runs all the same")
    try:
        launched = Launcher(command, environment=environment)
    except CannotExecute as error:
        _remove(made)
        say(f"cannot run {command[0]!r}: {error.strerror}")
        sys.exit(127 if isinstance(error.errno, int) and error.errno == 2 else 126)
    ended, _ = launched.wait(lambda _: None)
    if made.path is not None and len(list(made.path.glob("spool/*.seg"))) < 2:
        _remove(made)
        say("nothing measured: no Snakemake ran a job, or not one whose environment has jumper (`jumper doctor`)")
    elif made.path is not None:
        made.close()
        try:
            finish(made.path, report == "html", say)
        except (JumperError, OSError) as error:
            say(f"not merged: {error}")
    sys.exit(end_as(ended.status))


def _remove(made: MainRun) -> None:
    made.close()
    if made.path is not None:
        shutil.rmtree(made.path, ignore_errors=True)
