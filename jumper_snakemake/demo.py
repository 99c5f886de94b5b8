"""The demo: a real workflow over the Python sources that every machine has, measured.

One rule asks for far more memory than it needs, one has many short children, one fails
for lack of memory and is done again with more, one is Python of the Snakefile.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from jumper.schema.errors import MissingExtraError, RunError
from jumper.store.rundir import free_place, writing

if TYPE_CHECKING:
    from rich.console import Console

#: Sources in all.
SOURCES = 240
PARTS = 6
_STEPS = re.compile(r"^(\d+) of (\d+) steps")

SNAKEFILE = """
PARTS = [str(part) for part in range(config["parts"])]


rule all:
    input:
        "words.txt",
        "sizes.txt",


rule count:  # asks for far more than it needs
    input:
        "lists/{part}.txt",
    output:
        "counts/{part}.txt",
    benchmark:
        "benchmarks/count.{part}.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    shell:
        "{config[python]} -S count.py {input} > {output}"


rule compress:  # a child a file, each gone before anyone looks
    input:
        "lists/{part}.txt",
    output:
        "sizes/{part}.txt",
    benchmark:
        "benchmarks/compress.{part}.tsv"
    shell:
        "xargs -a {input} -n 1 gzip -9 -c | wc -c > {output}"


rule merge:  # what it is given at first is too little, as a batch system would say
    input:
        expand("counts/{part}.txt", part=PARTS),
    output:
        "words.txt",
    retries: 1
    resources:
        mem_mb=lambda wildcards, attempt: 60 * 4 ** (attempt - 1),
    shell:
        "ulimit -v $(({resources.mem_mb} * 1000)); {config[python]} -S merge.py {input} > {output}"


rule total:
    input:
        expand("sizes/{part}.txt", part=PARTS),
    output:
        "sizes.txt",
    run:
        with open(output[0], "w") as out:
            print(sum(int(open(name).read()) for name in input), file=out)
"""

PROGRAMS = {
    "count.py": """
import collections, sys, tokenize
counts = collections.Counter()
for name in open(sys.argv[1]).read().splitlines():
    try:
        with open(name, "rb") as file:
            counts.update(token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME)
    except (OSError, SyntaxError, tokenize.TokenError):
        continue
for word, number in counts.items():
    print(number, word)
""",
    "merge.py": """
import collections, sys
counts, table = collections.Counter(), bytearray(120_000_000)
for name in sys.argv[1:]:
    for line in open(name):
        number, word = line.split()
        counts[word] += int(number)
for word, number in counts.most_common():
    print(number, word)
""",
}


def run_demo(output: Path, console: Console) -> Path:
    """Run the demo and return the run's folder, with ``report.html`` in it.

    Parameters
    ----------
    output : path
        Where the run goes. A run that is there already gets a neighbour.
    console : rich.console.Console
        Where progress and the summary are shown.

    Raises
    ------
    MissingExtraError
        Where Snakemake or what reads a run is missing.
    RunError
        Where the folder cannot be used, or Snakemake fails.
    """
    from jumper.report.extra import need

    if find_spec("snakemake") is None:
        raise MissingExtraError("the demo needs snakemake: pip install 'jumper-workflows[snakemake,report]'")
    need("pandas", "pyarrow", "jinja2", "holoviews", "bokeh")
    from jumper.core.run import open_run
    from jumper.report.terminal import summary_table

    place = free_place(Path(output))
    with writing(place):  # before all that it takes
        place.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="jumper-demo-") as scratch:
        folder = Path(scratch)
        prepare(folder)
        execute(folder, console)
        (made,) = (folder / "jumper" / "runs").iterdir()
        with writing(place):
            shutil.copytree(made, place, dirs_exist_ok=True)
    run = open_run(place)
    report = run.report()
    console.print(summary_table(run))
    console.print(f"report: {report}", soft_wrap=True)
    console.print(f"what to ask for: jumper advise {place} --format snakemake-profile", soft_wrap=True)
    return place


def prepare(folder: Path) -> None:
    """Write the workflow and its inputs, lists of sources of the standard library."""
    (folder / "Snakefile").write_text(SNAKEFILE)
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
    found = sorted(str(path) for path in Path(sysconfig.get_path("stdlib")).glob("*/*.py") if path.stat().st_size)
    chosen = found[:: max(1, len(found) // SOURCES)][:SOURCES]
    (folder / "lists").mkdir()
    for part in range(PARTS):
        (folder / "lists" / f"{part}.txt").write_text("".join(f"{name}\n" for name in chosen[part::PARTS]))


def execute(folder: Path, console: Console) -> None:
    """Run the workflow with the front end, as a user does; show how far it is on a terminal.

    Raises
    ------
    RunError
        Where it fails, with the end of what Snakemake said.
    """
    from rich.progress import Progress

    command = [
        *(sys.executable, "-m", "jumper_snakemake", "run", "--dir", "jumper", "--report", "none"),
        *("--interval", "0.1", "--"),  # its jobs take a second or less
        *(sys.executable, "-m", "snakemake", "--cores", str(min(4, os.cpu_count() or 1))),
        *("--config", f"parts={PARTS}", f"python={sys.executable}"),
    ]
    console.print(f"snakemake, {2 * PARTS + 2} jobs over {SOURCES} Python sources", soft_wrap=True)
    said: list[str] = []
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as running,
    ):
        shown = progress.add_task("measuring", total=None)
        assert running.stderr is not None
        for line in running.stderr:
            said.append(line.rstrip())
            if steps := _STEPS.match(line):
                progress.update(shown, completed=int(steps[1]), total=int(steps[2]))
    if running.returncode:
        raise RunError(f"snakemake ended with status {running.returncode}: {' '.join(said[-12:])}")
