"""The short system calls say the same where they are compiled and where they are not."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import subprocess
import sys
from types import ModuleType

import pytest

from jumper.monitor import brief, plain

WAYS = ["plain", pytest.param("_brief", marks=pytest.mark.skipif(brief.reap is plain.reap, reason="not built"))]


@pytest.fixture(params=WAYS)
def calls(request: pytest.FixtureRequest) -> ModuleType:
    """The calls in Python or in C."""
    return importlib.import_module(f"jumper.monitor.{request.param}")


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -9 $$", -9), ("kill -ABRT $$", -6)])
def test_an_end_is_told_as_its_waiter_is_told_and_left_to_it(calls: ModuleType, command: str, status: int) -> None:
    child = subprocess.Popen(["/bin/sh", "-c", f"ulimit -c 0; {command}"])
    ended = calls.await_end(child.pid)
    _, waited, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(waited)
    assert ended[0] == child.returncode == status
    told = [usage.ru_utime * 1e9, usage.ru_stime * 1e9, usage.ru_maxrss * 1024]
    assert list(ended[1:4]) == pytest.approx(told, abs=1e3)


def test_who_is_reaped_already_is_nobody_s_to_wait_for(calls: ModuleType) -> None:
    child = subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE)
    assert calls.reap(child.pid) is False
    child.communicate()
    assert calls.await_end(child.pid) is None
    assert calls.reap(child.pid) is True


def test_nobody_is_left_to_wait_for_where_children_are_ignored(calls: ModuleType) -> None:
    code = (
        f"import os, signal, subprocess; from {calls.__name__} import await_end, reap\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['true'])\n"
        "print(await_end(child.pid), reap(child.pid))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "None True\n", said.stderr


def test_a_wait_goes_on_behind_a_signal_that_is_handled(calls: ModuleType) -> None:
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    try:
        child = subprocess.Popen(["/bin/sh", "-c", f"kill -USR1 {os.getpid()}; sleep 0.1; exit 4"])
        ended = calls.await_end(child.pid)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (ended[0], child.wait(), handled) == (4, 4, [signal.SIGUSR1])


def test_where_no_descriptor_is_left_there_is_no_pipe_and_no_file(calls: ModuleType) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            calls.pipe()
        found = calls.open_to_read("/proc/self/io")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert found is None


def test_descriptors_are_not_inherited_and_closing_none_is_harmless(calls: ModuleType) -> None:
    opened = [*calls.pipe(), calls.open_to_read("/proc/self/io")]
    assert not any(os.get_inheritable(fd) for fd in opened)
    for fd in [*opened, -1]:
        calls.close(fd)
    for fd in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_counters_of_a_zombie_are_the_kernels_where_the_file_was_opened_before(calls: ModuleType) -> None:
    child = subprocess.Popen(
        ["/bin/sh", "-c", "read line; cat /proc/self/status"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    fd = calls.open_to_read(f"/proc/{child.pid}/io")
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    told = [int(line.split(b":")[1]) for line in os.pread(fd, 512, 0).splitlines()[:6]]
    found = calls.read_io(fd)
    calls.close(fd)
    child.wait()
    assert list(found.values()) == told and told[0] > 0
    assert calls.read_io(-1) == {}


def test_a_record_comes_with_its_writer_or_not_at_all(calls: ModuleType) -> None:
    ours, theirs = calls.pipe()
    assert calls.read_soon(ours, 8) is None
    os.write(theirs, b"0123456789")
    assert calls.read_soon(ours, 8) == b"01234567"
    calls.close(theirs)
    assert [calls.read_soon(ours, 8) for _ in range(2)] == [b"89", b""]
    calls.close(ours)
