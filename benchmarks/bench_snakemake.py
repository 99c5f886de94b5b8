"""What the front end costs Snakemake: a job, a start, and 20,000 jobs merged and reported at the end."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import snakemake  # noqa: F401  without it there is nothing to measure

from benchmarks.measuring import Row, Size, interval_of, spread
from jumper.monitor.segment import SegmentWriter
from jumper_snakemake.jobs import job_key
from jumper_snakemake.main import MainRun
from jumper_snakemake.settings import VARIABLE, Settings, encode

REPOSITORY = Path(__file__).resolve().parents[1]
#: Jobs in chains, so that few are ready at a time: Snakemake looks at all that are whenever one ends, which costs
#: more than the jobs and differs from run to run.
JOBS, CHAINS, LIMIT_JOB_MS = 500, 10, 2
#: Its usual scheduler asks a solver, whose CPU differs from run to run by more than what is looked for here. So does a
#: full collection of Snakemake's garbage, of which there may be one more in either.
PROGRAM = "import gc; gc.set_threshold(700, 10, 1_000_000); from snakemake.cli import main; main()"
SNAKEMAKE = (sys.executable, "-c", PROGRAM, "--scheduler", "greedy")
LIMIT_START_MS = 5
MANY, LIMIT_MERGE_S, LIMIT_MERGE_MIB = 20_000, 20, 1024
#: jobs of the big run at once, how long one takes, and of how many rules they are
SLOTS, JOB_NS, RULES = 32, 2_000_000_000, 12
SNAKEFILE = """
rule all:
    input: expand("{{chain}}/{{i}}.txt", chain=range({chains}), i={length} - 1)
rule one:
    input: lambda wildcards: [f"{{wildcards.chain}}/{{int(wildcards.i) - 1}}.txt"] if wildcards.i != "0" else []
    output: "{{chain}}/{{i}}.txt"
    shell: "touch {{output}}"
"""
START = """
import sys, time, snakemake.cli
sys.pycache_prefix = sys.argv[1]
before = time.process_time()
import snakemake_logger_plugin_jumper, snakemake_report_plugin_jumper
print((time.process_time() - before) * 1000)
"""
FINISH = """
import sys
from pathlib import Path
from jumper_snakemake.main import finish
finish(Path(sys.argv[1]), True, print)
"""


def costs(size: Size) -> Iterator[Row]:
    """Yield the rows of this benchmark."""
    yield from a_job(size)
    yield from a_start(size)
    yield from many(size)


def a_job(size: Size) -> Iterator[Row]:
    """Yield the CPU of Snakemake and its jobs with and without the hook; without the merge at the end.

    The two of a pair run at the same time: what else the machine does, which costs both CPU, is the same for both.
    One after the other, their difference varied three times as much.
    """
    length, pairs = max(1, round(JOBS / CHAINS * size.work)), size.pairs
    jobs = CHAINS * length
    found: dict[bool, list[float]] = {True: [], False: []}
    with ThreadPoolExecutor(2) as both:
        for pair in range(pairs):
            ways = (pair % 2 == 0, pair % 2 != 0)
            for measured, used_s in zip(ways, both.map(lambda way: _workflow(length, way), ways), strict=True):
                found[measured].append(used_s / jobs * 1000)
    more, low, high = interval_of([a - b for a, b in zip(found[True], found[False], strict=True)])
    yield Row(
        f"Snakemake, {jobs} trivial jobs with and without the hook, CPU a job",
        spread(found[True], 2, " ms"),
        spread(found[False], 2, " ms"),
        f"{more:.2f} ms more (95 %: {low:.2f} to {high:.2f})",
        f"at most {LIMIT_JOB_MS} ms more",
        more <= LIMIT_JOB_MS,
    )


def _workflow(length: int, measured: bool) -> float:
    """Return CPU seconds of a workflow whose chains have so many jobs, these included."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Snakefile").write_text(SNAKEFILE.format(chains=CHAINS, length=length))
        environment = _environment()
        if measured:
            run = MainRun(os.path.join(folder, "jumper"), Settings("", jobs_only=False), ["snakemake"])
            environment[VARIABLE] = encode(run.settings())
        try:
            return _used([*SNAKEMAKE, "--cores", "2", "--quiet", "all"], folder, environment)[0]
        finally:
            if measured:
                run.close()


def a_start(size: Size) -> Iterator[Row]:
    """Yield the CPU of importing both plugins into a Snakemake that is loaded, as each of its processes does."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment()
        for _ in range(size.rounds + 1):
            done = subprocess.run(
                [sys.executable, "-c", START, folder], env=environment, capture_output=True, text=True, check=True
            )
            taken.append(float(done.stdout))
    del taken[0]  # it compiled them
    yield Row(
        "Snakemake, what both plugins add to a start, CPU", spread(taken, 2, " ms"), "", "",
        f"at most {LIMIT_START_MS} ms", statistics.median(taken) <= LIMIT_START_MS,
    )  # fmt: skip


def many(size: Size) -> Iterator[Row]:
    """Yield wall time and memory of merging and reporting a big run."""
    jobs = round(MANY * size.work)
    with tempfile.TemporaryDirectory() as folder:
        run = MainRun(folder, Settings("", interval=1.0), ["snakemake"])
        path = Path(run.settings().run)
        write_run(path, jobs)
        run.close()
        began = time.monotonic()
        cpu_s, peak_bytes = _used([sys.executable, "-c", FINISH, str(path)], folder, _environment())
        wall_s = time.monotonic() - began
    figure = f"Snakemake, {jobs:,} jobs merged and reported"
    yield Row(
        f"{figure}, wall time", f"{wall_s:.1f} s", f"{cpu_s:.1f} s of CPU", "",
        f"under {LIMIT_MERGE_S} s", wall_s < LIMIT_MERGE_S,
    )  # fmt: skip
    peak_mib = peak_bytes / 2**20
    yield Row(
        f"{figure}, memory peak", f"{peak_mib:.0f} MiB", "", "", f"under {LIMIT_MERGE_MIB} MiB",
        peak_mib < LIMIT_MERGE_MIB,
    )  # fmt: skip


def write_run(path: Path, jobs: int) -> None:
    """Write the segment of a Snakemake process that ran so many jobs, each sampled once a second."""
    with SegmentWriter(path / "spool", {"kind": "snakemake", "run": path.name, "interval_s": 1.0}) as segment:
        wall, mono = time.time_ns(), time.monotonic_ns()
        for number in range(jobs):
            start = mono + number // SLOTS * JOB_NS + number % SLOTS * 1_000_000
            stop, pid = start + JOB_NS - 40_000_000, 100_000 + number
            rule, wildcards = f"rule{number % RULES}", f'{{"sample": "{number}"}}'
            task = {"type": "task", "key": job_key(rule, {"sample": number}), "attempt_id": "1.1.1"}
            segment.text(
                {**task, "event": "start", "mono_ns": start, "wall_ns": wall + start - mono, "group": rule,
                 "kind": "snakemake", "wildcards": wildcards, "pid": 4711, "thread": 4800 + number % SLOTS,
                 "threads_asked": 1, "memory_asked_bytes": 10**9, "input_bytes": number * 1000,
                 "annotations": '{"directive": "shell"}', "roots": [[pid, start, None]]}
            )  # fmt: skip
            for sample in range(3):
                used = min(JOB_NS, sample * 1_000_000_000)
                at = min(stop, start + used)
                memory = (10 + sample + number % 50) << 20
                segment.row(
                    "process",
                    {"mono_ns": at, "pid": pid, "cpu_ns": used, "rss_bytes": memory, "memory_bytes": memory,
                     "rss_peak_bytes": memory, "memory_peak_bytes": memory, "hwm_max_bytes": memory,
                     "read_chars": used >> 8, "write_chars": used >> 9, "processes": 2},
                )  # fmt: skip
            segment.text(
                {**task, "event": "stop", "mono_ns": stop, "wall_ns": wall + stop - mono, "state": "done",
                 "exit_code": 0, "flags": [], "roots": [[pid, start, stop]],
                 "rusage": {"cpu_user_ns": 1_700_000_000, "cpu_system_ns": 100_000_000,
                            "maxrss_bytes": (12 + number % 50) << 20, "maxrss_floor_bytes": 0},
                 "io": {"read_chars": 8_000_000, "write_chars": 4_000_000, "reads": 10, "writes": 5,
                        "read_bytes": 0, "write_bytes": 4_000_000}}
            )  # fmt: skip
            if number % 100 == 0:
                segment.flush()


def _environment() -> dict[str, str]:
    """Return an environment in which modules are compiled once, and with nothing of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUMPER_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (str(REPOSITORY), kept.get("PYTHONPATH"))))}


def _used(command: list[str], folder: str, environment: dict[str, str]) -> tuple[float, int]:
    """Return CPU seconds of a command with all its children, and the peak of the largest of them in bytes."""
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=nowhere, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(said.decode(errors="replace")[-500:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
