"""How a Snakemake process comes to be measured: the main one by its log handler, the others by their environment."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from jumper_snakemake.settings import VARIABLE, Settings, decode, encode

if TYPE_CHECKING:
    from jumper_snakemake.main import MainRun
    from jumper_snakemake.site import Site


def begin(settings: Any) -> tuple[MainRun, Site]:
    """Let the jobs of this main process, and of the processes that it starts, be measured.

    Parameters
    ----------
    settings : LogHandlerSettings
        Of the logger plugin.

    Raises
    ------
    snakemake_interface_common.exceptions.WorkflowError
        For settings that mean nothing, before anything starts.
    """
    from jumper_snakemake.hook import install
    from jumper_snakemake.main import FOLDER, MainRun
    from jumper_snakemake.site import Site

    wanted = checked(settings)
    run = MainRun(settings.dir or FOLDER, wanted, sys.argv, "--logger-jumper-dir")

    def made() -> Settings:
        made = run.settings()
        os.environ[VARIABLE] = encode(made)
        return made

    site = Site(made)
    run.bodiless, site.submitted = site.bodiless, run.submitted
    install(site, replace_benchmark=wanted.benchmark == "replace")
    return run, site


def checked(settings: Any) -> Settings:
    """Return what a user set as :class:`Settings`, without a run.

    Raises
    ------
    snakemake_interface_common.exceptions.WorkflowError
    """
    from snakemake_interface_common.exceptions import WorkflowError

    from jumper.utilities import parse_interval

    choices = {
        "backend": ("default", "native", "python"),
        "benchmark": ("replace", "keep"),
        "multinode": ("auto", "off"),
        "report": ("html", "none"),
    }
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise WorkflowError(
                f"--logger-jumper-{name}: expected {' or '.join(allowed)}, found {getattr(settings, name)!r}"
            )
    levels = [level for level in settings.levels.split("+") if level not in ("", "none")]
    unknown = [level for level in levels if level not in ("system", "user", "slurm")]
    if unknown:
        raise WorkflowError(f"--logger-jumper-levels: expected system, user, slurm, joined by +, found {unknown[0]!r}")
    try:
        interval = parse_interval(settings.interval)
    except ValueError as error:
        raise WorkflowError(f"--logger-jumper-interval: {error}") from None
    return Settings("", interval, settings.backend, "+".join(levels), settings.benchmark, settings.multinode)


def end(run: MainRun, site: Site, settings: Any, quiet: bool) -> None:
    """End the sampling of the main process, finish the run, and say where it is."""
    from jumper_snakemake.main import finish, logs_of_jobs

    site.close()
    os.environ.pop(VARIABLE, None)
    with site.harmless("the end of the run"):
        run.close()
        if run.path is not None:
            try:
                logs = [*run.logs, *logs_of_jobs(settings.logs, run.began_ns)]
                told = (lambda text: None) if quiet else say
                finish(run.path, settings.report == "html", told, logs, run.began_in)
            except KeyboardInterrupt:
                say(f"not merged: interrupted; `jumper report {run.path}` does it")


def join(arguments: list[str]) -> None:
    """Let the jobs of this process be measured, where the environment says so; never an error."""
    text = os.environ.get(VARIABLE, "")
    try:
        settings = decode(text)
    except ValueError as error:
        del os.environ[VARIABLE]
        say(f"{error}; jobs run all the same, unmeasured")
        return
    if settings.jobs_only and "--mode" not in arguments:
        # a workflow that a job starts is not part of the run, nor is what it starts
        del os.environ[VARIABLE]
        return
    from jumper_snakemake.hook import install
    from jumper_snakemake.site import Site

    site = Site(lambda: settings, is_job=True)
    atexit.register(site.close)
    with site.harmless("the start of a job process"):
        install(site, replace_benchmark=settings.benchmark == "replace")


def say(text: str) -> None:
    """Say one line on stderr, where it is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"jumper: {text}\n")
            sys.stderr.flush()
