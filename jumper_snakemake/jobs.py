"""Job records: who an attempt is, what it asked for, and how it ended, as the `task` records of a segment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from jumper_snakemake.settings import ANY

#: names of the batch systems' job ids in the environment of a job
EXTERNAL_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID", "OAR_JOB_ID")
#: resources that a task is said to have asked for
RESOURCES = ("mem_mb", "mem_mib", "runtime")
#: what Snakemake itself asks for, where jobs go to a cluster or the user sets any default (`snakemake.resources`)
DEFAULT_MEMORY = "min(max(2*input.size_mb, 1000), 8000)"
#: inputs beyond this number are not looked at for their size
MOST_INPUTS = 1000
#: what a rule runs, by the attribute that it has then
_DIRECTIVES = {
    "shellcmd": "shell",
    **{name: name for name in ("script", "notebook", "wrapper", "cwl", "template_engine")},
}
_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes one a call
_PLAIN = re.compile(r"[^,=\[\]\"\\]*")


def job_key(rule: str, wildcards: Mapping[str, Any]) -> str:
    """Return the key of a job: rule and wildcards, which are unique in a DAG; job ids differ between processes.

    Examples
    --------
    >>> job_key("sort", {"s": "A", "n": "1,2"}), job_key("all", {})
    ('sort[s=A,n="1,2"]', 'all')
    """
    parts = [f"{name}={_quoted(str(value))}" for name, value in wildcards.items()]
    return f"{rule}[{','.join(parts)}]" if parts else rule


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else _json(value)


def directive_of(rule: Any) -> str:
    """Return what a rule runs: ``shell``, ``script``, ``notebook``, ``wrapper``, ``cwl``, ``run``, ..."""
    for attribute, directive in _DIRECTIVES.items():
        if getattr(rule, attribute, None):
            return directive
    return "run"


def attempt_of(job: Any, workflow: Any) -> tuple[int, int]:
    """Return (outer, inner): the attempt of the main process, and the one inside a process that runs this job.

    A rule's `retries` also apply inside a job process, which begins at the outer attempt.
    """
    now = int(getattr(job, "attempt", None) or 1)
    if workflow is None or getattr(workflow, "is_main_process", True):
        return now, 1
    outer = int(getattr(workflow, "attempt", None) or 1)
    return outer, max(1, now - outer + 1)


def asked_of(job: Any, here: bool = True) -> str:
    """Return which resources a job asks for, as :class:`jumper_snakemake.settings.Settings` has them.

    A job gets a Snakemake of its own (`run:`, `shadow:`, a cluster's), whose command line puts `mem_mb` among the
    default resources (`snakemake.resources.Resources.DEFAULTS`): it finds what nobody asked for.

    Parameters
    ----------
    job : snakemake.jobs.Job or GroupJob
        As the main process has it.
    here : bool
        Whether the main process runs it on its own machine, not a cluster.
    """
    jobs = list(job.jobs) if not here and job.is_group() else [job]
    if any(getattr(each, "resources", None) is None for each in jobs):
        return ANY
    names = set().union(*(each.resources.keys() for each in jobs))  # each is a list, of values
    return "+".join(name for name in (_told_by(job.rule) if here else RESOURCES) if name in names)


def _told_by(rule: Any) -> tuple[str, ...]:
    """Return which resources say what somebody asked for, of a job that the main process runs itself.

    For a cluster Snakemake gives memory to every rule that has none, also to those that stay here; a job that
    goes there does ask for it.
    """
    resources = getattr(rule, "resources", {})
    memory = resources.get("mem_mb")
    evaluator = getattr(memory, "_evaluator", memory)  # before there was a class for it, the function itself
    if not callable(evaluator) or not getattr(rule.workflow, "is_main_process", True) or not _by_default(evaluator):
        return RESOURCES
    return RESOURCES[1:] if "mem_mib" in resources else RESOURCES[2:]  # a job has both, where one is asked for


@lru_cache(maxsize=64)
def _by_default(evaluator: Any) -> bool:
    """Return whether a function is Snakemake's own default for memory, which its closure has as text."""
    while hasattr(evaluator, "__wrapped__"):
        evaluator = evaluator.__wrapped__
    ours = getattr(evaluator, "__module__", "") == "snakemake.resources"
    return ours and any(cell.cell_contents == DEFAULT_MEMORY for cell in evaluator.__closure__ or ())


def facts_of(arguments: Mapping[str, Any], directive: str, told: str = ANY) -> dict[str, Any]:
    """Return what is known of a job before it runs, under the names of the tasks table; nothing is None.

    Parameters
    ----------
    arguments : mapping
        Those of `snakemake.executors.local.run_wrapper`, by name.
    directive : str
        As of :func:`directive_of`.
    told : str
        As of :func:`asked_of`, in the process that gave this one the job.
    """
    rule, resources = arguments["job_rule"], arguments["resources"]
    wildcards = {str(name): str(value) for name, value in arguments["wildcards"].items()}
    names = _told_by(rule) if told == ANY else told.split("+")
    asked = {name: value for name in names if (value := _number(resources.get(name))) is not None}
    benchmark = arguments.get("benchmark")
    facts: dict[str, Any] = {
        "key": job_key(rule.name, wildcards),
        "group": rule.name,
        "kind": "snakemake",
        "wildcards": "{" + ", ".join([f"{_json(name)}: {_json(value)}" for name, value in wildcards.items()]) + "}",
        "annotations": _annotations(directive, str(benchmark) if benchmark else None),
        "pid": os.getpid(),
    }
    if (external_id := _external_id()) is not None:
        facts["external_id"] = external_id
    if (threads := _number(arguments.get("threads"))) is not None:
        facts["threads_asked"] = threads
    if (memory := _bytes_asked(asked)) is not None:
        facts["memory_asked_bytes"] = memory
    if "runtime" in asked:
        facts["runtime_asked_s"] = asked["runtime"] * 60.0
    if (size := _size(arguments.get("input") or ())) is not None:
        facts["input_bytes"] = size
    return facts


@lru_cache(maxsize=64)  # most jobs have no benchmark: one text a directive
def _annotations(directive: str, benchmark: str | None) -> str:
    return _json({"directive": directive} if benchmark is None else {"directive": directive, "benchmark": benchmark})


@cache
def _external_id() -> str | None:
    return next((os.environ[name] for name in EXTERNAL_IDS if os.environ.get(name)), None)


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def _bytes_asked(asked: Mapping[str, int]) -> int | None:
    """Snakemake's mem_mb are 10**6 bytes, its mem_mib 2**20 (docs: "Standard Resources")."""
    if "mem_mb" in asked:
        return asked["mem_mb"] * 10**6
    return asked["mem_mib"] << 20 if "mem_mib" in asked else None


def _size(files: Iterable[Any]) -> int | None:
    total = 0
    for count, name in enumerate(files):
        if count == MOST_INPUTS:
            return None
        try:
            total += os.stat(str(name)).st_size
        except OSError:  # a pipe that is gone, storage that is not here
            return None
    return total


def reason_of(status: int | None, error: BaseException | None) -> str | None:
    """Return why an attempt did not succeed, in one line.

    Examples
    --------
    >>> reason_of(3, None), reason_of(-9, None), reason_of(None, ValueError("no such sample"))
    ('exit status 3', 'ended by signal 9', 'ValueError: no such sample')
    """
    if status:
        return f"exit status {status}" if status > 0 else f"ended by signal {-status}"
    if error is None:
        return None
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
