"""What a Snakemake process has once: the run that it belongs to, one sampler for all of its jobs, one warning."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jumper_snakemake.settings import Settings

if TYPE_CHECKING:
    from jumper.monitor.roots import Most, Roots

#: how often a file system that several hosts share is written to
SHARED_FLUSH_S = 10.0


class Watch:
    """The tree of one process being sampled."""

    def __init__(self, engine: Roots, number: int, pid: int) -> None:
        self._engine = engine
        self._number = number
        self._pid = pid

    def finish(self) -> Most:
        """Take the last sample; return the most that the tree had."""
        return self._engine.finish(self._number, self._pid)

    def cpu_ns(self) -> int:
        """Return what the sampler has used until now."""
        self._engine.tick()
        return self._engine.cpu_ns


class Site:
    """The measuring of one Snakemake process.

    Nothing is opened before the first job.

    Parameters
    ----------
    settings : callable
        Returns the settings when they are first needed, with a run directory that is there.
    """

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._make = settings
        self._settings: Settings | None = None
        self._engines: list[Roots] = []
        self._lock = threading.RLock()
        self._warned = False
        self.running: set[Any] = set()

    @property
    def settings(self) -> Settings:
        """The settings of the run, which is made now if it is not there."""
        with self._lock:
            if self._settings is None:
                self._settings = self._make()
            return self._settings

    @property
    def begun(self) -> bool:
        """Whether anything was measured or sent out to be measured."""
        return self._settings is not None

    def watch(self, pid: int, tag: str | None = None) -> Watch:
        """Sample the tree of a process from now on."""
        with self._lock:
            for engine in self._engines:
                if (number := engine.add(pid, tag)) is not None:
                    return Watch(engine, number, pid)
            engine = self._new_engine()
            number = engine.add(pid, tag)
        assert number is not None
        return Watch(engine, number, pid)

    def note(self, record: Mapping[str, Any]) -> None:
        """Put a record into the run; on disk within an interval."""
        with self._lock:
            engine = self._engines[0] if self._engines else self._new_engine()
        engine.text(record)

    @contextlib.contextmanager
    def harmless(self, what: str) -> Iterator[None]:
        """Turn any failure of ours into one warning; the job goes on."""
        try:
            yield
        except Exception as error:
            self.warn(f"{what}: {type(error).__name__}: {error}")

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
            engines, self._engines = self._engines, []
        for engine in engines:
            with self.harmless("the end of the samples"):
                engine.stop()

    def _new_engine(self) -> Roots:
        from jumper.monitor.filesystems import is_shared
        from jumper.monitor.roots import roots

        settings = self.settings
        spool = os.path.join(settings.run, "spool")
        engine = roots(
            settings.backend,
            settings.interval,
            spool,
            [level for level in settings.levels.split("+") if level],
            {"kind": "snakemake", "run": os.path.basename(settings.run)},
            flush_s=SHARED_FLUSH_S if is_shared(spool) else 0.0,
        )
        engine.start()
        self._engines.append(engine)
        return engine


def now_ns() -> int:
    """Return the monotonic time in ns, the clock of all records."""
    return time.monotonic_ns()
