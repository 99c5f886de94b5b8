"""The segment format: constants and the layout of a block. `docs/segment.md` is its description.

A segment is a sequence of blocks; a block is a 64-byte header, a payload, and
zero bytes up to the next multiple of 256.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, Literal, NamedTuple

FORMAT = 1
MAGIC = b"JMPB"
ALIGN = 256
SUFFIX = ".seg"

Kind = Literal[1, 2, 3]
SCHEMA: Final = 1
ROWS: Final = 2
TEXT: Final = 3

#: magic, version, kind, sequence, payload length, monotonic ns, wall ns, reserved, crc32
HEADER = struct.Struct("<4sHHQQqq20xI")
#: stream id, number of columns, number of rows; first bytes of a ROWS payload
ROWS_HEADER = struct.Struct("<HHI")
#: A longer payload is refused by readers as damage.
MAX_PAYLOAD = 64 << 20


class BlockHeader(NamedTuple):
    """The fields of a block's header. Times in ns; ``length`` is the payload's, in bytes."""

    version: int
    kind: int
    sequence: int
    length: int
    mono_ns: int
    wall_ns: int

    @property
    def size(self) -> int:
        """Bytes the whole block takes in the file, padding included."""
        return padded(HEADER.size + self.length)


def padded(size: int) -> int:
    """Round a size in bytes up to the alignment of blocks.

    Examples
    --------
    >>> padded(1), padded(256), padded(257)
    (256, 256, 512)
    """
    return -(-size // ALIGN) * ALIGN


def pack_block(kind: Kind, sequence: int, payload: bytes, mono_ns: int, wall_ns: int) -> bytes:
    """Return the bytes of one block, padding included."""
    head = HEADER.pack(MAGIC, FORMAT, kind, sequence, len(payload), mono_ns, wall_ns, 0)[:60]
    crc = zlib.crc32(payload, zlib.crc32(head))
    block = head + struct.pack("<I", crc) + payload
    return block.ljust(padded(len(block)), b"\0")


def unpack_header(buffer: bytes | memoryview, offset: int = 0) -> tuple[BlockHeader, int] | None:
    """Return (header, crc) of the block at ``offset``, or None where there is none."""
    if len(buffer) - offset < HEADER.size:
        return None
    magic, version, kind, sequence, length, mono, wall, crc = HEADER.unpack_from(buffer, offset)
    if magic != MAGIC or length > MAX_PAYLOAD or kind not in (SCHEMA, ROWS, TEXT):
        return None
    return BlockHeader(version, kind, sequence, length, mono, wall), crc


def whole_blocks(buffer: bytes | memoryview) -> int:
    """Return how many leading bytes of ``buffer`` are whole blocks (the size of a shard).

    Only headers are looked at; checksums are the merging reader's.

    Examples
    --------
    >>> block = pack_block(TEXT, 0, b"{}", 0, 0)
    >>> whole_blocks(block + block[:100])
    256
    """
    end = 0
    while (head := unpack_header(buffer, end)) is not None and end + head[0].size <= len(buffer):
        end += head[0].size
    return end
