"""The run's folder at the scheduler: shards are written at their offsets, by a thread, off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jumper.monitor.segment import SegmentWriter, spool_folder
from jumper.schema import segment as fmt
from jumper_dask import settings

#: What a client may ask for at once, in bytes.
CHUNK_BYTES = 4 << 20
#: Shards are refused while more than this waits for the disk, in bytes; their senders keep them.
WAITING_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class RunFolder:
    """A run while it grows: `jumper/<run>` with `run.json` and `spool/`.

    It lies in the first that there is of Dask's settings `jumper.directory` and `temporary-directory`, and the
    user's own spool folder.

    Parameters
    ----------
    run : str
        Id of the run.
    header : dict
        For the header of the collector's own segment.
    """

    def __init__(self, run: str, header: dict[str, Any]) -> None:
        self.path = (settings.directory() or spool_folder()) / "jumper" / run
        self.limit = settings.run_bytes()
        self.spool = self.path / "spool"
        self.spool.mkdir(parents=True, mode=0o700)
        self.writer = SegmentWriter(self.spool, {"run": run, **header})
        self.total = 0
        self.duplicates = 0
        self.refused = 0
        self._waiting = 0
        self._sizes: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumper-run")

    async def in_thread(self, function: Any, *args: Any) -> Any:
        """Run a function in the one thread that touches the files."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def put(self, segment: str, offset: int, data: bytes) -> int:
        """Write a shard; return up to where the segment is here, which is where its sender goes on.

        Raises
        ------
        ValueError
            Where the name is none of a segment, or the run is full.
        OSError
            Where the disk refuses it.
        """
        if not _NAME.fullmatch(segment) or segment.startswith(".") or segment == self.writer.segment_id:
            raise ValueError(f"{segment!r} is no name of a segment")
        if self.total + len(data) > self.limit:
            self.refused += 1
            raise ValueError(f"the run is full ({self.limit} bytes, Dask's setting jumper.run-size)")
        if self._waiting + len(data) > WAITING_BYTES:
            self.refused += 1
            raise ValueError("the scheduler's disk does not keep up; push again later")
        self._waiting += len(data)
        try:
            size: int = await self.in_thread(self._put, segment, offset, data)
        finally:
            self._waiting -= len(data)
        return size

    def _put(self, segment: str, offset: int, data: bytes) -> int:
        size = self._sizes.get(segment, 0)
        if offset < size:
            self.duplicates += 1
        if offset > size or offset + len(data) <= size:
            return size
        descriptor = os.open(self.spool / (segment + fmt.SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)
        self.total += offset - size
        self._sizes[segment] = offset
        return offset

    def write(self, records: list[bytes], info: dict[str, Any]) -> None:
        """Append records to the collector's own segment and renew `run.json`; runs in the thread."""
        for position, record in enumerate(records):
            self.writer.line(record)
            if position % 200 == 199:
                self.writer.flush()
        self.writer.flush()
        temporary = self.path / ".run.json"
        temporary.write_text(json.dumps(info, indent=1, default=str))
        temporary.rename(self.path / "run.json")

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each file of the spool, by its path in the run."""
        own = {f"spool/{self.writer.path.name}": self.writer.size}
        return own | {f"spool/{name}{fmt.SUFFIX}": size for name, size in self._sizes.items()}

    def get(self, name: str, offset: int, size: int) -> bytes:
        """Return a chunk of a file of the spool, in bytes at most what was asked for; runs in the thread.

        Raises
        ------
        ValueError
            Where the run has no such file.
        """
        if name not in self.sizes():
            raise ValueError(f"{name!r} is no file of this run")
        if name == f"spool/{self.writer.path.name}":
            return self.writer.read(offset, min(size, CHUNK_BYTES))
        with open(self.path / name, "rb") as file:
            file.seek(offset)
            return file.read(min(size, CHUNK_BYTES))

    def close(self, remove: bool) -> None:
        """End the thread and the segment; remove the folder where a client has the run."""
        self._thread.shutdown(wait=True)
        self.writer.close()
        if remove:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.path)
