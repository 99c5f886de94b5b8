"""The launcher between `jumper run` and its command, driven over its real pipes."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

RECORD = struct.Struct("=iiiiiiqqqq")
SPAWNED, EXEC_FAILED, EXITED = 1, 2, 3
CLD_EXITED, CLD_KILLED, CLD_DUMPED = 1, 2, 3
MIB_IN_KIB = 1024
DEADLINE_S = 60


class Record(NamedTuple):
    kind: int
    pid: int
    code: int
    status: int
    is_command: int
    reserved: int
    utime_us: int
    stime_us: int
    maxrss_kib: int
    mono_ns: int


class Launch:
    """One run of the launcher; `records()` yields and acknowledges each exit after `at_exit(record)`."""

    def __init__(self, shim: Path, command: Sequence[str], **options: object) -> None:
        self.report, report = os.pipe()
        ack, self.ack = os.pipe()
        argv = [str(shim), str(report), str(ack), "--", *command]
        self.process = subprocess.Popen(argv, pass_fds=(report, ack), **options)  # type: ignore[call-overload]
        os.close(report)
        os.close(ack)

    def records(self, at_exit: Callable[[Record], None] | None = None) -> Iterator[Record]:
        while True:
            readable, _, _ = select.select([self.report], [], [], DEADLINE_S)
            assert readable, "the launcher said nothing within the deadline"
            data = os.read(self.report, RECORD.size)
            if not data:
                return
            record = Record(*RECORD.unpack(data))
            if record.kind == EXITED:
                if at_exit is not None:
                    at_exit(record)
                with contextlib.suppress(BrokenPipeError):
                    os.write(self.ack, b"a")
            yield record

    def close(self) -> None:
        for fd in (self.report, self.ack):
            with contextlib.suppress(OSError):
                os.close(fd)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def launch(shim: Path) -> Iterator[Callable[..., Launch]]:
    launches: list[Launch] = []

    def start(*command: str, **options: object) -> Launch:
        launches.append(Launch(shim, command, **options))
        return launches[-1]

    yield start
    for each in launches:
        each.close()


def finish(launched: Launch) -> tuple[list[Record], int]:
    records = list(launched.records())
    return records, launched.process.wait(DEADLINE_S)


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-c", textwrap.dedent(code)


def command_exit(records: list[Record]) -> Record:
    (record,) = [r for r in records if r.kind == EXITED and r.is_command]
    return record


def test_a_small_command_of_a_large_parent_reports_its_own_peak(launch: Callable[..., Launch]) -> None:
    held = bytearray(400 << 20)
    held[::4096] = b"x" * len(held[::4096])
    pid = os.posix_spawn("/bin/true", ["true"], {})
    inflated = os.wait4(pid, 0)[2].ru_maxrss
    records, status = finish(launch("/bin/true"))
    assert status == 0
    assert inflated > 400 * MIB_IN_KIB, "without the launcher the parent's peak is reported"
    assert command_exit(records).maxrss_kib < 5 * MIB_IN_KIB
    del held


def test_what_a_command_touches_is_its_peak(launch: Callable[..., Launch]) -> None:
    empty, _ = finish(launch(*python("pass")))
    touched, _ = finish(launch(*python("b = bytearray(50 << 20); b[::4096] = b'x' * len(b[::4096])")))
    # the helper string of one byte a page comes on top
    growth = command_exit(touched).maxrss_kib - command_exit(empty).maxrss_kib
    assert growth == pytest.approx(50 * MIB_IN_KIB, rel=0.02)


def test_records_come_in_order_and_with_the_cost_of_the_command(launch: Callable[..., Launch]) -> None:
    before = time.monotonic_ns()
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(time.process_time())"
    launched = launch(*python(burn), stdout=subprocess.PIPE)
    records, status = finish(launched)
    assert launched.process.stdout is not None
    own = float(launched.process.stdout.read())
    launched.process.stdout.close()
    spawned, exited = records
    assert (spawned.kind, exited.kind, status) == (SPAWNED, EXITED, 0)
    assert spawned.pid == exited.pid > 0
    assert before <= spawned.mono_ns <= exited.mono_ns <= time.monotonic_ns()
    # it ends a little after it looked: the interpreter is torn down
    assert own <= (exited.utime_us + exited.stime_us) / 1e6 <= own + 0.1


def test_waited_for_children_are_in_the_commands_record(launch: Callable[..., Launch]) -> None:
    code = """
        import subprocess, sys
        burn = "import time\\nwhile time.process_time() < 0.2: pass"
        for _ in range(3):
            subprocess.run([sys.executable, "-I", "-c", burn])
    """
    records, _ = finish(launch(*python(code)))
    record = command_exit(records)
    assert len(records) == 2
    assert record.utime_us + record.stime_us >= 600_000


def test_a_command_that_is_over_at_once_took_as_long_as_its_cpu_time(launch: Callable[..., Launch]) -> None:
    """It may have ended before the launcher runs again, so its start is noted before it."""
    for _ in range(40):
        spawned, exited = finish(launch("true"))[0]
        assert (exited.mono_ns - spawned.mono_ns) / 1e3 >= exited.utime_us + exited.stime_us


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_status_is_the_commands(launch: Callable[..., Launch], code: int) -> None:
    records, status = finish(launch("sh", "-c", f"exit {code}"))
    record = command_exit(records)
    assert (record.code, record.status, status) == (CLD_EXITED, code, code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_death_by_signal_is_told_exactly(launch: Callable[..., Launch], number: signal.Signals) -> None:
    records, status = finish(launch("sh", "-c", f"ulimit -c 0; kill -{int(number)} $$"))
    record = command_exit(records)
    assert record.code in (CLD_KILLED, CLD_DUMPED)
    assert (record.status, status) == (number, 128 + number)


def test_a_command_that_does_not_exist(launch: Callable[..., Launch]) -> None:
    records, status = finish(launch("no-such-command-here"))
    (record,) = records
    assert (record.kind, record.status, status) == (EXEC_FAILED, errno.ENOENT, 127)


def test_a_command_that_may_not_be_executed(launch: Callable[..., Launch], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    records, status = finish(launch(str(tmp_path / "plain")))
    (record,) = records
    assert (record.kind, record.status, status) == (EXEC_FAILED, errno.EACCES, 126)


def test_arguments_arrive_untouched(launch: Callable[..., Launch]) -> None:
    arguments = ["--", "-x", "", "a b", "*", "'\"", "ü\n"]
    launched = launch("printf", "%s\\0", *arguments, stdout=subprocess.PIPE)
    assert finish(launched)[1] == 0
    assert launched.process.stdout is not None
    assert launched.process.stdout.read().decode().split("\0")[:-1] == arguments
    launched.process.stdout.close()


def test_an_orphan_is_reported_and_reaped(launch: Callable[..., Launch]) -> None:
    code = """
        import os, sys, time
        read, write = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                while time.process_time() < 0.2: pass
                os._exit(7)
            os._exit(0)
        os.wait()
        os.close(write)
        os.read(read, 1)  # until the orphan ends
        time.sleep(0.3)
    """
    records, status = finish(launch(*python(code)))
    orphan, command = [r for r in records if r.kind == EXITED]
    assert (orphan.is_command, orphan.code, orphan.status) == (0, CLD_EXITED, 7)
    assert orphan.utime_us + orphan.stime_us >= 200_000
    assert (command.is_command, status) == (1, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(orphan.pid, 0)


def test_what_lives_on_after_the_command_does_not_hold_the_launcher(launch: Callable[..., Launch]) -> None:
    launched = launch("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!", stdout=subprocess.PIPE)
    _, status = finish(launched)
    assert launched.process.stdout is not None
    background = int(launched.process.stdout.read())
    launched.process.stdout.close()
    assert status == 0
    os.kill(background, signal.SIGKILL)


def test_the_zombie_waits_for_the_readers_look(launch: Callable[..., Launch]) -> None:
    states: list[str] = []

    def look(record: Record) -> None:
        time.sleep(0.2)
        states.append(Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()[0])

    launched = launch("/bin/true")
    for record in launched.records(at_exit=look):
        pid = record.pid
    assert launched.process.wait(DEADLINE_S) == 0
    assert states == ["Z"]
    assert not Path(f"/proc/{pid}").exists()


def test_io_of_the_dead_is_readable_through_a_descriptor_kept(launch: Callable[..., Launch]) -> None:
    code = "import os; os.read(0, 1); os.write(1, b'x' * 12345)"
    launched = launch(*python(code), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert launched.process.stdin is not None
    seen: list[bytes] = []
    kept: list[int] = []
    for record in launched.records(at_exit=lambda _: seen.append(os.pread(kept[0], 4096, 0))):
        if record.kind == SPAWNED:
            kept.append(os.open(f"/proc/{record.pid}/io", os.O_RDONLY))
            launched.process.stdin.write(b"g")
            launched.process.stdin.close()
    os.close(kept[0])
    assert int(seen[0].split(b"wchar: ")[1].split()[0]) == 12345


def test_ctrl_c_reaches_the_command_and_not_the_launcher(launch: Callable[..., Launch]) -> None:
    launched = launch("sleep", "60", start_new_session=True)
    records = launched.records()
    assert next(records).kind == SPAWNED
    os.killpg(launched.process.pid, signal.SIGINT)
    exited = next(records)
    assert (exited.code, exited.status) == (CLD_KILLED, signal.SIGINT)
    assert launched.process.wait(DEADLINE_S) == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_to_the_launcher_alone_change_nothing(launch: Callable[..., Launch], number: signal.Signals) -> None:
    launched = launch("cat", stdin=subprocess.PIPE)
    records = launched.records()
    assert next(records).kind == SPAWNED
    os.kill(launched.process.pid, number)
    assert launched.process.stdin is not None
    launched.process.stdin.close()
    assert next(records).status == 0
    assert launched.process.wait(DEADLINE_S) == 0


SIGNALS = ("SigBlk", "SigIgn")


def signal_state(text: str) -> dict[str, str]:
    return {k: v.strip() for k, v in (line.split(":", 1) for line in text.splitlines()) if k in SIGNALS}


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,), (signal.SIGINT, signal.SIGCHLD, signal.SIGQUIT)])
def test_the_command_has_the_original_dispositions_and_mask(shim: Path, ignored: tuple[signal.Signals, ...]) -> None:
    setup = f"""
        import os, signal, sys
        for number in {[int(n) for n in ignored]}:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])
        os.execv(sys.argv[1], sys.argv[1:])
    """
    direct = subprocess.run(
        [*python(setup), "/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True
    )
    report_out, report = os.pipe()
    ack, ack_in = os.pipe()
    os.close(ack_in)
    through = subprocess.run(
        [*python(setup), str(shim), str(report), str(ack), "--", "/bin/cat", "/proc/self/status"],
        pass_fds=(report, ack), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for fd in (report_out, report, ack):
        os.close(fd)
    assert signal_state(through.stdout) == signal_state(direct.stdout)


def test_a_command_that_is_started_with_sigchld_ignored_is_still_measured(launch: Callable[..., Launch]) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    records, status = finish(launch("sh", "-c", "exit 3", preexec_fn=ignore))
    assert (command_exit(records).status, status) == (3, 3)


def test_the_command_has_no_descriptor_of_ours(launch: Callable[..., Launch]) -> None:
    launched = launch("ls", "/proc/self/fd", stdout=subprocess.PIPE)
    finish(launched)
    assert launched.process.stdout is not None
    listed = launched.process.stdout.read().split()
    launched.process.stdout.close()
    assert listed == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads


def test_the_launcher_holds_no_descriptor_of_the_command(launch: Callable[..., Launch]) -> None:
    launched = launch("sh", "-c", "exec 1>&- 2>&-; read line", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert launched.process.stdout is not None and launched.process.stdin is not None
    records = launched.records()
    assert next(records).kind == SPAWNED
    readable, _, _ = select.select([launched.process.stdout], [], [], DEADLINE_S)
    assert readable and launched.process.stdout.read() == b""
    assert launched.process.poll() is None
    launched.process.stdin.close()
    list(records)
    launched.process.stdout.close()


def test_the_command_lives_on_when_the_reader_is_gone(launch: Callable[..., Launch]) -> None:
    launched = launch("sh", "-c", "read line; exit 5", stdin=subprocess.PIPE)
    assert next(launched.records()).kind == SPAWNED
    os.close(launched.report)
    os.close(launched.ack)
    assert launched.process.stdin is not None
    launched.process.stdin.close()
    assert launched.process.wait(DEADLINE_S) == 5


def test_a_reader_that_never_acknowledges_is_waited_for_a_second_only(launch: Callable[..., Launch]) -> None:
    launched = launch("/bin/true")
    assert launched.process.wait(DEADLINE_S) == 0
    data = os.read(launched.report, 4096)
    assert len(data) == 2 * RECORD.size


@pytest.mark.parametrize(
    "arguments", [[], ["3", "4"], ["x", "4", "--", "true"], ["0", "1", "--", "true"], ["91", "92", "--", "true"]]
)
def test_wrong_use_is_one_line_and_status_125(shim: Path, arguments: list[str]) -> None:
    done = subprocess.run([str(shim), *arguments], capture_output=True, text=True)
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1 and "expected FD_REPORT FD_ACK" in done.stderr
