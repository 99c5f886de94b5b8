"""What the findings look at: the tasks table as arrays, and what the nodes did, each made once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from jumper.analysis.findings.thresholds import ENOUGH, LONG_S
from jumper.analysis.needs import UNSURE, Needs, needs
from jumper.analysis.nodetime import NodeTime, cpus_of, crowded, node_times
from jumper.analysis.summary import flag_rows
from jumper.analysis.tables import RunTables, floats, texts

if TYPE_CHECKING:
    from jumper.analysis.tables import Bools, Floats, Ints, Texts

#: No machine has so many bytes, or ran for so many seconds.
_MOST = 1e18
#: Flags of attempts whose CPU is not exactly their own.
_NOT_ITS_CPU = ("estimated", "truncated", "elsewhere")


class View:
    """A run as the findings read it; a row is an attempt, in the order of the tasks table.

    Parameters
    ----------
    run : RunTables
    """

    def __init__(self, run: RunTables) -> None:
        self.run = run
        self.tasks = run.tasks
        self._floats: dict[str, Floats] = {}
        self._texts: dict[str, Texts] = {}

    def __len__(self) -> int:
        return len(self.tasks)

    def floats(self, column: str) -> Floats:
        """Return a column; NaN where it is null, or what no machine can have used."""
        if column not in self._floats:
            values = floats(self.tasks, column)
            with np.errstate(invalid="ignore"):
                self._floats[column] = np.where((values >= 0) & (values < _MOST), values, np.nan)
        return self._floats[column]

    def texts(self, column: str) -> Texts:
        """Return a column as strings, null as the empty one."""
        if column not in self._texts:
            self._texts[column] = np.array(texts(self.tasks, column), dtype=object)
        return self._texts[column]

    @cached_property
    def _flagged(self) -> dict[str, Ints]:
        return flag_rows(self.tasks)

    def flagged(self, *flags: str) -> Bools:
        """Return which attempts carry one of these flags."""
        found = np.zeros(len(self), dtype=bool)
        for flag in flags:
            if flag in self._flagged:
                found[self._flagged[flag]] = True
        return found

    @cached_property
    def node(self) -> tuple[Ints, list[str]]:
        """Number of the node of each attempt, and the names in their order."""
        codes, names = pd.factorize(self.texts("node"), sort=True)
        return codes.astype("int64"), list(map(str, names))

    @cached_property
    def groups(self) -> dict[str, Ints]:
        """Rows of each group, by name."""
        names = self.texts("group")
        return {
            str(name): np.asarray(rows) for name, rows in pd.Series(names).groupby(names, sort=True).indices.items()
        }

    @cached_property
    def done(self) -> Bools:
        """Attempts that succeeded."""
        return np.asarray(self.texts("state") == "done")

    @cached_property
    def wall(self) -> Floats:
        """Wall time in s."""
        return self.floats("wall_s")

    @cached_property
    def threads(self) -> Floats:
        """Threads that each attempt held: what it asked for, else one."""
        asked = self.floats("threads_asked")
        return np.where(asked >= 1, asked, 1.0)

    @cached_property
    def core_hours(self) -> Floats:
        """Hours of a core that each attempt held; 0 where its wall time is not known."""
        return np.nan_to_num(self.wall) * self.threads / 3600

    @cached_property
    def bound(self) -> Floats:
        """Memory that each attempt asked for, else what it was allowed, in bytes."""
        asked, limit = self.floats("memory_asked_bytes"), self.floats("memory_limit_bytes")
        return np.where(asked > 0, asked, np.where(limit > 0, limit, np.nan))

    @cached_property
    def peaks(self) -> Floats:
        """Memory peaks that say all about one attempt that succeeded; NaN for the others."""
        peaks = self.floats("memory_peak_bytes")
        return np.where(self.done & (peaks > 0) & ~self.flagged(*UNSURE), peaks, np.nan)

    @cached_property
    def needs(self) -> Needs:
        """What each attempt needed, as the advice takes it."""
        return needs(self.tasks)

    @cached_property
    def beside(self) -> Floats:
        """Memory in bytes that each attempt's batch job held beside it, and must have asked for too; 0 where none."""
        return np.nan_to_num(self.floats("memory_beside_bytes"))

    @cached_property
    def worked(self) -> Bools:
        """Attempts whose CPU time says how they worked: succeeded, long enough, all of it their own."""
        known = np.isfinite(self.floats("cpu_s")) & (np.nan_to_num(self.wall) >= LONG_S)
        return known & self.done & ~self.flagged(*_NOT_ITS_CPU)

    def enough(self, which: Bools) -> Iterator[tuple[str, Ints]]:
        """Yield each group that has enough of these attempts, and their rows."""
        for name, rows in self.groups.items():
            picked = rows[which[rows]]
            if len(picked) >= ENOUGH:
                yield name, picked

    def kind_of(self, row: int) -> str:
        """Return what an attempt is: ``dask``, ``snakemake``, ``command``."""
        return str(self.texts("kind")[row] or self.run.info.get("kind") or "")

    @cached_property
    def slurm(self) -> bool:
        """Whether a batch system ran it, as far as the nodes or the attempts say."""
        limits = [node.get("limits_bytes") for node in self.run.nodes.values()]
        return any(isinstance(limit, dict) and "slurm" in limit for limit in limits)

    @cached_property
    def node_time(self) -> dict[str, NodeTime]:
        """What each node did, from the stream ``system``."""
        return node_times(self.run)

    @cached_property
    def crowded(self) -> Bools:
        """Attempts that had all CPUs of their node busy for more than half of their time."""
        return crowded(self.run, self.node_time)

    def cpus(self, node: str) -> int | None:
        """Return how many CPUs a node has, or None."""
        return cpus_of(self.run, node)
