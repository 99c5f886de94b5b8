"""Does a monitor measure what happens here? A few samples beside a load whose size is known."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jumper.adapters.frames import BASE_COLUMNS
from jumper.monitor.sampler import own_rss_bytes
from jumper.schema.errors import JumperError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHECKED", "SanityReport", "check_sanity"]

#: Monitors that the check is made for, by the names of :data:`jumper.monitor.backends.BACKENDS`.
CHECKED = ("thread", "subprocess", "native")
SAMPLES = 4
_BLOCK = bytes(64 * 1024)
_GPU = tuple(f"gpu_{metric}_{part}" for metric in ("util", "mem") for part in ("avg", "min", "max"))


@dataclass(frozen=True)
class SanityReport:
    """What a check found.

    Attributes
    ----------
    monitor : str
        Name of its class.
    samples : int
        Rows of the level that had fewest.
    problems : tuple of str
        One line each; empty where all is well.

    Examples
    --------
    >>> print(SanityReport("NativeMonitor", 4, ()))
    sanity check of NativeMonitor: passed (4 samples)
    >>> print(SanityReport("NativeMonitor", 4, ("user: no column memory",)))
    sanity check of NativeMonitor: 1 problem
      user: no column memory
    """

    monitor: str
    samples: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def __str__(self) -> str:
        head = f"sanity check of {self.monitor}: "
        if self.ok:
            return f"{head}passed ({self.samples} samples)"
        count = len(self.problems)
        return "\n  ".join([f"{head}{count} problem{'s' * (count != 1)}", *self.problems])


class _Load:
    """A thread that computes and writes, and knows how much: seconds of CPU, bytes handed to the kernel."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.written = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jumper-sanity", daemon=True)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with open(os.devnull, "wb", buffering=0) as sink:  # what is written counts, wherever it goes
            while not self._stop.wait(0.002):
                self.written += sink.write(_BLOCK)
                until = time.thread_time() + 0.005
                while time.thread_time() < until:
                    pass
                self.cpu_s = time.thread_time()


def check_sanity(monitor: Any, interval: float = 0.1, timeout_s: float = 20.0) -> SanityReport:
    """Start a monitor of this process, give it a load, stop it, and say what is wrong with its samples.

    Every column of the documents has to be there. From the second sample on CPU
    and memory have values at every level, and I/O has them for the process; CPU
    time and bytes written have to be those of the load, memory that of this
    process. No collector may have been switched off. Bytes from and to storage
    may well be 0: what is read again comes from the page cache.

    Parameters
    ----------
    monitor : MonitorProtocol
        One of ours that was not started; it has no more use afterwards.
    interval : float
        Seconds between samples.
    timeout_s : float
        How long to wait for them.

    Examples
    --------
    >>> from jumper.monitor.backends.thread import PerformanceMonitor
    >>> check_sanity(PerformanceMonitor()).ok
    True
    """
    name = type(monitor).__name__
    try:
        with _Load() as load:
            monitor.start(interval)
            before = load.cpu_s, load.written
            deadline = time.monotonic() + timeout_s
            while _fewest(monitor) < SAMPLES and monitor.running and time.monotonic() < deadline:
                time.sleep(interval / 4)
            done = load.cpu_s - before[0], load.written - before[1]
            monitor.stop()
    except JumperError as error:
        return SanityReport(name, 0, (f"it does not start: {error}",))
    samples = _fewest(monitor)
    if samples < SAMPLES:
        why = getattr(monitor, "reason", None) or f"none of {timeout_s:g} s brought more"
        return SanityReport(name, samples, (f"expected {SAMPLES} samples of each level, found {samples}: {why}",))
    problems = [str(event.get("text")) for event in monitor.events if event.get("kind") == "collector-off"]
    for level in monitor.levels:
        frame = monitor.data.view(level)
        found = [*_columns(frame, monitor.num_gpus), *_values(frame, level)]
        if not found and level == "process":
            found = _known_load(frame, *done)
        problems += [f"{level}: {text}" for text in found]
    return SanityReport(name, samples, tuple(problems))


def _fewest(monitor: Any) -> int:
    return min(len(monitor.data.view(level)) for level in monitor.levels)


def _columns(frame: pd.DataFrame, gpus: int) -> list[str]:
    wanted = [*BASE_COLUMNS, "cpu_util_0", *(_GPU if gpus else ())]
    return [f"no column {name}" for name in wanted if name not in frame]


def _values(frame: pd.DataFrame, level: str) -> list[str]:
    """Say which values are missing or impossible; a rate has none in the first sample."""
    later = frame.iloc[1:]
    needed = ["time", "memory", "cpu_util_avg", "cpu_util_min", "cpu_util_max"]
    if level == "process":
        needed += ["io_read", "io_write", "io_read_count", "io_write_count"]
    out = []
    for name in needed:
        if name in later and later[name].isna().any():
            out.append(f"{name} has no value in {int(later[name].isna().sum())} of {len(later)} samples")
    for name in ("memory", "cpu_util_avg", "cpu_util_max"):
        if name in later and (later[name] == 0).all():
            out.append(f"{name} is 0 in all samples")
    if not frame["time"].is_monotonic_increasing:
        out.append("time goes back")
    return out


def _known_load(frame: pd.DataFrame, cpu_s: float, written: int) -> list[str]:
    out = []
    measured = float(frame["cpu_ns"].iloc[-1] - frame["cpu_ns"].iloc[0]) / 1e9
    if measured < 0.5 * cpu_s:
        out.append(f"at least {cpu_s:.2f} s of CPU were used, {measured:.2f} s measured")
    resident = own_rss_bytes()
    highest = float(frame["memory"].max()) * 2**30
    if resident is not None and highest < 0.5 * resident:
        out.append(f"this process holds {resident >> 20} MiB, {int(highest) >> 20} MiB measured")
    counted = float(frame["write_chars"].iloc[-1] - frame["write_chars"].iloc[0]) if "write_chars" in frame else None
    if counted is not None and counted < written - len(_BLOCK):  # one may be under way when the count begins
        out.append(f"{written} bytes were written, {counted:.0f} measured")
    return out
