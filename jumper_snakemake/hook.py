"""The hook: seven names of Snakemake that ours stand in for, each found by name and checked before it is touched.

Snakemake has no interface for who wants to measure its jobs, so these are replaced
in the process that runs them. What is missing is left out, with one warning, and
the rest goes on.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from jumper.monitor import brief
from jumper.monitor.spawn import OwnPeak
from jumper_snakemake.attempt import Attempt
from jumper_snakemake.benchmark import Benchmarks
from jumper_snakemake.jobs import asked_of, attempt_of, directive_of, facts_of
from jumper_snakemake.settings import ANY, TAG, VARIABLE, encode
from jumper_snakemake.site import Site

#: directives whose code runs in Snakemake's own process
IN_PROCESS = ("run", "template_engine")


class Patch(NamedTuple):
    """A name of Snakemake that is replaced.

    Attributes
    ----------
    module, holder, name : str
        Where it is; the holder is a class of the module, or empty.
    needs : tuple of str
        Parameters that it must have.
    without : str
        What is lost where it is not as expected.
    """

    module: str
    holder: str
    name: str
    needs: tuple[str, ...]
    without: str


RUN_WRAPPER = Patch(
    "snakemake.executors.local", "", "run_wrapper",
    ("job_rule", "input", "wildcards", "threads", "resources", "benchmark"), "no job is measured",
)  # fmt: skip
CACHED_OR_RUN = Patch("snakemake.executors.local", "Executor", "cached_or_run", ("self", "job"), "attempts are all 1")
SHELL_SP = Patch("snakemake.shell", "", "sp", (), "no process of a job is measured")
BENCHMARKED = Patch(
    "snakemake.benchmark", "", "benchmarked", ("pid", "benchmark_record"), "`benchmark:` files are Snakemake's own"
)
ENVVARS = Patch(
    "snakemake_interface_executor_plugins.executors.real", "RealExecutor", "envvars", ("self",),
    "only executors that hand on the environment are measured",
)  # fmt: skip
SENT = Patch(
    "snakemake_interface_executor_plugins.executors.real", "RealExecutor", "format_job_exec", ("self", "job"),
    "a job of a cluster asks for the memory that Snakemake gives to all",
)  # fmt: skip
SUBMITTED = Patch(
    "snakemake_interface_executor_plugins.executors.real", "RealExecutor", "report_job_submission",
    ("self", "job_info"), "a job id of the batch system is what the job knows of it",
)  # fmt: skip
PATCHES = (RUN_WRAPPER, CACHED_OR_RUN, SHELL_SP, BENCHMARKED, ENVVARS, SENT, SUBMITTED)


class _Local(threading.local):
    """What this thread runs."""

    job: Any = None
    sent: Any = None
    workflow: Any = None
    attempt: Attempt | None = None


_local = _Local()
_site: Site | None = None


def holder_of(patch: Patch) -> Any:
    """Return the module or class that a name is in.

    Raises
    ------
    ImportError, AttributeError
        Where there is none.
    """
    import_module(patch.module)
    # `import snakemake.shell` gives the class of that name, which its package has in its place
    module = sys.modules[patch.module]
    return getattr(module, patch.holder) if patch.holder else module


def fault_of(patch: Patch) -> str | None:
    """Return what is not as the hook needs it, or None.

    Examples
    --------
    >>> fault_of(Patch("json", "", "dumps", ("obj",), ""))
    >>> fault_of(Patch("json", "", "dumps", ("object",), ""))
    'json.dumps has no parameter object'
    """
    where = ".".join(part for part in (patch.module, patch.holder, patch.name) if part)
    try:
        found = getattr(holder_of(patch), patch.name)
    except (ImportError, AttributeError):
        return f"there is no {where}"
    if not patch.needs:
        return None if hasattr(found, "Popen") else f"{where} is no subprocess module"
    if not inspect.isfunction(found):
        return f"{where} is no function"
    missing = [name for name in patch.needs if name not in inspect.signature(found).parameters]
    return f"{where} has no parameter {', '.join(missing)}" if missing else None


def install(site: Site, replace_benchmark: bool = True) -> None:
    """Let the jobs of this process be measured; a second call changes nothing."""
    global _site
    if _site is not None:
        return
    _site = site
    wanted: dict[Patch, Callable[[Any], Any]] = {
        RUN_WRAPPER: _run_wrapper,
        CACHED_OR_RUN: _cached_or_run,
        SHELL_SP: _Subprocess,
        ENVVARS: _envvars,
        SENT: _format_job_exec,
    }
    if site.submitted is not None:
        wanted[SUBMITTED] = _report_job_submission
    if replace_benchmark:
        wanted[BENCHMARKED] = _benchmarked
    for patch, stand_in in wanted.items():
        fault = fault_of(patch)
        if fault is not None:
            site.warn(f"this Snakemake is not as expected ({fault}): {patch.without}")
            continue
        holder = holder_of(patch)
        setattr(holder, patch.name, stand_in(getattr(holder, patch.name)))


def _run_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original).parameters
    names = tuple(parameters)
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}

    def run_wrapper(*args: Any, **kwargs: Any) -> Any:
        attempt = _begin({**defaults, **dict(zip(names, args, strict=False)), **kwargs})
        before, _local.attempt = _local.attempt, attempt
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _end(error)
            raise
        else:
            _end(None)
            return result
        finally:
            _local.attempt = before

    return run_wrapper


def _begin(arguments: dict[str, Any]) -> Attempt | None:
    assert _site is not None
    try:
        if getattr(arguments["job_rule"], "norun", False):
            _site.bodiless.add(arguments["job_rule"].name)
            return None
        outer, inner = attempt_of(_local.job, _local.workflow)
        directive = directive_of(arguments["job_rule"])
        facts = facts_of(arguments, directive, _site.settings.asked)
        attempt = Attempt(_site, facts, outer, inner, in_process=directive in IN_PROCESS)
        attempt.is_service = bool(getattr(_local.job, "is_service", False))
        return attempt
    except Exception as error:
        _site.failed("a job's start", error)
        return None


def _end(error: BaseException | None) -> None:
    if _local.attempt is not None:
        _local.attempt.end(error)


def _cached_or_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def cached_or_run(self: Any, job: Any, *args: Any, **kwargs: Any) -> Any:
        _local.job, _local.workflow = job, getattr(self, "workflow", None)
        try:
            return original(self, job, *args, **kwargs)
        finally:
            _local.job = _local.workflow = None

    return cached_or_run


class _Subprocess:
    """What `snakemake.shell` finds under the name `sp`: the module, with processes that are watched."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.Popen = _JobProcess

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _JobProcess(OwnPeak):
    """A process of a job: marked in its environment, and looked at between its end and its reaping."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._attempt = attempt = _local.attempt
        if attempt is not None and isinstance(kwargs.get("env"), dict):
            kwargs["env"] = {**kwargs["env"], TAG: attempt.mark}
        self._start_ns = time.monotonic_ns()  # a short one may be over when it is known
        super().__init__(*args, **kwargs)

    def started(self) -> None:
        if self._attempt is not None:
            self._attempt.child(self.pid, self._start_ns, own_peak=self.own_peak)

    def wait(self, timeout: float | None = None) -> int:
        """Wait; what it cost is read before it is reaped."""
        if self._attempt is not None and timeout is None and self.returncode is None:
            status = self._attempt.await_child(self.pid)
            lock = getattr(self, "_waitpid_lock", None)
            if status is not None and lock is not None:
                with lock:  # a `poll` of another thread that finds nobody says 0
                    if self.returncode is None:
                        self.returncode = status
                        brief.reap(self.pid)
                    return self.returncode
        return super().wait(timeout)


def _benchmarked(original: Callable[..., Any]) -> Callable[..., Any]:
    module = sys.modules[BENCHMARKED.module]
    return Benchmarks(original, lambda: module.BenchmarkRecord(), lambda: _local.attempt).benchmarked


def _envvars(original: Callable[..., Any]) -> Callable[..., Any]:
    def envvars(self: Any) -> dict[str, str]:
        found: dict[str, str] = original(self)
        assert _site is not None
        with _site.harmless("a job's environment"):
            settings = _site.settings
            if settings.asked == ANY and _local.job is not None:  # it gets a process of its own
                settings = settings._replace(asked=asked_of(_local.job))
            elif settings.asked == ANY and _local.sent is not None:
                settings = settings._replace(asked=asked_of(_local.sent, here=False))
            return {**found, VARIABLE: encode(settings)}
        return found

    return envvars


def _format_job_exec(original: Callable[..., Any]) -> Callable[..., Any]:
    def format_job_exec(self: Any, job: Any, *args: Any, **kwargs: Any) -> Any:
        _local.sent = job
        try:
            return original(self, job, *args, **kwargs)
        finally:
            _local.sent = None

    return format_job_exec


def _report_job_submission(original: Callable[..., Any]) -> Callable[..., Any]:
    def report_job_submission(self: Any, job_info: Any, *args: Any, **kwargs: Any) -> Any:
        assert _site is not None
        with _site.harmless("a job's submission"):
            external = getattr(job_info, "external_jobid", None)
            if external is not None and _site.submitted is not None:
                job = job_info.job
                logs = [str(value) for name, value in (job_info.aux or {}).items() if "log" in name and value]
                _site.submitted(job.jobs if job.is_group() else [job], str(external), logs)
        return original(self, job_info, *args, **kwargs)

    return report_job_submission
