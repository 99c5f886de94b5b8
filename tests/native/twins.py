"""What the C functions of the engine return, in the shape of their Python twins."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from jumper.monitor.metrics.process import procfs as python

UNKNOWN = -(2**63)
LARGEST = 2**63 - 1
NODE = [
    "cpu_ns", "cpu_user_ns", "cpu_system_ns", "cpu_iowait_ns", "memory_bytes", "swap_bytes", "read_bytes",
    "write_bytes", "reads", "writes", "net_sent_bytes", "net_recv_bytes", "net_sent_packets", "net_recv_packets",
    "cpu_pressure_ns", "memory_pressure_ns", "io_pressure_ns",
]  # fmt: skip


class Stat(Structure):
    _fields_ = [
        ("state", c_char),
        *[(name, c_int64) for name in ("pid", "ppid", "minflt", "cminflt", "utime", "stime", "cutime", "cstime")],
        ("threads", c_int64),
        ("start", c_int64),
        ("stack", c_uint64),
        *[(name, c_int64) for name in ("session", "majflt", "rss", "flags")],
    ]


class Io(Structure):
    _fields_ = [(name, c_int64) for name in python.Io._fields]


class Rollup(Structure):
    _fields_ = [(name, c_int64) for name in python.Rollup._fields]


class Node(Structure):
    _fields_ = [("values", c_int64 * len(NODE)), ("cores", POINTER(c_int64)), ("count", c_int), ("tick_ns", c_int64)]


class Segment(Structure):
    _fields_ = [
        ("fd", c_int),
        ("sequence", c_uint64),
        ("size", c_int64),
        ("cap", c_int64),
        ("dropped", c_int64),
        ("error", c_int),
        ("waiting", c_void_p),
        ("waiting_size", c_size_t),
        ("waiting_capacity", c_size_t),
        ("block", c_void_p),
        ("block_capacity", c_size_t),
    ]


class Twins:
    """What the C functions return, in the shape of their Python twins."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name in ("parse_stat", "parse_io", "parse_rollup", "parse_statm", "segment_open", "segment_flush"):
            getattr(library, name).restype = c_bool
        library.parse_line.restype = library.parse_last_pid.restype = c_int64
        library.parse_line.argtypes = [c_char_p, c_size_t, c_char_p]
        library.segment_open.argtypes = [POINTER(Segment), c_char_p, c_int64]
        library.segment_block.argtypes = [POINTER(Segment), c_int, c_char_p, c_size_t, c_int64, c_int64]
        library.segment_rows.argtypes = [
            POINTER(Segment), c_int, POINTER(c_int64), c_size_t, c_size_t, c_int64, c_int64,
        ]  # fmt: skip

    def stat(self, text: bytes) -> dict[str, Any] | None:
        found = Stat()
        if not self.library.parse_stat(c_char_p(text), c_size_t(len(text)), byref(found)):
            return None
        return {name: getattr(found, name) for name, *_ in Stat._fields_}

    def io(self, text: bytes) -> python.Io | None:
        found = Io()
        good = self.library.parse_io(c_char_p(text), c_size_t(len(text)), byref(found))
        return python.Io(*[getattr(found, name) for name in python.Io._fields]) if good else None

    def rollup(self, text: bytes) -> python.Rollup | None:
        found = Rollup()
        good = self.library.parse_rollup(c_char_p(text), c_size_t(len(text)), byref(found))
        return python.Rollup(*[getattr(found, name) for name in python.Rollup._fields]) if good else None

    def line(self, text: bytes, name: bytes) -> int | None:
        value: int = self.library.parse_line(text, len(text), name)
        return None if value == UNKNOWN else value

    def last_pid(self, text: bytes) -> int:
        return int(self.library.parse_last_pid(c_char_p(text), c_size_t(len(text))))

    def node(self, kind: str, text: bytes, cores: int = 4) -> dict[str, int]:
        node = Node()
        assert self.library.node_open(byref(node), cores)
        for index in range(len(NODE)):
            node.values[index] = UNKNOWN
        for core in range(cores):
            node.cores[core] = UNKNOWN
        getattr(self.library, f"node_parse_{kind}")(byref(node), c_char_p(text), c_size_t(len(text)))
        found = dict(zip(NODE, node.values, strict=True)) | {f"cpu_{n}_ns": node.cores[n] for n in range(cores)}
        self.library.node_close(byref(node))
        return {name: value for name, value in found.items() if value != UNKNOWN}
