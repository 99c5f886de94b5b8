"""What a Snakemake process has once: the run that it belongs to, one sampler for all of its jobs, one warning."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jumper_snakemake.ends import oom_kills
from jumper_snakemake.settings import Settings

if TYPE_CHECKING:
    from jumper.monitor.roots import Most, Roots
    from jumper_snakemake.looks import Looker
    from jumper_snakemake.multinode import Nodes

#: how old the count of the kernel's OOM killer may be that a job begins with
OOM_FRESH_S = 1.0
#: how often a file system that several hosts share is written to
SHARED_FLUSH_S = 10.0


class Watch:
    """The tree of one process being sampled."""

    def __init__(self, engine: Roots, number: int) -> None:
        self._engine = engine
        self._number = number

    def finish(self) -> Most:
        """Take the last sample; return the most that the tree had."""
        return self._engine.finish(self._number)

    def sampler_cpu_ns(self) -> int:
        """Return what the sampler has used until now."""
        self._engine.tick()
        return self._engine.cpu_ns


class Harmless:
    """See :meth:`Site.harmless`."""

    def __init__(self, site: Site, what: str) -> None:
        self._site = site
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._site.failed(self._what, error)
            return True
        return False


class Site:
    """The measuring of one Snakemake process.

    Nothing is opened before the first job.

    Parameters
    ----------
    settings : callable
        Returns the settings when they are first needed, with a run directory that is there.
    is_job : bool
        This is a job process: the run directory may be on a file system that is not its own.

    Attributes
    ----------
    running : set of Attempt
        What runs in this process now.
    bodiless : set of str
        Rules that only gather files: they have jobs, which do nothing.
    submitted : callable or None
        Of the main process: takes jobs that were given to a batch system as one, its id of them, and their logs.
    looker : Looker or None
        Who looks at benchmarked jobs, once there was one.
    """

    def __init__(self, settings: Callable[[], Settings], is_job: bool = False) -> None:
        self._make = settings
        self._is_job = is_job
        self._settings: Settings | None = None
        self._engines: list[Roots] = []
        self._lock = threading.RLock()
        self._warned = False
        self._in_batch = "SLURM_JOB_ID" in os.environ
        self._nodes: Nodes | None = None
        self._apart: str | None = None
        self._oom: tuple[float, int | None] = (-OOM_FRESH_S, None)
        self.running: set[Any] = set()
        self.bodiless: set[str] = set()
        self.submitted: Callable[[Iterable[Any], str, Iterable[str]], None] | None = None
        self.looker: Looker | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.RLock()  # who held the old one may not be here

    @property
    def settings(self) -> Settings:
        """The settings of the run, which is made now if it is not there."""
        if self._settings is None:
            with self._lock:
                if self._settings is None:
                    self._settings = self._make()
        return self._settings

    def ready(self) -> None:
        """Begin to sample, where that was not done yet."""
        if not self._engines:
            with self._lock:
                if not self._engines:
                    self._new_engine()

    def engine(self) -> Roots:
        """Return who samples, begun where that was not done yet."""
        self.ready()
        return self._engines[0]

    def nodes(self) -> Nodes | None:
        """Return who follows jobs beyond their own tree of processes, where a batch system starts some of them."""
        if not self._in_batch or self.settings.multinode != "auto":
            return None
        from jumper_snakemake.multinode import Nodes, starts_steps

        with self._lock:
            if self._nodes is None and starts_steps(os.environ):
                self._nodes = Nodes(self, os.environ["SLURM_JOB_ID"])
            return self._nodes

    def watch(self, pid: int, tag: str | None = None, soon: bool = False) -> Watch:
        """Sample the tree of a process from now on; ``soon``: its first sample is not waited for."""
        watch = self._enter(pid, tag, soon)
        if watch is None:
            with self._lock:
                watch = self._enter(pid, tag, soon)  # another job may have made an engine meanwhile
                if watch is None:  # the first one, or all are full
                    self._new_engine()
                    watch = self._enter(pid, tag, soon)
        assert watch is not None
        return watch

    def _enter(self, pid: int, tag: str | None, soon: bool) -> Watch | None:
        for engine in self._engines:
            if (number := engine.add(pid, tag, soon=soon)) is not None:
                return Watch(engine, number)
        return None

    def note(self, record: Mapping[str, Any]) -> None:
        """Put a record into the run; on disk within an interval."""
        self.engine().text(record)

    def oom_kills(self, now: bool = False) -> int | None:
        """Return how often the kernel's OOM killer struck in this control group: as of now, or of a second ago."""
        taken_s, count = self._oom
        if now or time.monotonic() - taken_s > OOM_FRESH_S:
            self._oom = time.monotonic(), (count := oom_kills())
        return count

    def harmless(self, what: str) -> Harmless:
        """Return a context that turns any failure of ours into one warning; the job goes on."""
        return Harmless(self, what)

    def failed(self, what: str, error: Exception) -> None:
        """Warn of a failure of ours; without a failure, `try` costs each job less than :meth:`harmless`."""
        from jumper.schema.errors import JumperError

        # one of ours says itself what it was about
        self.warn(str(error) if isinstance(error, JumperError) else f"{what}: {type(error).__name__}: {error}")

    def warn(self, text: str) -> None:
        """Warn once, in Snakemake's log."""
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Exception):
                from snakemake.logging import logger

                logger.warning(f"jumper: {text}; jobs run all the same, unmeasured where that was needed")

    def close(self) -> None:
        """End the sampler; safe to call twice."""
        with self._lock:
            nodes, self._nodes = self._nodes, None
        if nodes is not None:
            with self.harmless("the end of the samples of other nodes"):
                nodes.close()
        with self._lock:
            engines, self._engines = self._engines, []
        for engine in engines:
            with self.harmless("the end of the samples"):
                self._tell_time(engine)
                engine.stop()
        with self._lock:
            apart, self._apart = self._apart, None
        if apart is not None:
            with self.harmless("the record for this job's log"):
                self._tell(apart)

    def _spool(self, settings: Settings) -> str:
        """Return the run's spool; where the run is not on this file system, one that is told to the log at the end."""
        spool = os.path.join(settings.run, "spool")
        if not self._is_job:
            return spool
        try:
            here = os.stat(settings.run).st_ino
            os.stat(spool)
        except OSError:
            if self._apart is None:
                import tempfile

                self._apart = tempfile.mkdtemp(prefix="jumper-")
            return self._apart
        if settings.inode not in (0, here):
            self._apart = spool
        return spool

    def _tell(self, spool: str) -> None:
        """Put what was measured into the log of this job."""
        import shutil
        from pathlib import Path

        from jumper.utilities import node_name, safe_name
        from jumper_snakemake.compact import lines_of

        for path in Path(spool).glob(f"{safe_name(node_name(), 80)}.{os.getpid()}.*.seg"):
            sys.stderr.write("".join(f"{line}\n" for line in lines_of(path)))
        sys.stderr.flush()
        if spool != os.path.join(self.settings.run, "spool"):
            shutil.rmtree(spool, ignore_errors=True)

    def _new_engine(self) -> Roots:
        from jumper.monitor.filesystems import is_shared
        from jumper.monitor.roots import roots

        settings = self.settings
        spool = self._spool(settings)
        engine = roots(
            settings.backend,
            settings.interval,
            spool,
            [level for level in settings.levels.split("+") if level],
            {"kind": "snakemake", "run": os.path.basename(settings.run)},
            flush_s=SHARED_FLUSH_S if is_shared(spool) else 0.0,
        )
        engine.start()
        self._tell_time(engine)
        self._engines.append(engine)
        return engine

    def _tell_time(self, engine: Roots) -> None:
        if self._apart is None:  # a copy of the run lies on another server, with another clock
            tell_time(engine, os.path.join(self.settings.run, "spool"))


def tell_time(engine: Roots, spool: str) -> None:
    """Note where this node's clock stands against that of the file server that a spool is on, where it has one."""
    from jumper.monitor.serverclock import clock_record

    record = clock_record(spool)
    if record is not None:
        engine.text(record)
