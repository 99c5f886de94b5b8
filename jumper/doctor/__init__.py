"""What can be measured on this machine, what is missing, and the next step: one check, one function.

A check looks at the thing itself (it runs the launcher, reads the file, loads the
library), because versions and configuration files promise more than containers keep.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jumper.doctor import devices, engines, kernel, packages
from jumper.doctor.check import COLORS, Check
from jumper.schema import VERSION
from jumper.utilities import node_name

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["CHECKS", "COLORS", "SCHEMA", "Check", "as_document", "as_tables", "examine"]

#: Version of the document of `jumper doctor --json`.
SCHEMA = 1

CHECKS: tuple[Callable[[], Check], ...] = (
    engines.native_extension, engines.launcher, engines.agent, engines.levels, engines.collectors,
    kernel.proc_folder, kernel.other_processes, kernel.children_files, kernel.cpu_clocks, kernel.io_file,
    kernel.shared_pages, kernel.peak_reset, devices.namespaces, kernel.cgroup_files, devices.control_group,
    kernel.memory_limit, kernel.spool,
    *(lambda name=name: packages.extra(name) for name in packages.EXTRAS),
    devices.gpus, devices.energy,
    packages.snakemake_way, packages.snakemake_plugins, packages.snakemake_hook,
)  # fmt: skip


def examine() -> list[Check]:
    """Run all checks.

    Examples
    --------
    >>> {check.area for check in examine()} >= {"engines", "kernel", "packages"}
    True
    """
    return [check() for check in CHECKS]


def as_document(checks: Iterable[Check]) -> dict[str, Any]:
    """Return what `jumper doctor --json` prints."""
    return {
        "schema": SCHEMA,
        "jumper": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "node": node_name(),
        "checks": [asdict(check) for check in checks],
    }


def as_tables(checks: Iterable[Check]) -> list[Table]:
    """Return the checks for a person: what was found, then what to do."""
    from rich.markup import escape
    from rich.table import Table

    found = Table(title=f"jumper {VERSION} on {escape(node_name())}", title_justify="left", box=None)
    steps = Table(title="What would help", title_justify="left", box=None, show_header=False)
    for column in ("", "", "status", "found"):
        found.add_column(column, overflow="fold")
    area = ""
    for check in checks:
        first = check.area if check.area != area else ""
        area = check.area
        color = COLORS[check.status]
        found.add_row(f"[bold]{first}", check.name, f"[{color}]{check.status}", escape(check.found))
        if check.next_step and check.status != "ok":
            steps.add_row(check.name, escape(check.next_step))
    return [found, steps] if steps.row_count else [found]
