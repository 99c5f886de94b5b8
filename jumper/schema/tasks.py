"""The tasks table and the parts table: one row an attempt, and one row an attempt and node.

A missing value is null, never 0. Times are by the run's reference clock.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Dtype = Literal["str", "int", "float", "list", "json"]


class TaskColumn(NamedTuple):
    """One column of the tasks table: name, type, unit and what it means."""

    name: str
    dtype: Dtype
    unit: str
    meaning: str


def _s(name: str, meaning: str) -> TaskColumn:
    return TaskColumn(name, "str", "", meaning)


def _i(name: str, unit: str, meaning: str) -> TaskColumn:
    return TaskColumn(name, "int", unit, meaning)


def _f(name: str, unit: str, meaning: str) -> TaskColumn:
    return TaskColumn(name, "float", unit, meaning)


TASK_COLUMNS: tuple[TaskColumn, ...] = (
    _s("key", "Dask key; Snakemake rule[wildcards]; the command for `jumper run`"),
    _s("attempt_id", "Dask run id; Snakemake outer.inner.repeat; rank and random digits for `jumper run`"),
    _i("attempt", "", "1, 2, ... by start"),
    _s("group", "Dask prefix, Snakemake rule, name of the program"),
    _s("kind", "dask, snakemake or command"),
    _s("span", "Dask span id"),
    _s("layer", "Dask layer"),
    TaskColumn("annotations", "json", "", "annotations of the scheduler, as JSON"),
    TaskColumn("wildcards", "json", "", "Snakemake wildcards, as JSON"),
    _s("external_id", "job id of the batch system"),
    _s("node", "where it started"),
    _s("worker", "worker name or address"),
    _i("pid", "", "process that ran it: of a job with processes of its own, the first of these"),
    _i("thread", "", "kernel thread id that ran it"),
    _f("queued_s", "s", "from ready to start"),
    _i("start_ns", "UTC ns", "start by the reference clock"),
    _i("stop_ns", "UTC ns", "stop by the reference clock"),
    _f("wall_s", "s", "stop - start, by the monotonic clock of the node where it is known"),
    _s("state", "done, failed, cancelled, lost"),
    _i("exit_code", "", "exit status; negative: the signal that ended it"),
    _s("reason", "why it ended so, where it is known"),
    _f("cpu_s", "s", "CPU of the whole tree, reaped children included"),
    _f("cpu_user_s", "s", "its part in user mode"),
    _f("cpu_system_s", "s", "its part in the kernel"),
    _i("memory_peak_bytes", "B", "the peak to decide by; findings and advice read only this"),
    _s("memory_peak_source", "cgroup, pss, rss or hwm"),
    _i("rss_peak_bytes", "B", "highest of tick sums and of single high-water marks: a lower bound"),
    _i("rss_peak_upper_bytes", "B", "sum of high-water marks: an upper bound"),
    _i("pss_peak_bytes", "B", "highest sampled sum of PSS"),
    _i("vms_peak_bytes", "B", "highest sum of virtual memory; looked at for Snakemake jobs that have a `benchmark:`"),
    _i("uss_peak_bytes", "B", "highest sum of memory that no other process shares; for the same"),
    _i("rss_start_bytes", "B", "RSS of the process at start"),
    _i("rss_stop_bytes", "B", "RSS of the process at stop"),
    _i("swap_peak_bytes", "B", "highest sampled swap"),
    _i("read_bytes", "B", "read from storage"),
    _i("write_bytes", "B", "written to storage"),
    _i("read_chars", "B", "read through system calls"),
    _i("write_chars", "B", "written through system calls"),
    _f("gpu_seconds", "s", "device-seconds busy"),
    _i("gpu_memory_peak_bytes", "B", "highest sampled device memory"),
    _f("energy_j", "J", "energy"),
    _i("threads_asked", "", "threads or cores asked for"),
    _i("memory_asked_bytes", "B", "memory asked for"),
    _i("memory_limit_bytes", "B", "smallest limit that applied"),
    _i("memory_beside_bytes", "B", "what else its batch job holds and must ask for: the Snakemakes in it"),
    _f("runtime_asked_s", "s", "runtime asked for"),
    _i("input_bytes", "B", "size of the inputs"),
    _i("processes", "", "how many processes it had, as far as seen"),
    _i("samples", "", "ticks inside the attempt"),
    _f("gap_s", "s", "time inside the attempt without samples (beyond 2.5 intervals)"),
    TaskColumn("flags", "list", "", 'what its numbers are short of; docs/numbers.md, "Flags", says what each means'),
)

#: What stands in `flags`, and what it means; numbers in a flag are those of an example.
FLAGS = {
    "estimated": "CPU or I/O is in part a share or a lower bound",
    "memory-estimated": "the bounds of the peak lie more than 2 % apart",
    "nodes 1/2": "of the two nodes that the attempt was given, one is in its numbers; CPU and I/O are sums over nodes, "
    "memory is that of the node that had most, `parts` has each",
    "helpers": "CPU of threads that the task did not run in is in `cpu_s`: it was alone in its process",
    "elsewhere": "another process than the worker's ran it: times only",
    "unmonitored": "its worker was not measured: times only, those of the scheduler",
    "shared": "other tasks ran in the same process: memory is the process's",
    "oom": "it ended at its memory: the kernel's OOM killer struck in its control group, or Slurm or its log says so",
    "truncated": "no end was recorded; the row reaches to the last sample",
}

PART_COLUMNS: tuple[TaskColumn, ...] = tuple(
    c
    for c in TASK_COLUMNS
    if c.name
    in {
        "key", "attempt_id", "node", "worker", "pid", "start_ns", "stop_ns", "wall_s",
        "cpu_s", "cpu_user_s", "cpu_system_s", "memory_peak_bytes", "memory_peak_source",
        "rss_peak_bytes", "rss_peak_upper_bytes", "pss_peak_bytes", "swap_peak_bytes",
        "read_bytes", "write_bytes", "read_chars", "write_chars", "gpu_seconds",
        "gpu_memory_peak_bytes", "energy_j", "processes", "samples", "gap_s", "flags",
    }
)  # fmt: skip

#: Columns of the tasks table that say how much: what can be compared, and has a distribution.
NUMBERS: tuple[str, ...] = tuple(
    c.name
    for c in TASK_COLUMNS
    if c.dtype in ("int", "float") and c.unit != "UTC ns" and c.name not in ("attempt", "pid", "thread", "exit_code")
)
