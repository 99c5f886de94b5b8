"""The commands that read a run: `summary`, `findings`, `advise`, `report`, `compare`, `export`.

A command is one function; its docstring is its help. The rooms that it needs are
imported when it is called.
"""

from __future__ import annotations

from pathlib import Path

import click

from jumper.cli.output import console, print_json, progress

RUN = click.argument("run", type=click.Path(path_type=Path), metavar="RUN")


@click.command()
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
        print_json(terminal.summary_json(opened, by))
    else:
        console().print(terminal.summary_table(opened, by))


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="One document with the list `findings`.")
def findings(run: Path, as_json: bool) -> None:
    """Print what stands out in a run, and what to do about it.

    What failed comes first, then what costs most; a run with nothing wrong has no findings.

    \b
    Examples:
      jumper findings RUN
      jumper findings RUN --json | jq -r '.findings[].subject'
    """
    from jumper import open_run
    from jumper.report import found

    opened = open_run(run)
    if as_json:
        print_json(found.as_json(opened))
    else:
        console().print(found.FindingsText(found.found_in(opened)))


@click.command()
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
        from jumper.analysis.workers import advise_dask

        click.echo(advised.dask_lines(advise_dask(opened)), nl=False)
        return
    with progress("learning") as shown:
        advice = opened.advise(may_fail / 100, shown)
    if as_json:
        print_json(advised.as_json(advice, may_fail / 100))
    elif form == "table":
        console().print(advised.AdviceTable(advice))
    else:
        text = advised.snakemake_profile if form == "snakemake-profile" else advised.resources_lines
        click.echo(text(advice), nl=False)


@click.command()
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
    """Write a run as one HTML page that needs no network.

    Prints where it is.

    \b
    Examples:
      jumper report RUN
      jumper report RUN -o night.html --theme dark
    """
    from jumper import open_run

    opened = open_run(run)
    click.echo(opened.report(output, theme=theme))


@click.command()
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
        print_json(compared.as_json(found, limits))
    else:
        console().print(compared.ComparisonTable(found))
    broken = compared.broken(found, limits)
    for line in broken:
        click.echo(f"jumper: {line}", err=True)
    if broken:
        raise click.exceptions.Exit(1)


@click.command()
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "openmetrics", "csv", "benchmark-tsv", "png", "svg"]),
    help="A trace for ui.perfetto.dev; a text for Prometheus; the tasks table; the same as Snakemake's benchmarks; "
    "a picture. Default: what the name of FILE ends in (.json, .txt, .csv, .tsv, .png, .svg).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Compressed where its name ends in .gz.",
)
def export(run: Path, form: str | None, output: Path) -> None:
    """Write a run for other tools, or as a picture.

    Prints where it is.

    \b
    Examples:
      jumper export RUN --format perfetto -o trace.json.gz
      jumper export RUN -o tasks.csv
      jumper export RUN -o run.png
    """
    from jumper import open_run
    from jumper.report.exports import format_of

    form = form or format_of(output)
    opened = open_run(run)
    with progress("writing") as shown:
        opened.export(form, output, shown)
    click.echo(str(output))


#: A new command that reads a run is one function and one word here.
COMMANDS = (summary, findings, advise, report, compare, export)
