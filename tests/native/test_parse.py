"""The C parsers against their twins in Python: every live process, the node, hostile texts."""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import Structure, byref, c_int, c_size_t, c_void_p
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jumper.monitor.metrics.node import collector as node_python
from jumper.monitor.metrics.process import procfs as python
from tests.native.twins import LARGEST, Twins

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc on this system")


def live(name: str) -> list[bytes]:
    texts = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            texts.append(Path(f"/proc/{pid}/{name}").read_bytes())
        except OSError:
            continue
    return texts


# ---- one process


def same_stat(twins: Twins, text: bytes) -> None:
    found, expected = twins.stat(text), python.parse_stat(text)
    rest = text[text.rfind(b")") + 2 :].split()
    only_there = {"session": int(rest[3]), "majflt": int(rest[9]), "rss": int(rest[21])}
    shared = {name: getattr(expected, name) for name in found or () if name not in only_there}
    assert found == {**shared, "state": expected.state.encode(), **only_there}


def test_stat_of_every_live_process(twins: Twins) -> None:
    texts = live("stat")
    assert len(texts) > 1
    for text in texts:
        same_stat(twins, text)


REST = b" ".join(b"%d" % number for number in range(4, 53))


@pytest.mark.parametrize("name", [b"a", b"", b"a b", b") R 2 (", b"))", b"\n", b"a\n) Z 1 2", b"\xff" * 15, b"\0"])
def test_hostile_names_in_stat(twins: Twins, name: bytes) -> None:
    same_stat(twins, b"7 (%s) S %s\n" % (name, REST))


def test_the_order_of_the_fields_of_stat(twins: Twins) -> None:
    found = twins.stat(b"1 (x) R " + REST + b"\n")
    numbers = {"pid": 1, "ppid": 4, "minflt": 10, "cminflt": 11, "utime": 14, "stime": 15, "cutime": 16, "cstime": 17}
    more = {"threads": 20, "start": 22, "stack": 28, "session": 6, "majflt": 12, "rss": 24, "flags": 9}
    assert found == {"state": b"R", **numbers, **more}


def test_stat_that_is_cut_is_refused_wherever_it_is_cut(twins: Twins) -> None:
    whole = b"4711 (a) b) S " + REST + b"\n"
    needed = whole.index(b" 28 ") + 4
    assert [length for length in range(len(whole) + 1) if twins.stat(whole[:length])] == [
        *range(needed, len(whole) + 1)
    ]


@pytest.mark.parametrize("text", [b"", b"()", b"1 (x)", b"x (y) S " + REST, b"1 (x) S one two", b"-", b")" * 99])
def test_what_is_no_stat_is_refused(twins: Twins, text: bytes) -> None:
    assert twins.stat(text) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.binary(max_size=40), numbers=st.lists(st.integers(0, LARGEST), min_size=49, max_size=49))
def test_any_name_and_any_numbers(twins: Twins, name: bytes, numbers: list[int]) -> None:
    same_stat(twins, b"7 (%s) Z %s\n" % (name, b" ".join(b"%d" % n for n in numbers)))


def test_io_of_every_live_process(twins: Twins) -> None:
    texts = live("io")
    assert texts
    for text in texts:
        assert twins.io(text) == python.parse_io(text)


IO = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"


@pytest.mark.parametrize("text", [IO, IO.replace(b"\n", b"\r\n"), IO.replace(b"1", b"9223372036854775807"), IO[:-10]])
def test_io_in_other_shapes(twins: Twins, text: bytes) -> None:
    assert twins.io(text) == python.parse_io(text)


@pytest.mark.parametrize("text", [b"", IO[:40], IO.replace(b" 3", b""), b":" * 9, b"rchar: 1\n" * 5])
def test_io_that_lacks_something_is_refused(twins: Twins, text: bytes) -> None:
    assert twins.io(text) is None
    with pytest.raises((ValueError, IndexError)):
        python.parse_io(text)


def test_status_of_every_live_process(twins: Twins) -> None:
    texts = live("status")
    for text in texts:
        expected = python.parse_status(text)
        assert twins.line(text, b"Tgid:") == expected.tgid
        assert (twins.line(text, b"VmHWM:") or 0) * 1024 == expected.hwm
        assert (twins.line(text, b"VmSwap:") or 0) * 1024 == expected.swap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"VmHWM:\t 8 kB\n", 8),
        (b"VmHWM:\t 8 kB", 8),
        (b"VmHWM:\r\nVmHWM: 9 kB\r\n", None),
        (b"xVmHWM: 8\n VmHWM: 9\n", None),
        (b"Name:\tVmHWM: 7\nVmHWM:\t8 kB\n", 8),
        (b"VmHWM:", None),
        (b"VmHWM", None),
        (b"", None),
    ],
)
def test_a_line_is_found_by_its_whole_name(twins: Twins, text: bytes, expected: int | None) -> None:
    assert twins.line(text, b"VmHWM:") == expected


def test_smaps_rollup_of_every_live_process(twins: Twins) -> None:
    class Fixed(python.ProcFS):
        def read(self, path: str, size: int = 8192) -> bytes | None:
            return text

    seen = 0
    for text in live("smaps_rollup"):
        if text:
            assert twins.rollup(text) == Fixed().pss(1)
            seen += 1
    assert seen


def test_a_rollup_that_lacks_something_or_is_too_large(twins: Twins) -> None:
    assert twins.rollup(b"Rss: 1 kB\nAnonymous: 1 kB\nPss_Dirty: 1 kB\n") is None
    assert twins.rollup(b"Rss: 1 kB\nPss: 2 kB\nAnonymous: 9223372036854775807 kB\n") == (2048, 1024, LARGEST)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0.1 0.2 0.3 1/99 4711\n", 4711),
        (b"0.1 0.2 0.3 1/99 4711", 4711),
        (b"0.1 4711\r\n", 4711),
        (b"", -1),
        (b"\n", -1),
        (b"x 9223372036854775807\n", -1),
        (b"x 18446744073709551615\n", -1),
    ],
)
def test_the_last_pid(twins: Twins, text: bytes, expected: int) -> None:
    assert twins.last_pid(text) == expected


# ---- the node


def many_cpus(count: int) -> bytes:
    lines = [f"cpu{n} {n} 2 3 4 5 6 7 8 9 0\n" for n in range(count)]
    return ("cpu  1 2 3 4 5 6 7 8 9 0\n" + "".join(lines) + "intr " + "0 " * 9000 + "\nctxt 1\n").encode()


@pytest.mark.parametrize("text", [b"", many_cpus(3), many_cpus(3).replace(b"\n", b"\r\n")])
def test_the_cpus(twins: Twins, text: bytes) -> None:
    assert twins.node("cpu", text) == node_python.parse_cpu(text)


def test_the_cpus_of_this_machine(twins: Twins) -> None:
    text = Path("/proc/stat").read_bytes()
    assert twins.node("cpu", text, cores=os.sysconf("SC_NPROCESSORS_CONF")) == node_python.parse_cpu(text)


def test_a_thousand_cpus_in_more_than_64_kib(twins: Twins) -> None:
    text = many_cpus(1024)
    assert len(text) > 40_000
    found = twins.node("cpu", text + b" " * (1 << 16), cores=1024)
    assert found == node_python.parse_cpu(text)
    assert len(found) == 1028
    assert twins.node("cpu", text, cores=2)["cpu_1_ns"] == found["cpu_1_ns"]


def test_a_long_file_is_read_to_its_end(native: ctypes.CDLL) -> None:
    class ProcFiles(Structure):
        _fields_ = [("folder", c_int), ("kept", c_int), ("most", c_int), ("text", c_void_p), ("size", c_size_t)]

    native.procfs_read_long.restype = c_void_p
    files, size = ProcFiles(), c_size_t()
    assert native.procfs_open(byref(files), 0)
    os.close(files.folder)
    files.folder = os.open(Path(__file__).parent, os.O_RDONLY)
    assert native.procfs_read_long(byref(files), b"no/such/file", byref(size)) is None
    text = native.procfs_read_long(byref(files), b"test_parse.py", byref(size))
    assert ctypes.string_at(text, size.value) == Path(__file__).read_bytes()
    os.close(files.folder)
    files.folder = os.open("/dev", os.O_RDONLY)
    assert native.procfs_read_long(byref(files), b"zero", byref(size)) is not None
    assert size.value == 16 << 20  # and no further
    native.procfs_close(byref(files))


def test_cpus_that_are_none(twins: Twins) -> None:
    text = b"cpu  1 2 3 4 5 6 7 8\ncpu-1 9 9 9 9 9 9 9 9\ncpu0 1 1 1 1 1 1 1 1\n"
    assert twins.node("cpu", text) == node_python.parse_cpu(text.splitlines(True)[0])
    huge = b"cpu  " + b"9223372036854775807 " * 8 + b"\ncpu99999999999999999999 1\n"
    assert set(twins.node("cpu", huge).values()) == {LARGEST}


def test_the_memory(twins: Twins) -> None:
    text = Path("/proc/meminfo").read_bytes()
    assert twins.node("memory", text) == node_python.parse_memory(text)
    old = re.sub(rb"MemAvailable:.*\n", b"", text)
    assert twins.node("memory", old) == node_python.parse_memory(old)
    assert twins.node("memory", b"MemFree: 1 kB\n") == {}
    huge = b"MemTotal: 9223372036854775807 kB\nMemAvailable: 0 kB\nSwapTotal: -9223372036854775808 kB\nSwapFree: 9 kB\n"
    assert twins.node("memory", huge) == {"memory_bytes": LARGEST}


SEEDS = Path(__file__).with_name("fuzz") / "seeds"


@pytest.mark.parametrize("path", [Path("/proc/diskstats"), SEEDS / "diskstats"])
def test_the_disks(twins: Twins, path: Path) -> None:
    text = path.read_bytes()
    found = twins.node("disks", text)
    assert found == node_python.parse_disks(text)
    if path.parent == SEEDS:  # sda, nvme0n1, vda, mmcblk0; xvda is cut short
        assert found["reads"] == 119821 + 51233 + 1 + 1
    assert twins.node("disks", text.replace(b"\n", b"\r\n")) == found


def test_the_network(twins: Twins) -> None:
    text = Path("/proc/self/net/dev").read_bytes()
    assert twins.node("network", text) == node_python.parse_network(text)
    row = b" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    text = b"Inter-|\n face |\n lo:" + row + b"eth0:1:" + row + b"  br-1:" + row + b" eth9: 1 2\nnone\n"
    assert twins.node("network", text) == node_python.parse_network(text)
    assert twins.node("network", text)["net_recv_bytes"] == 2
