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

from jumper.monitor.backends import backend_name, require_native
from jumper.monitor.filesystems import is_shared
from jumper.monitor.launcher import CannotExecute, Exit, Launcher, end_as
from jumper.monitor.nodefacts import memory_limit_bytes
from jumper.monitor.pipeline import CollectorConfig, load_config
from jumper.monitor.sampling import sampling
from jumper.monitor.segment import SegmentWriter, SpoolError, spool_folder
from jumper.schema.errors import JumperError, RunError
from jumper.store.rundir import RunDirectory, mask_secrets, new_run_id
from jumper.utilities import parse_interval

#: how often a shared file system is written to
SHARED_FLUSH_S = 10.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
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
    wanted = tuple(levels or ("process", "system"))
    rank = rank_of_many()
    directory, writer, made = _open(command, output, interval, rank)
    measurement = _Measurement(command, rank, interval, config, wanted, writer, engine)
    try:
        status = measurement.run()
    except CannotExecute as error:
        if writer is not None:
            writer.close()
            _discard(directory, writer, made if rank is None else ())
        _say(f"cannot run {command[0]!r}: {error.strerror}")
        return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
    if directory is not None and writer is not None:
        _finish(directory, writer, rank, measurement.lost)
    return end_as(status)


class _Measurement:
    def __init__(
        self,
        command: Sequence[str],
        rank: str | None,
        interval: float,
        config: CollectorConfig,
        levels: tuple[str, ...],
        writer: SegmentWriter | None,
        engine: str,
    ) -> None:
        self.command = list(command)
        self.rank = rank
        self.interval = interval
        self.config = config
        self.levels = levels
        self.writer = writer
        self.engine = engine
        self.sampling: Any = None
        self.lost: tuple[int, str | None] = (0, None)
        self.key = shlex.join(mask_secrets(command))

    def run(self) -> int:
        tag = None if Launcher.has_shim() else f"JUMPER_TAG={os.getpid()}.{time.monotonic_ns()}"
        environment = dict(os.environ)
        if tag is not None:
            name, value = tag.split("=")
            environment[name] = value
        launcher = Launcher(self.command, environment=environment)
        io_fd = _open_io(launcher.pid)
        with contextlib.suppress(Exception):  # what is measured goes on whatever happens to us
            self._begin(launcher, tag, io_fd)
        ended, orphans = launcher.wait(self._last_look)
        with contextlib.suppress(Exception):
            self._end(launcher, ended, orphans)
        return ended.status

    def _begin(self, launcher: Launcher, tag: str | None, io_fd: int | None) -> None:
        if self.writer is None:
            return
        program = os.path.basename(self.command[0])
        limit = memory_limit_bytes()
        self._task("start", launcher, mono_ns=launcher.start_ns, group=program, memory_limit_bytes=limit)
        self.writer.flush()
        self.sampling = sampling(
            self.engine,
            launcher.pid,
            self.interval,
            self.levels,
            self.config,
            self.writer.path.parent,
            {"rank": self.rank},
            {"name": program, "kind": "command", "memory_limit_bytes": limit},
            parents=launcher.adopters,
            exclude=launcher.adopters,
            tag=tag,
            flush_s=SHARED_FLUSH_S if is_shared(self.writer.path) else 0.0,
        )
        self.sampling.start(root_io_fd=io_fd)

    def _last_look(self, ended: Exit) -> None:
        """The command is a zombie: its clock and its kept I/O file can be read a last time."""
        if self.sampling is not None:
            with contextlib.suppress(Exception):
                self.sampling.tick()

    def _end(self, launcher: Launcher, ended: Exit, orphans: list[Exit]) -> None:
        if self.sampling is not None:
            self.sampling.stop()
            self.lost = self.sampling.dropped
        if self.writer is None:
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
        self.writer.text({"type": "end", "dropped": self.writer.dropped})
        self.writer.close()

    def _task(self, event: str, launcher: Launcher, **more: Any) -> None:
        assert self.writer is not None
        record = {
            "type": "task",
            "event": event,
            "key": self.key,
            "attempt_id": f"{self.rank or 0}.{self.writer.segment_id.rpartition('.')[2]}",
            "kind": "command",
            "pid": launcher.pid,
            "interval_s": self.interval,
            **more,
        }
        self.writer.text(record)


def _open_io(pid: int) -> int | None:
    try:
        return os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _open(
    command: Sequence[str], output: str | os.PathLike[str] | None, interval: float, rank: str | None
) -> tuple[RunDirectory | None, SegmentWriter | None, list[Path]]:
    """Make the run; where its place cannot be written, one in the spool; where that fails too, none.

    Also returns the folders that were not there before, innermost first.
    """
    run_id = new_run_id()
    directory = RunDirectory(output if output is not None else Path("jumper-runs") / run_id)
    with contextlib.suppress(PermissionError):  # said below, when it cannot be made
        _check_free(directory, rank)
    for place in (directory, None):
        try:
            target = place or RunDirectory(spool_folder() / "runs" / run_id)
            made = [folder for folder in (target.spool, *target.spool.parents) if not folder.exists()]
            if not (target.path / "run.json").exists():
                target.create("command", command=command, run=run_id, interval_s=interval)
            writer = SegmentWriter(target.spool, {"interval_s": interval, "kind": "command", "rank": rank})
        except (JumperError, SpoolError, OSError) as error:
            _say(f"{error}; the command runs all the same")
            continue
        if place is None:
            _say(f"the run goes to {target.path}")
        return target, writer, made
    return None, None, []


def _check_free(directory: RunDirectory, rank: str | None) -> None:
    """Raise RunError where something else is there already; other ranks of this run may be."""
    if (directory.path / "run.json").exists():
        if rank is None:
            raise RunError(f"{directory.path} holds a run already; choose another place with -o, or remove it")
        directory.read_info()
    elif directory.path.exists() and (not directory.path.is_dir() or (any(directory.path.iterdir()) and rank is None)):
        raise RunError(f"{directory.path} exists and is no run; choose another place with -o")


def _discard(directory: RunDirectory | None, writer: SegmentWriter, made: Sequence[Path]) -> None:
    """Remove what was made for a command that never ran, and no folder that was there before or is used."""
    with contextlib.suppress(OSError):
        writer.path.unlink()
        if directory is not None and directory.spool in made and not any(directory.spool.iterdir()):
            (directory.path / "run.json").unlink()
        for folder in made:
            folder.rmdir()


def _finish(directory: RunDirectory, writer: SegmentWriter, rank: str | None, lost: tuple[int, str | None]) -> None:
    if rank is None:
        with contextlib.suppress(JumperError, OSError):
            directory.update_info(finished_ns=time.time_ns())
    if writer.dropped + lost[0]:
        _say(f"{writer.dropped + lost[0]} blocks of samples were lost: {lost[1] or writer.reason}")
    elif sys.stderr is not None and sys.stderr.isatty() and rank in (None, "0"):
        _say(f"measured; see `jumper summary {directory.path}` or `jumper report {directory.path}`")


def _say(text: str) -> None:
    if sys.stderr is None:  # closed by who started us
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"jumper: {text}\n")
        sys.stderr.flush()
