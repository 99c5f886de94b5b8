"""The compiled parser of /proc/PID/stat against its twin in Python: every live process, hostile names, cut text."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumper.monitor.metrics.process.procfs import parse_stat_python

_procfs = pytest.importorskip("jumper.monitor.backends.native._procfs", reason="the native extension is not built")

REST = b"S 1 2 3 0 -1 4194560 10 11 12 13 14 15 16 17 20 0 3 0 99 1000 50 18446744073709551615 1 2 140734013410816 0 0"
NAMES = [
    b"cat",
    b"a b",
    b"a) b",
    b") S 1 (",
    b"((",
    b"))",
    b"",
    b"\n",
    b"a\n) R 2",
    b"\xff\xfe",
    b"(sd-pam)",
    b")" * 15,
]


def test_every_live_process() -> None:
    seen = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            data = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        assert _procfs.parse_stat(data) == tuple(parse_stat_python(data))
        assert _procfs.parse_stat(data)[0] == int(pid)
        seen += 1
    assert seen > 1


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(name: bytes) -> None:
    data = b"4711 (%s) %s\n" % (name, REST)
    found = _procfs.parse_stat(data)
    assert found == (4711, name, "S", 1, 14, 15, 16, 17, 3, 99, 10, 11, 140734013410816)
    assert found == tuple(parse_stat_python(data))


@pytest.mark.parametrize("name", ["a) b", "x y (z", "new\nline"])
def test_a_process_that_bears_a_hostile_name(name: str) -> None:
    code = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    found = _procfs.parse_stat(Path(f"/proc/{child.pid}/stat").read_bytes())
    child.communicate()
    assert found[:2] == (child.pid, name.encode()) and found[3] == os.getpid()


def test_the_order_of_the_fields() -> None:
    fields = [f"{number}" for number in range(4, 53)]
    found = _procfs.parse_stat(f"1 (x) R {' '.join(fields)}\n".encode())
    # pid, comm, state, then the numbers of proc_pid_stat(5)
    assert found == (1, b"x", "R", 4, 14, 15, 16, 17, 20, 22, 10, 11, 28)


@given(st.binary(max_size=64), st.lists(st.integers(0, 2**63 - 1), min_size=49, max_size=49))
def test_any_name_and_any_numbers(name: bytes, numbers: list[int]) -> None:
    data = b"7 (%s) Z %s\n" % (name, b" ".join(b"%d" % n for n in numbers))
    assert _procfs.parse_stat(data) == tuple(parse_stat_python(data))


def test_text_that_is_cut_is_an_error_wherever_it_is_cut() -> None:
    whole = b"4711 (a) b) %s\n" % REST
    needed = whole.index(b" 140734013410816") + len(b" 140734013410816") + 1
    for length in range(needed):
        with pytest.raises(ValueError, match="expected"):
            _procfs.parse_stat(whole[:length])
    assert _procfs.parse_stat(whole[:needed])[0] == 4711


@pytest.mark.parametrize(
    "data", [b"", b"()", b"1 (x)", b"x (y) " + REST, b"1 ) x ( " + REST, b"1 (x) S one two\n", b"-" * 99]
)
def test_what_is_no_stat_file_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        _procfs.parse_stat(data)


@given(st.binary(max_size=300))
def test_no_bytes_crash_it(data: bytes) -> None:
    try:
        _procfs.parse_stat(data)
    except ValueError as error:
        assert "expected" in str(error)


@pytest.mark.parametrize("wrong", [None, "1 (x) S", 7, bytearray(b"1 (x) S")])
def test_what_is_no_bytes_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError):
        _procfs.parse_stat(wrong)


def test_it_keeps_no_memory() -> None:
    data = Path("/proc/self/stat").read_bytes()

    def peak_after(calls: int) -> int:
        for _ in range(calls):
            _procfs.parse_stat(data)
            with pytest.raises(ValueError, match="expected"):
                _procfs.parse_stat(b"1 (x) S")
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first = peak_after(20_000)
    assert peak_after(20_000) - first < 512  # KiB; one lost object a call would be 1,000 or more
