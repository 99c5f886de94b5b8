"""The spool of one monitor: its folder on the node, and the writer of append-only segments.

A full disk, a vanished folder or a broken descriptor ends in a counted drop with
a reason; nothing here raises into what is measured once the writer is open.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jumper.schema import VERSION
from jumper.schema import segment as fmt
from jumper.schema.columns import declared
from jumper.utilities import node_name, safe_name

if TYPE_CHECKING:  # imported where one is made: an agent has no use for it
    from pathlib import Path

Value = int | float | None

#: Pending blocks that a writer keeps while the disk refuses them.
PENDING_BYTES = 256 << 10


class SpoolError(OSError):
    """The spool folder cannot be used; the message says which, why, and what to set instead."""


def spool_folder(create: bool = True) -> Path:
    """Return this user's spool folder on this node, made and checked.

    ``jumper-<uid>`` in the first of ``JUMPER_SPOOL``, ``SLURM_TMPDIR``, ``TMPDIR``
    that is set, else ``/tmp``; mode 0700.

    Raises
    ------
    SpoolError
        Where the folder is another user's, a link, or cannot be made.
    """
    from pathlib import Path  # as above

    base = next((os.environ[v] for v in ("JUMPER_SPOOL", "SLURM_TMPDIR", "TMPDIR") if os.environ.get(v)), "/tmp")
    folder = Path(base) / f"jumper-{os.getuid()}"
    hint = "set JUMPER_SPOOL to a folder of your own"
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700, parents=True)
        info = os.lstat(folder)
    except OSError as error:
        raise SpoolError(f"cannot use the spool folder {folder}: {error.strerror}; {hint}") from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise SpoolError(f"the spool folder {folder} is not a folder of this user; {hint}")
    if stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(folder, 0o700)
    return folder


def new_segment_id(node: str | None = None) -> str:
    """Return an id for a new segment: node, process id and random hexadecimal digits.

    Examples
    --------
    >>> new_segment_id("n1").startswith(f"n1.{os.getpid()}.")
    True
    """
    return f"{safe_name(node or node_name(), 80)}.{os.getpid()}.{os.urandom(4).hex()}"


def boot_id() -> str | None:
    """Return the kernel's boot id, or None where there is none.

    Source: random(4), ``/proc/sys/kernel/random/boot_id``.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


def segment_header(segment_id: str, node: str) -> dict[str, Any]:
    """Return the keys that the header of every segment has; see docs/segment.md."""
    return {
        "format": fmt.FORMAT,
        "segment": segment_id,
        "node": node,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "boot_id": boot_id(),
        "writer": {"jumper": VERSION},
    }


class SegmentWriter:
    """Append rows and text to one segment file; see ``docs/segment.md``.

    Parameters
    ----------
    folder : path
        Where the file ``<segment id>.seg`` is made (never overwritten).
    header : mapping, optional
        More keys for the header of the segment (``run``, ``worker``, ``interval_s``, ...).
    node : str, optional
        Name of the node; default :func:`jumper.utilities.node_name`.
    cap_bytes : int, optional
        No block is written past this size of the file; what is dropped is counted.

    Attributes
    ----------
    name : str
        Path of the file.
    dropped : int
        Blocks that could not be written.
    reason : str or None
        Why, for the last of them.

    Raises
    ------
    SpoolError
        Where the file cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with SegmentWriter(folder.name, node="n1") as segment:
    ...     segment.row("process", {"mono_ns": 1, "pid": 2, "cpu_ns": 3})
    ...     segment.text({"type": "event", "kind": "hello"})
    >>> segment.path.stat().st_size % 256
    0
    >>> folder.cleanup()
    """

    #: Files that this process has open. Nobody here may open one again: closing that drops the lock (fcntl(2)).
    open_here: ClassVar[set[str]] = set()

    def __init__(
        self,
        folder: str | os.PathLike[str],
        header: Mapping[str, Any] | None = None,
        *,
        node: str | None = None,
        cap_bytes: int | None = None,
    ) -> None:
        self.node = node or node_name()
        self.segment_id = new_segment_id(self.node)
        self.name = os.path.join(folder, self.segment_id + fmt.SUFFIX)
        self.cap_bytes = cap_bytes
        self.dropped = 0
        self.reason: str | None = None
        self.size = 0
        self._sequence = 0
        self._streams: dict[str, tuple[int, list[str], str]] = {}
        self._rows: dict[str, list[Sequence[Value]]] = {}
        self._text: list[bytes] = []
        self._pending: list[bytes] = []
        self._owner = os.getpid()
        self._schema_stale = True
        self._header = {**segment_header(self.segment_id, self.node), **(header or {})}
        self.open_here.add(self.name)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd: int | None = os.open(self.name, flags, 0o600)
        except OSError as error:
            self.open_here.discard(self.name)
            raise SpoolError(f"cannot make the segment {self.name}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # some shared file systems have no locks; the adopter then looks at the pid
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def path(self) -> Path:
        """The file, as a path."""
        from pathlib import Path  # as above

        return Path(self.name)

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def declare(self, stream: str, columns: Sequence[str]) -> None:
        """Say that a stream has these columns; repeated when they change."""
        known = self._streams.get(stream)
        if known is not None and set(columns) <= set(known[1]):
            return
        names = list(columns) if known is None else known[1] + [c for c in columns if c not in known[1]]
        if known is not None:
            self._encode_rows(stream)
        number = known[0] if known is not None else len(self._streams) + 1
        types = "".join("q" if self._dtype(name) == "i8" else "d" for name in names)
        self._streams[stream] = (number, names, types)
        self._schema_stale = True

    def row(self, stream: str, values: Mapping[str, Value]) -> None:
        """Take one row; it is on disk after the next :meth:`flush`. Missing columns are null."""
        known = self._streams.get(stream)
        if known is None or any(name not in known[1] for name in values):
            self.declare(stream, list(values))
            known = self._streams[stream]
        self._rows.setdefault(stream, []).append([values.get(name) for name in known[1]])

    def text(self, record: Mapping[str, Any]) -> None:
        """Take one text record (a task, a process, an event); on disk after the next flush."""
        self._text.append(json.dumps(record, separators=(",", ":"), default=str, ensure_ascii=True).encode())

    def line(self, encoded: bytes) -> None:
        """Take one text record that is JSON already (no line break in it); on disk after the next flush."""
        self._text.append(encoded)

    def flush(self) -> bool:
        """Write what was taken as blocks; return whether nothing is left unwritten."""
        for stream in list(self._rows):
            self._encode_rows(stream)
        if self._text:
            self._encode(fmt.TEXT, b"\n".join(self._text) + b"\n")
            self._text.clear()
        return self._write()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the file, through the writer's own descriptor.

        A second descriptor of this process would drop the file's lock when closed (fcntl(2)).
        """
        return b"" if self._fd is None else os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Flush and close, count what the disk still refuses as dropped; safe to call twice."""
        if self._fd is None:
            return
        self.flush()
        self.dropped += sum(block[6] != fmt.SCHEMA for block in self._pending)
        self._pending.clear()
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self._fd = None
        self.open_here.discard(self.name)

    @staticmethod
    def _dtype(name: str) -> str:
        column = declared(name)
        return "f8" if column is None else column.dtype

    def _encode_rows(self, stream: str) -> None:
        rows = self._rows.pop(stream, None)
        if not rows:
            return
        number, names, types = self._streams[stream]
        count = len(rows)
        validity = bytearray()
        body = bytearray()
        for index in range(len(names)):
            column = [row[index] if index < len(row) else None for row in rows]
            try:
                body += _pack(column, types[index])
            except (struct.error, OverflowError, TypeError, ValueError):
                column = [value if _fits(value, types[index]) else None for value in column]
                body += _pack(column, types[index])
            bits = bytearray(-(-count // 8))
            for position, value in enumerate(column):
                if value is not None:
                    bits[position >> 3] |= 1 << (position & 7)
            validity += bits
        validity += bytes(-len(validity) % 8)
        self._encode(fmt.ROWS, fmt.ROWS_HEADER.pack(number, len(names), count) + bytes(validity) + bytes(body))

    def _encode(self, kind: fmt.Kind, payload: bytes) -> None:
        if self._schema_stale:
            self._schema_stale = False
            self._encode(fmt.SCHEMA, json.dumps({**self._header, "streams": self._schema()}).encode())
        block = fmt.pack_block(kind, self._sequence, payload, time.monotonic_ns(), time.time_ns())
        self._sequence += 1
        self._pending.append(block)

    def _schema(self) -> dict[str, Any]:
        return {
            name: {
                "id": number,
                "columns": [[c, "i8" if t == "q" else "f8"] for c, t in zip(names, types, strict=True)],
            }
            for name, (number, names, types) in self._streams.items()
        }

    def _write(self) -> bool:
        while self._pending:
            block = self._pending[0]
            error = self._append(block)
            if error is not None:
                self.reason = error
                self._shed()
                return False
            self._pending.pop(0)
        return True

    def _append(self, block: bytes) -> str | None:
        if self._fd is None:
            return "the segment is closed"
        if self._owner != os.getpid():  # two would write blocks of the same number
            return "this process is a fork of the one that writes"
        if self.cap_bytes is not None and self.size + len(block) > self.cap_bytes:
            return f"the spool is full ({self.cap_bytes} bytes)"
        try:
            written = os.write(self._fd, block)
        except OSError as error:
            return error.strerror or repr(error)
        if written == len(block):
            self.size += written
            return None
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.size)
        return "short write: the disk is full"

    def _shed(self) -> None:
        while sum(map(len, self._pending)) > PENDING_BYTES:
            # schema blocks stay: rows that come after them could not be read without
            index = next((i for i, b in enumerate(self._pending) if b[6] != fmt.SCHEMA), None)
            if index is None:
                return
            del self._pending[index]
            self.dropped += 1


def _pack(column: Sequence[Value], code: str) -> bytes:
    """Return the values of a column as they are stored; 0 where there is none."""
    if code == "q":
        return struct.pack(f"<{len(column)}q", *[0 if v is None else int(v) for v in column])
    return struct.pack(f"<{len(column)}d", *[0.0 if v is None else float(v) for v in column])


def _fits(value: Value, code: str) -> bool:
    try:
        _pack([value], code)
    except (struct.error, OverflowError, TypeError, ValueError):
        return False
    return True
