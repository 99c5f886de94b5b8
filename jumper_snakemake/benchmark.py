"""The values of Snakemake's `BenchmarkRecord`: its schema and its writer, our numbers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from jumper_snakemake.attempt import Attempt
from jumper_snakemake.looks import Looked, Looker

MIB = 1 << 20


class Benchmarks:
    """What stands in for ``snakemake.benchmark.benchmarked``.

    Parameters
    ----------
    original : callable
        Snakemake's own, for what we do not measure.
    new_record : callable
        ``snakemake.benchmark.BenchmarkRecord``.
    current : callable
        Returns the attempt that runs in this thread, or None.
    """

    def __init__(
        self, original: Callable[..., Any], new_record: Callable[[], Any], current: Callable[[], Attempt | None]
    ) -> None:
        self._original = original
        self._new_record = new_record
        self._current = current

    @contextlib.contextmanager
    def benchmarked(self, pid: Any = None, benchmark_record: Any = None, *interval: Any, **more: Any) -> Iterator[Any]:
        """Fill a record with what the body costs; see ``snakemake.benchmark.benchmarked``."""
        attempt = self._current()
        if attempt is None or pid is False or not attempt.measures(pid):
            with self._original(pid, benchmark_record, *interval, **more) as record:
                yield record
            return
        record = benchmark_record or self._new_record()
        start_s = time.monotonic()
        with attempt.site.harmless("a repeat"):
            if pid is None:
                attempt.next_repeat(record)
            else:
                attempt.belongs(int(pid), record)
        looked = self._look(attempt, pid)
        try:
            yield record
            if pid is None and attempt.in_process:
                self._leave(attempt, looked)
                attempt.end(None)
        finally:
            record.running_time = time.monotonic() - start_s
            self._leave(attempt, looked)
            with attempt.site.harmless("a benchmark's values"):
                fill(record, attempt)

    def _look(self, attempt: Attempt, pid: Any) -> Looked | None:
        if pid is None and not attempt.in_process:  # its processes come by themselves
            return None
        with attempt.site.harmless("a benchmark's memory"):
            if attempt.site.looker is None:
                attempt.site.looker = Looker(attempt.site.settings.interval)
            looked = attempt.site.looker.begin(int(pid or os.getpid()))
            attempt.looked.append(looked)
            return looked
        return None

    def _leave(self, attempt: Attempt, looked: Looked | None) -> None:
        if looked is not None and attempt.site.looker is not None:
            attempt.site.looker.end(looked)


def fill(record: Any, attempt: Attempt) -> None:
    """Put what an attempt has cost until now into a benchmark record.

    Memory and I/O in MiB, as Snakemake writes them; the load in percent of one core, times seconds.
    """
    if not attempt.known:
        return
    wall_s = attempt.wall_s()
    if wall_s is not None:
        record.running_time = wall_s
    record.cpu_time = attempt.cpu_s
    record.cpu_usage = 100 * attempt.cpu_s
    record.max_rss = _mib(attempt.rss_peak())
    record.max_vms, record.max_uss = _mib(attempt.most_looked("vms")), _mib(attempt.most_looked("uss"))
    record.max_pss = _mib(_most(attempt.memory_peak(), attempt.most_looked("pss")))
    record.io_in, record.io_out = _mib(attempt.io("read_bytes")), _mib(attempt.io("write_bytes"))
    record.data_collected = True


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _mib(value: int | None) -> float | None:
    return None if value is None else value / MIB
