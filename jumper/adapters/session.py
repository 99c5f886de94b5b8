"""A session on disk: everything that a monitor measured, as a directory or a zip archive; see docs/sessions.md."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jumper.adapters.cells import CellHistory
from jumper.adapters.data import NodeDataStore, NodeInfo
from jumper.adapters.frames import pandas
from jumper.monitor.backends.offline import OfflineMonitor, RecordedData, all_hardware, frames_of, nodes_of
from jumper.schema import VERSION
from jumper.schema.errors import JumperError
from jumper.store.rundir import replacing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["export_session", "import_session"]

#: Of the layout; the first number changes where older readers would be wrong.
FORMAT = "2.0"
#: A session has at most so much text, in bytes: a small archive can unpack to anything.
MOST_BYTES = 4 << 30
_FILE = re.compile(r"(node-\d+/)?perf_[a-z]+\.csv")
_LEVELS = ("process", "user", "system", "slurm")

Read = Callable[[str], bytes]


class _File(msgspec.Struct):
    file: str
    rows: int | None = None


class _Hardware(msgspec.Struct, kw_only=True):
    num_cpus: int = 0
    num_system_cpus: int = 0
    num_gpus: int = 0
    gpu_memory: float = 0.0
    gpu_name: str = ""
    memory_limits: dict[str, float] = {}
    cpu_handles: list[int] = []


class _Node(_Hardware, kw_only=True):
    node: str
    files: dict[str, _File] = {}


class _Monitor(_Hardware, kw_only=True):
    interval: float = 1.0
    start_time: float | None = None
    stop_time: float | None = None
    wallclock_start_time: float | None = None
    wallclock_stop_time: float | None = None
    pid: int | None = None
    uid: int | None = None
    slurm_job: str | int | None = None


class _Manifest(msgspec.Struct):
    version: str
    monitor: _Monitor
    nodes: list[_Node] = []


def export_session(
    path: str | os.PathLike[str] | None,
    monitor: Any,
    nodes: Any = None,
    cells: CellHistory | None = None,
    start_time: float | None = None,
) -> Path:
    """Write what a monitor measured so far, all nodes and levels with all columns, and return where.

    Parameters
    ----------
    path : path or None
        A directory to make, or a name that ends in ``.zip``; default
        ``jumper-session-<time>`` here. An archive of that name is replaced.
    monitor : MonitorProtocol
        It may be running.
    nodes : NodeDataStore, optional
        Default: the monitor's.
    cells : CellHistory, optional
    start_time : float, optional
        Begin of the first sample's series, monotonic seconds; default: when the monitor was started.

    Raises
    ------
    JumperError
        Where the directory is there and not empty, or it cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from jumper.monitor.backends.thread import PerformanceMonitor
    >>> monitor = PerformanceMonitor(levels=["process"])
    >>> monitor.start(0.01)
    >>> monitor.stop()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     archive = export_session(folder + "/mine.zip", monitor)
    ...     again, _ = import_session(archive)
    >>> again.data.view("process").equals(monitor.data.view("process"))
    True
    """
    target = Path(path or time.strftime("jumper-session-%Y%m%d-%H%M%S")).expanduser()
    nodes = nodes_of(monitor) if nodes is None else nodes
    files = _contents(_facts(monitor, start_time), nodes, cells or CellHistory())
    try:
        (_write_archive if target.suffix.lower() == ".zip" else _write_folder)(target, files)
    except OSError as error:
        raise JumperError(f"{target}: the session cannot be written: {error.strerror or error}") from error
    return target


def import_session(path: str | os.PathLike[str]) -> tuple[OfflineMonitor, CellHistory]:
    """Return a monitor that shows a session, and its cells.

    Reads what :func:`export_session` wrote, and sessions of jumper-extension 0.4
    (one node, ``local``). Nothing is unpacked to disk.

    Raises
    ------
    JumperError
        Where it is no session, a damaged one, or one of a newer layout.
    """
    source = Path(path).expanduser()
    with _opened(source) as read:
        manifest = _manifest(source, read)
        nodes = NodeDataStore()
        for entry in manifest.nodes or [_of_the_other_package(manifest.monitor, read)]:
            facts = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "files"}
            info = NodeInfo(**facts)
            frames = {level: _samples(source, read, file) for level, file in entry.files.items() if level in _LEVELS}
            nodes.register_node(info, RecordedData(frames, info))
        cells = CellHistory()
        with contextlib.suppress(FileNotFoundError):
            cells = _cells(source, read("cell_history.csv"))
    facts = {name: getattr(manifest.monitor, name) for name in manifest.monitor.__struct_fields__}
    return OfflineMonitor(nodes, str(source), facts), cells


def _facts(monitor: Any, start_time: float | None) -> dict[str, Any]:
    """Return what is known of a monitor, moved to when the first of its series began."""
    names = ("interval", "start_time", "stop_time", "wallclock_start_time", "wallclock_stop_time", "pid", "uid",
             "slurm_job", "reason")  # fmt: skip
    facts = {name: getattr(monitor, name, None) for name in names}
    if start_time is not None and facts["start_time"] is not None:
        if facts["wallclock_start_time"] is not None:
            facts["wallclock_start_time"] -= facts["start_time"] - start_time
        facts["start_time"] = start_time
    return {
        **facts,
        "type": type(monitor).__name__,
        "events": [dict(event) for event in getattr(monitor, "events", ())],
    }


def _contents(facts: dict[str, Any], nodes: Any, cells: CellHistory) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a session, the manifest last: what has one is whole."""
    names = list(nodes.node_names())
    schemas: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for level in nodes.levels:  # all nodes together: what other tools look for
        frame = nodes.view(level, cell_history=cells)
        schemas[level], rows[level] = list(map(str, frame.columns)), len(frame)
        yield f"perf_{level}.csv", _csv(frame)
    hardware = []
    for index, name in enumerate(names):
        if len(names) == 1:
            files = {level: {"file": f"perf_{level}.csv", "rows": count} for level, count in rows.items()}
        else:
            files = {}
            for level, frame in frames_of(nodes, name).items():
                files[level] = {"file": f"node-{index}/perf_{level}.csv", "rows": len(frame)}
                yield f"node-{index}/perf_{level}.csv", _csv(frame)
        hardware.append({**_hardware(nodes.hardware[name]), "node": name, "files": files})
    history = cells.data
    yield "cell_history.csv", _csv(history)
    events = facts.pop("events")
    manifest = {
        "format": "jumper-session",
        "version": FORMAT,
        "app": {"name": "jumper", "version": VERSION},
        "monitor": {
            **facts,
            **_hardware(all_hardware(nodes)),
            "os": os.name,
            "python": platform.python_version(),
        },
        "nodes": hardware,
        "levels": list(nodes.levels),
        "schemas": {"perf": schemas, "cell_history": list(history.columns)},
        "time_origin": "monotonic",
        "timezone": time.tzname[0],
        "events": events,
    }
    yield "manifest.json", (json.dumps(manifest, indent=1, default=str) + "\n").encode()


def _hardware(info: Any) -> dict[str, Any]:
    return {name: getattr(info, name) for name in _Hardware.__struct_fields__}


def _csv(frame: pd.DataFrame) -> bytes:
    text: str = frame.to_csv(index=False, lineterminator="\r\n")  # a lone CR or LF in a text is then quoted
    return text.encode("utf-8", "backslashreplace")


def _write_folder(target: Path, files: Iterator[tuple[str, bytes]]) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise JumperError(f"{target} is there already; name a new directory, or an archive that ends in .zip")
    for name, data in files:
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def _write_archive(target: Path, files: Iterator[tuple[str, bytes]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[Read]:
    """Give a function that returns a file of the session, or raises FileNotFoundError."""
    if source.is_dir():
        yield lambda name: (source / name).read_bytes()
        return
    if not source.exists():
        raise JumperError(f"{source}: there is no such session; expected a directory or a zip archive")
    try:
        with zipfile.ZipFile(source) as archive:
            yield _archive_reader(source, archive)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
        raise JumperError(f"{source}: cannot be read as a zip archive: {error}") from error


def _archive_reader(source: Path, archive: zipfile.ZipFile) -> Read:
    manifests = [name for name in archive.namelist() if re.fullmatch(r"([^/]+/)?manifest\.json", name)]
    inside = min(manifests, key=len, default="manifest.json")[: -len("manifest.json")]
    left = MOST_BYTES

    def read(name: str) -> bytes:
        nonlocal left
        try:
            member = archive.getinfo(inside + name)
        except KeyError:
            raise FileNotFoundError(name) from None
        left -= member.file_size
        if left < 0:
            raise JumperError(f"{source}: unpacked, the session is larger than {MOST_BYTES >> 30} GiB")
        return archive.read(member)

    return read


def _manifest(source: Path, read: Read) -> _Manifest:
    try:
        manifest = msgspec.json.decode(read("manifest.json"), type=_Manifest)
        newer = int(manifest.version.split(".")[0]) > int(FORMAT.split(".")[0])
    except FileNotFoundError:
        raise JumperError(f"{source} is no session: there is no manifest.json in it") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise JumperError(f"{source}: its manifest.json is damaged: {error}") from error
    if newer:
        raise JumperError(f"{source}: the session has version {manifest.version}, this jumper reads up to {FORMAT}")
    return manifest


def _of_the_other_package(facts: _Monitor, read: Read) -> _Node:
    """Return the one node of a session that jumper-extension 0.4 exported: it lists no files."""
    files = {}
    for level in _LEVELS:
        with contextlib.suppress(FileNotFoundError):
            read(f"perf_{level}.csv")
            files[level] = _File(f"perf_{level}.csv")
    return _Node(node="local", files=files, **{name: getattr(facts, name) for name in _Hardware.__struct_fields__})


def _samples(source: Path, read: Read, entry: _File) -> pd.DataFrame:
    if not _FILE.fullmatch(entry.file):
        raise JumperError(f"{source}: {entry.file!r} is no file of a session")
    try:
        frame = _table(read(entry.file), **_exact())
        frame = frame.drop(columns="cell_index", errors="ignore").astype("float64")
    except FileNotFoundError:
        raise JumperError(f"{source}: {entry.file} is missing") from None
    except (ValueError, TypeError) as error:
        raise JumperError(f"{source}: {entry.file} is damaged: {error}") from error
    if entry.rows is not None and len(frame) != entry.rows:
        raise JumperError(f"{source}: {entry.file} is damaged: expected {entry.rows} rows, found {len(frame)}")
    return frame


def _cells(source: Path, data: bytes) -> CellHistory:
    try:
        frame = _table(data, dtype=str, keep_default_na=False)
        for name in frame.columns.difference(["raw_cell", "cell_magics"]):
            frame[name] = pandas().to_numeric(frame[name])
        return CellHistory.of_frame(frame)
    except (ValueError, JumperError) as error:
        raise JumperError(f"{source}: cell_history.csv is damaged: {error}") from error


def _exact() -> dict[str, str]:
    """What makes pandas read each float as it was written: the default from 3 on, where the option is deprecated."""
    return {} if int(pandas().__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}


def _table(data: bytes, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = pandas().read_csv(io.BytesIO(data), **options)
    return frame
