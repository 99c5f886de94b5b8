"""What Snakemake finds as the logger `jumper`; every Snakemake process imports it, so it loads next to nothing.

`snakemake --logger jumper` measures each job; the settings are flags ``--logger-jumper-…``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import field, make_dataclass
from logging import Handler, LogRecord
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

if TYPE_CHECKING:
    from jumper_snakemake.main import MainRun
    from jumper_snakemake.site import Site


_FIELDS: tuple[tuple[str, type, Any, str], ...] = (
    ("interval", float, 0.5, "Seconds between two samples of a job."),
    ("dir", str, None, "Runs are made in its folder runs/; default: .snakemake/jumper."),
    ("backend", str, "default", "Which engine samples: default, native or python."),
    ("levels", str, "system", "What is sampled beside the jobs: system, user, slurm, joined by +; or none."),
    ("benchmark", str, "replace", "Whose values `benchmark:` files have: replace (ours) or keep (Snakemake's)."),
    ("multinode", str, "auto", "Follow a job to all of its nodes where it has several: auto or off."),
    ("report", str, "html", "What is made at the end: html or none."),
    ("logs", str, None, "Folder with the logs of jobs that do not share this file system; see docs/snakemake.md."),
)

#: Made, not written as a class: Snakemake reads the types of the fields, which would be strings here.
LogHandlerSettings = make_dataclass(
    "LogHandlerSettings",
    [(name, kind, field(default=default, metadata={"help": text})) for name, kind, default, text in _FIELDS],
    bases=(LogHandlerSettingsBase,),
    namespace={"__doc__": "How jobs are measured."},  # made up, it costs 1 ms of every start, as do the methods
    repr=False,
    eq=False,
)


class LogHandler(LogHandlerBase):
    """Begins and ends a run; the main process has one."""

    writes_to_stream = False
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    _run: MainRun | None = None
    _site: Site | None = None

    def __post_init__(self) -> None:
        """Let the jobs of this process and of those that it starts be measured."""
        if not hasattr(self, "lock"):  # interfaces before 2.0 leave that to the plugin
            Handler.__init__(self)
        settings = self.settings or LogHandlerSettings()
        if self.common_settings.dryrun:
            return
        from jumper_snakemake.boot import begin

        self._run, self._site = begin(settings)

    def emit(self, record: LogRecord) -> None:
        """Take an event of Snakemake."""
        event = getattr(record, "event", None)
        if event is not None and self._run is not None and self._site is not None:
            with self._site.harmless("an event"):
                self._run.event(str(event), vars(record))

    def close(self) -> None:
        """Finish the run; safe to call twice."""
        run, self._run = self._run, None
        if run is not None and self._site is not None:
            from jumper_snakemake.boot import end

            quiet: Any = self.common_settings.quiet or ()
            end(
                run,
                self._site,
                self.settings,
                quiet="all" in {str(getattr(each, "name", each)).lower() for each in quiet},
            )
        super().close()


def _join() -> None:
    from jumper_snakemake.boot import join

    join(sys.argv)


if os.environ.get("JUMPER_SNAKEMAKE"):
    _join()
