"""`jumper run`: measure one command from outside, with its exit status, streams and signals untouched."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from jumper.config.libraries import needs_native
from jumper.monitor.backends import backend_name, require_native
from jumper.monitor.filesystems import is_shared
from jumper.monitor.launcher import CannotExecute, Exit, Launcher, end_as
from jumper.monitor.nodefacts import memory_limit_bytes
from jumper.monitor.pipeline import CollectorConfig, load_config
from jumper.monitor.sampling import sampling
from jumper.monitor.segment import spool_folder
from jumper.monitor.serverclock import clock_record
from jumper.schema.errors import JumperError, RunError
from jumper.store.rundir import RunDirectory, mask_secrets, new_run_id
from jumper.utilities import parse_interval

#: how often a shared file system is written to
SHARED_FLUSH_S = 10.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: a process's number on its node, as Slurm, Open MPI and Hydra tell it
_ON_NODE = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_RANKS = ("SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def rank_of_many() -> str | None:
    """Return this process's rank where a launcher started several beside it, else None.

    Source: srun(1) SLURM_PROCID, SLURM_NTASKS; the variables of PMI, PMIx and Open MPI.
    """
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name)), None)
    sizes = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
    size = next((os.environ[name] for name in sizes if os.environ.get(name)), "1")
    return rank if rank is not None and size != "1" else None


def run(
    command: Sequence[str],
    *,
    interval: float = 1.0,
    backend: str = "default",
    output: str | os.PathLike[str] | None = None,
    collectors: str | os.PathLike[str] | None = None,
    levels: Collection[str] | None = None,
) -> int:
    """Run a command and measure it; return its exit status.

    Where the run cannot be written, the command runs all the same, and one line on
    stderr says what is lost.

    Parameters
    ----------
    command : sequence of str
    interval : float
        Seconds between samples.
    backend : str
        Which engine samples; see :func:`jumper.monitor.backends.create_monitor`.
    output : path, optional
        The run directory; default ``jumper-runs/<run id>``.
    collectors : path, optional
        A collectors.yaml that adds to the built-in one.
    levels : collection of str, optional
        Default: process and system.

    Returns
    -------
    int
        As of a shell: the command's status, 127 where there is no such command, 126
        where it cannot be executed. Ended by a signal, this process ends by it too.

    Raises
    ------
    JumperError
        For wrong settings, before the command starts.
    """
    interval = parse_interval(interval)
    engine = "native" if backend_name(backend) == "native" else "python"
    if engine == "native":
        require_native()
    config = load_config(collectors)
    for line in _left_out(config, engine):
        _say(line)
    wanted = tuple(levels or ("process", "system"))
    rank = rank_of_many()
    run_id = new_run_id()
    directory = RunDirectory(output if output is not None else Path("jumper-runs") / run_id)
    with contextlib.suppress(PermissionError):  # said when it cannot be made
        _check_free(directory, rank)
    measurement = _Measurement(command, rank, interval, config, wanted, engine, directory, run_id)
    try:
        status = measurement.run()
    except CannotExecute as error:
        _say(f"cannot run {command[0]!r}: {error.strerror}")
        return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
    measurement.say_where()
    return end_as(status)


class _Measurement:
    def __init__(
        self,
        command: Sequence[str],
        rank: str | None,
        interval: float,
        config: CollectorConfig,
        levels: tuple[str, ...],
        engine: str,
        directory: RunDirectory,
        run_id: str,
    ) -> None:
        self.command = list(command)
        self.rank = rank
        self.interval = interval
        self.config = config
        self.levels = levels
        self.engine = engine
        self.directory: RunDirectory | None = directory
        self.run_id = run_id
        self.sampling: Any = None
        self.attempt_id = f"{rank or 0}.{os.urandom(4).hex()}"
        self.key = shlex.join(mask_secrets(command))

    def run(self) -> int:
        tag = None if Launcher.has_shim() else f"JUMPER_TAG={os.getpid()}.{time.monotonic_ns()}"
        environment = _environment()
        if tag is not None:
            name, value = tag.split("=")
            environment[name] = value
        launcher = Launcher(self.command, environment=environment)
        io_fd = _open_io(launcher.pid)
        try:  # what is measured goes on whatever happens to us
            self._begin(launcher, tag, io_fd)
        except Exception as error:
            _say(f"not measured: {type(error).__name__}: {error}; the command runs all the same")
        finally:
            if io_fd is not None:
                os.close(io_fd)
        ended, orphans = launcher.wait(self._last_look)
        try:
            self._end(launcher, ended, orphans)
        except Exception as error:
            _say(f"the end of the run is not recorded: {type(error).__name__}: {error}")
        return ended.status

    def _begin(self, launcher: Launcher, tag: str | None, io_fd: int | None) -> None:
        """Make the run and sample into it; where its place cannot be written, in the spool; else not at all."""
        wanted = self.directory
        for directory in (wanted, None):
            try:
                self.directory = directory or RunDirectory(spool_folder() / "runs" / self.run_id)
                if not (self.directory.path / "run.json").exists():
                    self.directory.create("command", command=self.command, run=self.run_id, interval_s=self.interval)
                self._sample(launcher, tag, self.directory.spool, io_fd)
            except (JumperError, OSError) as error:
                self.sampling = None
                _say(f"{error}; the command runs all the same")
                continue
            if directory is None:
                _say(f"the run goes to {self.directory.path}")
            return
        self.directory = None

    def _sample(self, launcher: Launcher, tag: str | None, spool: Path, io_fd: int | None) -> None:
        program = os.path.basename(self.command[0])
        limit = memory_limit_bytes()
        self.sampling = sampling(
            self.engine,
            launcher.pid,
            self.interval,
            self.levels,
            self.config,
            spool,
            {"kind": "command", "rank": self.rank},
            {"name": program, "kind": "command", "memory_limit_bytes": limit},
            parents=launcher.adopters,
            exclude=launcher.adopters,
            tag=tag,
            flush_s=SHARED_FLUSH_S if is_shared(spool) else 0.0,
        )
        # each start takes one over, and a first place may fail
        self.sampling.start(root_io_fd=os.dup(io_fd) if io_fd is not None else None)
        self._task("start", launcher, mono_ns=launcher.start_ns, group=program, memory_limit_bytes=limit)
        self._tell_time()
        self.sampling.flush()

    def _last_look(self, ended: Exit) -> None:
        """The command is a zombie: its clock and its kept I/O file can be read a last time."""
        if self.sampling is not None:
            with contextlib.suppress(Exception):
                self.sampling.tick()

    def _end(self, launcher: Launcher, ended: Exit, orphans: list[Exit]) -> None:
        if self.sampling is None:
            return
        everyone = [ended, *orphans]
        usage = {
            "cpu_user_ns": sum(e.cpu_user_ns for e in everyone),
            "cpu_system_ns": sum(e.cpu_system_ns for e in everyone),
            "maxrss_bytes": max(e.maxrss_bytes for e in everyone),
            "maxrss_floor_bytes": launcher.floor_bytes,
        }
        self._task(
            "stop",
            launcher,
            mono_ns=ended.mono_ns,
            state="done" if ended.status == 0 else "failed",
            exit_code=ended.status,
            reason=None if ended.status >= 0 else f"ended by signal {-ended.status}",
            rusage=usage,
        )
        self._tell_time()
        self.sampling.stop()
        if self.directory is not None and self.rank is None:
            with contextlib.suppress(JumperError, OSError):
                self.directory.update_info(finished_ns=time.time_ns())

    def _tell_time(self) -> None:
        """Note where this node's clock stands against the file server's, once a node where several share the run."""
        first = next((os.environ[name] for name in _ON_NODE if os.environ.get(name)), "0") == "0"
        if self.rank is not None and first and self.directory is not None:
            record = clock_record(self.directory.spool)
            if record is not None:
                self.sampling.text(record)

    def say_where(self) -> None:
        """Say what was lost; on a terminal, where the run is."""
        if self.directory is None or self.sampling is None:
            return
        lost, why = self.sampling.dropped
        if lost:
            _say(f"{lost} blocks of samples were lost: {why}")
        elif sys.stderr is not None and sys.stderr.isatty() and self.rank in (None, "0"):
            _say(f"measured; see `jumper summary {self.directory.path}` or `jumper report {self.directory.path}`")

    def _task(self, event: str, launcher: Launcher, **more: Any) -> None:
        record = {
            "type": "task",
            "event": event,
            "key": self.key,
            "attempt_id": self.attempt_id,
            "kind": "command",
            "pid": launcher.pid,
            "interval_s": self.interval,
            **more,
        }
        self.sampling.text(record)


def _environment() -> dict[str, str]:
    """Return the environment that this process was started with.

    Where the locale is C, Python sets LC_CTYPE for itself and its children, in which
    character classes then mean something else (PEP 538).
    """
    environment = dict(os.environ)
    with contextlib.suppress(OSError):
        started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(entry.startswith(b"LC_CTYPE=") for entry in started_with):
            environment.pop("LC_CTYPE", None)
    return environment


def _open_io(pid: int) -> int | None:
    try:
        return os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _left_out(config: CollectorConfig, engine: str) -> list[str]:
    """Return a line for each collector that will not run, and why."""
    libraries = [needs_native(entry) for entry in config.entries if entry.library and engine != "native"]
    return [*(each.text for each in config.refused), *libraries]


def _check_free(directory: RunDirectory, rank: str | None) -> None:
    """Raise RunError where something else is there already; other ranks of this run may be."""
    if (directory.path / "run.json").exists():
        if rank is None:
            raise RunError(f"{directory.path} holds a run already; choose another place with -o, or remove it")
        directory.read_info()
    elif directory.path.exists() and (not directory.path.is_dir() or (any(directory.path.iterdir()) and rank is None)):
        raise RunError(f"{directory.path} exists and is no run; choose another place with -o")


def _say(text: str) -> None:
    if sys.stderr is None:  # closed by who started us
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"jumper: {text}\n")
        sys.stderr.flush()
