"""The main process's side of a run: its folder, made when the first job needs it; what the DAG said; its end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper_snakemake.ends import ASK_S, slurm_end
from jumper_snakemake.jobs import job_key
from jumper_snakemake.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

    from jumper.monitor.segment import SegmentWriter

#: where runs are below the working directory
FOLDER = os.path.join(".snakemake", "jumper")
#: so far the clock may be behind of who sets the time of a log: a node, where no file server does, or who copied it
BEHIND_NS = 86_400_000_000_000


class MainRun:
    """One run of a workflow, as its main process sees it.

    Parameters
    ----------
    folder : path
        Runs are made in its folder ``runs``; relative to the working directory.
    settings : Settings
        All but the run.
    command : sequence of str
        What was called.
    option : str
        By which the user names another folder.
    """

    def __init__(
        self, folder: str | os.PathLike[str], settings: Settings, command: list[str], option: str = "--dir"
    ) -> None:
        self._folder = os.fspath(folder)
        self._settings = settings
        self._command = command
        self._option = option
        self._lock = threading.RLock()
        self._made: Settings | None = None
        self._writer: SegmentWriter | None = None
        self._waiting: list[dict[str, Any]] = []
        self._keys: dict[Any, dict[str, Any]] = {}
        self._attempts: dict[str, int] = {}
        self._asking: list[threading.Thread] = []
        self.began_ns = time.time_ns()
        #: where its paths are shown from: Snakemake goes to its `--directory` later
        self.began_in = os.path.abspath(".")
        #: files that jobs' output may be in
        self.logs: set[Path] = set()
        #: rules that only gather files
        self.bodiless: Collection[str] = ()

    @property
    def path(self) -> Path | None:
        """The run's folder, once it is made."""
        return None if self._made is None else Path(self._made.run)

    def settings(self) -> Settings:
        """Return the settings with the run, whose folder is made now if it is not there.

        Raises
        ------
        RunError
            Where the place cannot be written.
        """
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Settings:
        from jumper.monitor.segment import SegmentWriter
        from jumper.monitor.serverclock import clock_record
        from jumper.schema import VERSION
        from jumper.store.rundir import RunDirectory, new_run_id

        run = new_run_id()
        directory = RunDirectory(os.path.abspath(os.path.join(self._folder, "runs", run)))
        versions = {"jumper": VERSION, "python": ".".join(map(str, sys.version_info[:3])), "snakemake": _version()}
        interval = self._settings.interval
        directory.create(
            "snakemake",
            command=self._command,
            run=run,
            option=self._option,
            interval_s=interval,
            versions=versions,
        )
        self._writer = SegmentWriter(
            directory.spool, {"kind": "scheduler", "run": run, "engine": "none", "interval_s": interval}
        )
        for record in (clock_record(directory.spool), *self._waiting):
            if record is not None:
                self._writer.text(record)
        self._waiting.clear()
        self._writer.flush()
        return self._settings._replace(run=str(directory.path), inode=directory.path.stat().st_ino)

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Take one of Snakemake's log events (snakemake_interface_logger_plugins.common.LogEvent)."""
        if name == "job_info":
            wildcards = fields.get("wildcards") or {}
            rule = str(fields.get("rule_name"))
            known = self._keys.setdefault(fields.get("jobid"), {})
            known["key"] = job_key(rule, {str(k): v for k, v in dict(wildcards).items()})
            known["group"], known["local"] = rule, bool(fields.get("local"))
            if "early" in known:
                self._started(known, known.pop("early"))
        elif name == "job_started":  # of a job that is told of before or after it, as the version of Snakemake is
            now = _when(fields)
            for job in fields.get("jobs") or ():
                known = self._keys.setdefault(job, {})
                if "key" in known:
                    self._started(known, now)
                else:
                    known["early"] = now
        elif name == "job_finished":
            self._ended(fields.get("job_id"), state="done", **_when(fields))
        elif name == "job_error":
            self._failed(fields)

    def submitted(self, jobs: Iterable[Any], external_id: str, logs: Iterable[str]) -> None:
        """Take that jobs were given to a batch system as one; of a group, Snakemake tells no start of its own.

        Parameters
        ----------
        jobs : iterable of snakemake.jobs.Job
        external_id : str
            The batch system's id.
        logs : iterable of str
            Files that the executor has their output in.
        """
        self.logs.update(map(Path, logs))
        together = list(jobs)
        for job in together:
            key = job_key(job.rule.name, {str(k): v for k, v in job.wildcards_dict.items()})
            known = {"key": key, "group": job.rule.name}
            attempt = int(job.attempt or 1)
            if len(together) > 1:
                with self._lock:
                    self._attempts[key] = attempt
            alone = len(together) == 1
            self._note("note" if alone else "start", known, attempt=attempt, external_id=external_id,
                       ready=None if alone else True)  # fmt: skip

    def _started(self, known: dict[str, Any], when: dict[str, int]) -> None:
        key = known["key"]
        self._attempts[key] = self._attempts.get(key, 0) + 1
        known["start"] = when
        if not known["local"]:  # a local one is told by who runs it, but for bodiless ones, which nobody does
            self._note("start", known, ready=True, **known.pop("start"))

    def _ended(self, job: Any, **facts: Any) -> dict[str, Any] | None:
        """Note a job's end; return what is known of it, None where it is none that is measured."""
        known = self._keys.get(job, {})
        if known.get("key") not in self._attempts or known["group"] in self.bodiless:
            return None
        if "start" in known:
            self._note("start", known, **known.pop("start"))
        self._note("stop", known, **facts)
        return known

    def _failed(self, fields: Mapping[str, Any]) -> None:
        aux = fields.get("aux") or {}
        logs = [str(log).split(" (")[0] for log in fields.get("log") or ()]
        self.logs.update(map(Path, logs))
        external = aux.get("external_jobid") if isinstance(aux, Mapping) else None
        known = self._ended(fields.get("jobid"), state="failed", external_id=external)
        if known is None or external is None:
            return
        attempt = self._attempts[known["key"]]

        def ask() -> None:
            end = slurm_end(str(external), os.getcwd(), logs)
            if end.reason:
                self._note("note", known, attempt=attempt, ended_by=end.reason, flags=list(end.flags))

        asking = threading.Thread(target=ask, name="jumper-end", daemon=True)  # it takes a while
        asking.start()
        self._asking.append(asking)

    def _note(self, event: str, known: Mapping[str, Any], attempt: int | None = None, **facts: Any) -> None:
        record = {
            "type": "task",
            "event": event,
            "witness": "scheduler",
            "kind": "snakemake",
            "key": known["key"],
            "group": known["group"],
            "attempt_id": f"{attempt or self._attempts[known['key']]}.1.1",
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            **{name: value for name, value in facts.items() if value is not None},
        }
        with self._lock:
            if self._writer is None:
                self._waiting.append(record)
            else:
                self._writer.text(record)
                self._writer.flush()

    def close(self) -> None:
        """End the records; nothing where no job needed a run."""
        for asking in self._asking:
            asking.join(2 * ASK_S)
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.text({"type": "end", "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), "ticks": 0,
                         "dropped": writer.dropped})  # fmt: skip
            writer.close()


def logs_of_jobs(folder: str | None, since_ns: int) -> Iterator[Path]:
    """Yield the files that logs of jobs are in; those that are much older than a time (UTC ns) are passed over.

    In a folder, and where executors keep them: ``.snakemake/NAME_logs`` (Slurm, LSF, Google Batch),
    ``.snakemake/auxiliary/NAME-logs`` (Kubernetes).
    """
    work = Path(".snakemake")
    for place in (*work.glob("*logs"), *work.glob("auxiliary/*logs"), *([Path(folder)] if folder else ())):
        for parent, _, names in os.walk(place):
            for file in (Path(parent, name) for name in names):
                with contextlib.suppress(OSError):
                    if file.is_file() and file.stat().st_mtime_ns >= since_ns - BEHIND_NS:
                        yield file


def finish(
    path: Path, report: bool, say: Callable[[str], None], logs: Iterable[Path] = (), seen_from: str | None = None
) -> None:
    """Merge a run, write its `benchmarks.tsv` and its report, and say in one line where they are.

    Parameters
    ----------
    path : Path
    report : bool
        Write the report too.
    say : callable
        Called with the line.
    logs : iterable of Path
        Where the records may be of jobs that are missing.
    seen_from : str, optional
        The folder that paths are said relative to; default: the current one.
    """
    from jumper.core.run import open_run
    from jumper.schema.errors import MissingExtraError
    from jumper.store.rundir import RunDirectory
    from jumper_snakemake.compact import bring_home
    from jumper_snakemake.table import write_benchmarks

    with contextlib.suppress(OSError):
        RunDirectory(path).update_info(finished_ns=time.time_ns())
    shown = os.path.relpath(path, seen_from)
    try:
        run = open_run(path)
        if run.tasks["cpu_s"].isna().any() and bring_home(logs, RunDirectory(path).spool, path.name):
            run = open_run(path)
        tasks = run.tasks
    except MissingExtraError as error:
        say(f"measured, not merged yet: {error}; then `jumper report {shown}`")
        return
    write_benchmarks(tasks, path / "benchmarks.tsv")
    RunDirectory(path).update_info(coverage={**run.info.get("coverage", {}), **coverage_of(tasks)})
    where = f"`jumper summary {shown}`"
    if report:
        where = os.path.relpath(run.report(), seen_from)
    say(f"{measured(tasks)}: {where}")


def _when(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return when Snakemake told of an event: another thread takes it, a while later."""
    wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
    ago_ns = max(0, wall_ns - round(fields.get("created", wall_ns / 1e9) * 1e9))
    return {"mono_ns": mono_ns - ago_ns, "wall_ns": wall_ns - ago_ns}


def measured(tasks: pd.DataFrame) -> str:
    """Return how many jobs were measured, and in how many attempts (repeats are some) where these are more.

    Examples
    --------
    >>> import pandas as pd
    >>> tasks = pd.DataFrame({"key": ["a", "b", "b"], "cpu_s": [0.1, 0.2, 0.3]})
    >>> measured(tasks[:2]), measured(tasks), measured(tasks.assign(cpu_s=[0.1, None, 0.3]))
    ('2 jobs measured', '2 jobs measured, in 3 attempts', '1 of 2 jobs measured, 2 of 3 attempts')
    """
    attempts = tasks["cpu_s"].notna()
    jobs = attempts.groupby(tasks["key"]).all()
    said = f"{_share(jobs, 'job')} measured"
    if len(jobs) == len(attempts):
        return said
    return f"{said}, {'in ' if attempts.all() else ''}{_share(attempts, 'attempt')}"


def _share(known: pd.Series[bool], what: str) -> str:
    some = "" if known.all() else f"{int(known.sum())} of "
    return f"{some}{len(known)} {what}{'s' if len(known) != 1 else ''}"


def coverage_of(tasks: Any) -> dict[str, Any]:
    """Return what run.json says of the attempts that were expected and those whose cost came."""
    lost = tasks[tasks["cpu_s"].isna()]
    missing = [
        {"key": str(key), "reason": "no record of its cost came: neither in the run's folder nor in a log"}
        for key in lost["key"]
    ]
    return {"expected": len(tasks), "came": len(tasks) - len(lost), "missing": missing}


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("snakemake")
    except PackageNotFoundError:
        return None
