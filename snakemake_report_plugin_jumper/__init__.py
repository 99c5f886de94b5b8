"""What Snakemake finds as the reporter `jumper`; every Snakemake process imports it, so it loads next to nothing.

`snakemake --reporter jumper` writes a page of what the jobs of this workflow cost. Before
Snakemake 9, which has no logger plugins, this import also brings the hook into its processes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import field, make_dataclass
from typing import Any

from snakemake_interface_report_plugins.reporter import ReporterBase
from snakemake_interface_report_plugins.settings import ReportSettingsBase

_FIELDS: tuple[tuple[str, type, Any, str], ...] = (
    ("path", str, "jumper-report.html", "The page that is written."),
    ("dir", str, None, "Runs are looked for in its folder runs/; default: .snakemake/jumper."),
)

#: Made, not written as a class: Snakemake reads the types of the fields, which would be strings here.
ReportSettings = make_dataclass(
    "ReportSettings",
    [(name, kind, field(default=default, metadata={"help": text})) for name, kind, default, text in _FIELDS],
    bases=(ReportSettingsBase,),
    # made up, it costs 1 ms of every start, as do the methods
    namespace={"__doc__": "Where the page and the runs are."},
    repr=False,
    eq=False,
)


class Reporter(ReporterBase):  # type: ignore[misc]  # it has no type information
    """Writes the page; Snakemake makes one when the jobs of the workflow are known."""

    def render(self) -> None:
        """Write what the jobs of the workflow cost, each as of the run that made its output.

        Raises
        ------
        snakemake_interface_common.exceptions.WorkflowError
            Where no run has any of them, or the page cannot be written.
        """
        from snakemake_interface_common.exceptions import WorkflowError

        from jumper.schema.errors import JumperError
        from jumper_snakemake.boot import say
        from jumper_snakemake.reporter import write

        settings: Any = self.settings
        try:
            say(write(self.jobs, settings.dir, settings.path))
        except (JumperError, OSError) as error:
            raise WorkflowError(f"--reporter jumper: {error}") from None


def _join() -> None:
    from jumper_snakemake.boot import join

    join(sys.argv)


if os.environ.get("JUMPER_SNAKEMAKE"):
    _join()
