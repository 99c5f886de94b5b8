"""Lines to paste: what a finding wants changed, in the words of Snakemake, Dask or Slurm."""

from __future__ import annotations

import json
import math

from jumper.analysis.units import digits


def memory(kind: str, group: str, wanted_bytes: float, slurm: bool = False) -> str:
    """Return how a group asks for so much memory; empty where nobody is asked.

    Examples
    --------
    >>> print(memory("snakemake", "align", 1.5e9))
    set-resources:
      "align":
        mem_mb: 1500
    >>> memory("dask", "inc", 3 * 2**30)
    'dask worker SCHEDULER --memory-limit 3072MiB'
    >>> memory("command", "solver", 3 * 2**30, slurm=True), memory("command", "solver", 3 * 2**30)
    ('#SBATCH --mem=3072M', '')
    """
    if kind == "snakemake":
        return f"set-resources:\n  {json.dumps(group)}:\n    mem_mb: {math.ceil(round(wanted_bytes) / 1e6)}"
    mib = math.ceil(wanted_bytes / 2**20)
    if kind == "dask":
        return f"dask worker SCHEDULER --memory-limit {mib}MiB"
    return f"#SBATCH --mem={mib}M" if slurm else ""


def threads(kind: str, group: str, wanted: int, slurm: bool = False) -> str:
    """Return how a group asks for so many threads; empty where nobody is asked.

    Examples
    --------
    >>> print(threads("snakemake", "align", 4))
    set-threads:
      "align": 4
    >>> threads("command", "solver", 4, slurm=True), threads("dask", "inc", 4)
    ('#SBATCH --cpus-per-task=4', '')
    """
    if kind == "snakemake":
        return f"set-threads:\n  {json.dumps(group)}: {wanted}"
    return f"#SBATCH --cpus-per-task={wanted}" if kind == "command" and slurm else ""


def first(kind: str, group: str) -> str:
    """Return how the tasks of a group are started before others; empty where there is no such way.

    Source: "Priorities" in the documentation of Snakemake, ``dask.annotate(priority=)`` in that of Dask.

    Examples
    --------
    >>> first("dask", "train")
    'with dask.annotate(priority=100):  # around what makes train'
    """
    name = json.dumps(group)[1:-1]
    if kind == "snakemake":
        return f"priority: 100  # in rule {name}"
    return f"with dask.annotate(priority=100):  # around what makes {name}" if kind == "dask" else ""


def interval(kind: str, wanted_s: float) -> str:
    """Return how samples are taken less often.

    Examples
    --------
    >>> interval("snakemake", 5.0)
    'snakemake --logger jumper --logger-jumper-interval 5'
    """
    value = digits(wanted_s).replace(",", "").removesuffix(".00").removesuffix(".0")
    if kind == "snakemake":
        return f"snakemake --logger jumper --logger-jumper-interval {value}"
    if kind == "dask":
        return f"client.register_plugin(jumper_dask.JumperPlugin(interval={value}))"
    return f"jumper run --interval {value} -- COMMAND"
