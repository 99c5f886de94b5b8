"""The samples of all nodes as JSON lines, which say themselves what they hold.

The first line names the keys and their units; lines of the type ``node`` have the
hardware, ``sample`` one level of one node at one time, ``event`` what happened.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jumper.adapters.data import NodeInfo
from jumper.monitor.filesystems import is_shared
from jumper.schema.columns import COLUMNS, DERIVED, DEVICE_COLUMNS
from jumper.schema.errors import JumperError

VERSION = 1
#: what is lost at most where the job is killed, s and bytes: on a file system that many share, few large writes
FLUSH_S, SHARED_FLUSH_S, MOST_WAITING = 1.0, 10.0, 1 << 16
FIELDS = {
    "node": "name of the node, as Slurm has it",
    "timestamp": "UTC, s since 1970, by the clock of the host that runs the monitor",
    "perf_time": "monotonic time of that host, s",
    "level": "process: the job's processes on the node; user; system; slurm",
    "sample_index": "number of the sample of this node and level",
    "cpu_util": "percent of each CPU",
    "memory": "GiB",
    "gpu_util": "percent of each GPU",
    "gpu_band": "percent of each GPU's memory bandwidth",
    "gpu_mem": "GiB of each GPU",
    "io_counters": "bytes read, bytes written, reads, writes so far",
    "columns": "all other columns; of those that are not among the units, their collector knows the unit",
}
UNITS = {column.name: column.unit for column in (*COLUMNS, *DERIVED, *DEVICE_COLUMNS)}
_LISTS = ("cpu_util", "gpu_util", "gpu_band", "gpu_mem")
_IO = ("read_bytes", "write_bytes", "reads", "writes")


class NodeLog:
    """A log that is appended to; a write that fails ends it and says so, once.

    Parameters
    ----------
    path : path
        Folders on the way are made.
    header : mapping
        More keys for the first line.

    Attributes
    ----------
    reason : str or None
        Why nothing is written any more.

    Raises
    ------
    JumperError
        Where the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        # a sample's time is said by one clock, however the wall clocks are set meanwhile
        self._wall_s = time.time() - time.monotonic()
        try:
            os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JumperError(f"cannot write {os.fspath(path)}: {error.strerror}; give another log_path") from error
        self._waiting = bytearray()
        self._flush_s = SHARED_FLUSH_S if is_shared(path) else FLUSH_S
        self._flushed = time.monotonic()
        self._write({"type": "header", "version": VERSION, "fields": FIELDS, "units": UNITS, **header})

    def node(self, info: NodeInfo) -> None:
        """Write a node's hardware."""
        self._write({"type": "node", **asdict(info)})

    def event(self, record: Mapping[str, Any]) -> None:
        """Write what happened."""
        self._write({**record, "type": "event"})

    def sample(self, node: str, level: str, row: Mapping[str, Any]) -> None:
        """Write a sample."""
        lists = {name: _numbered(name, row) for name in _LISTS}
        known = {"time", "memory", *_IO, *(key for values in lists.values() for key in values)}
        with self._lock:
            index = self._counts[node, level] = self._counts.get((node, level), -1) + 1
        self._write({
            "type": "sample", "node": node, "timestamp": row["time"] + self._wall_s, "perf_time": row["time"],
            "level": level, "sample_index": index, "memory": row.get("memory"),
            **{name: list(values.values()) for name, values in lists.items()},
            "io_counters": [row.get(name) for name in _IO],
            "columns": {name: value for name, value in row.items() if name not in known},
        })  # fmt: skip

    def look(self) -> None:
        """Have it on disk what was written a while ago."""
        if time.monotonic() - self._flushed >= self._flush_s or len(self._waiting) >= MOST_WAITING:
            with self._lock:
                self._flush()

    def close(self) -> None:
        """Write what is left."""
        with self._lock:
            self._flush()
            if self.reason is None:
                self.reason = "it is closed"
                os.close(self._fd)

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        with self._lock:
            if self.reason is None:
                self._waiting += line

    def _flush(self) -> None:
        """Write whole lines: another log may be appended to the same file."""
        data, self._waiting = self._waiting, bytearray()
        self._flushed = time.monotonic()
        try:
            while data and self.reason is None:
                del data[: os.write(self._fd, data)]
        except OSError as error:
            self.reason = f"the log is not written any more: {error.strerror}"
            os.close(self._fd)


def _numbered(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of single devices, in their order."""
    found = {name: value for name, value in row.items() if name.startswith(prefix + "_")}
    numbered = {name: value for name, value in found.items() if name[len(prefix) + 1 :].isdigit()}
    return dict(sorted(numbered.items(), key=lambda item: int(item[0][len(prefix) + 1 :])))
