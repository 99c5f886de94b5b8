"""Start a command and learn what it cost: through the small launcher where it is built, else directly.

The command keeps its streams, its process group, its signals and its inherited
descriptors; it never knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jumper.monitor.metrics.process.procfs import ProcFS

#: see the head of ext/shim.c
RECORD = struct.Struct("=iiiiiiqqqq")
SPAWNED, EXEC_FAILED, EXITED = 1, 2, 3
SHIM = Path(__file__).with_name("_shim")

#: forwarded when they were sent to us alone; a terminal sends its own to the whole group
FORWARDED = {
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    signal.SIGALRM, signal.SIGURG, signal.SIGIO,
}  # fmt: skip
FROM_TERMINALS = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
#: si_code of a signal that the kernel made, such as a terminal's (sigaction(2))
SI_KERNEL = 0x80


@dataclass(frozen=True, slots=True)
class Exit:
    """One process that ended, as its waiter saw it.

    Attributes
    ----------
    status : int
        Exit status, or the negative signal that ended it.
    cpu_user_ns, cpu_system_ns : int
        Of it and of all that it waited for.
    maxrss_bytes : int
        Largest single process among these.
    mono_ns : int
    """

    pid: int
    status: int
    cpu_user_ns: int
    cpu_system_ns: int
    maxrss_bytes: int
    mono_ns: int


class CannotExecute(OSError):
    """The command could not be executed; ``errno`` says why."""


class Launcher:
    """Start one command.

    Parameters
    ----------
    command : sequence of str
    shim : path or None
        The launcher program; None starts the command directly.

    Attributes
    ----------
    pid : int
        Process id of the command.
    adopters : set of int
        Who becomes the parent of its orphans and is not part of it.
    floor_bytes : int
        What the command's high-water mark started at: below it, ``maxrss`` says nothing.
    start_ns : int
        Monotonic.

    Raises
    ------
    CannotExecute
    """

    def __init__(
        self, command: Sequence[str], shim: Path | None = SHIM, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self._environment = dict(os.environ if environment is None else environment)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        self.adopters: set[int] = set()
        self._shim = shim if shim is not None and os.access(shim, os.X_OK) else None
        if self._shim is not None:
            self._start_by_shim(self._shim)
        else:
            self._start_directly()
        threading.Thread(target=self._forward, name="jumper-signals", daemon=True).start()

    @staticmethod
    def has_shim() -> bool:
        """Whether the launcher program is built."""
        return os.access(SHIM, os.X_OK)

    def wait(self, before_reaping: Callable[[Exit], None]) -> tuple[Exit, list[Exit]]:
        """Wait for the command; return its end and those of its orphans.

        Parameters
        ----------
        before_reaping : callable
            Called with the command's end while it is still a zombie and can be read.
        """
        return self._wait_by_shim(before_reaping) if self._shim is not None else self._wait_directly(before_reaping)

    def _start_by_shim(self, shim: Path) -> None:
        (report, theirs), (theirs_ack, self._ack) = _pipe(), _pipe()
        for fd in (theirs, theirs_ack):
            os.set_inheritable(fd, True)
        arguments = [str(shim), str(theirs), str(theirs_ack), "--", *self.command]
        self._child = self._spawn(str(shim), arguments)
        os.close(theirs)
        os.close(theirs_ack)
        self._report = report
        self.adopters.add(self._child)
        first = self._next()
        if first is None or first[0] != SPAWNED:
            os.waitpid(self._child, 0)
            code = first[3] if first is not None else 5
            raise CannotExecute(code, os.strerror(code), self.command[0])
        self.pid, self.start_ns = first[1], first[9]
        status = ProcFS().status(self._child)
        self.floor_bytes = status.hwm if status is not None else 0

    def _start_directly(self) -> None:
        self.start_ns = time.monotonic_ns()
        status = ProcFS().status(os.getpid())
        self.floor_bytes = (
            status.hwm if status is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        try:
            self.pid = self._child = self._spawn(self.command[0], self.command)
        except OSError as error:
            raise CannotExecute(error.errno, error.strerror, self.command[0]) from error

    def _spawn(self, program: str, arguments: list[str]) -> int:
        # Python ignores these two; the command shall have them as they were
        restored = [s for s in (signal.SIGPIPE, signal.SIGXFSZ) if signal.getsignal(s) == signal.SIG_IGN]
        return os.posix_spawnp(program, arguments, self._environment, setsigmask=list(self._mask), setsigdef=restored)

    def _next(self) -> tuple[int, ...] | None:
        data = b""
        while len(data) < RECORD.size:
            chunk = os.read(self._report, RECORD.size - len(data))
            if not chunk:
                return None
            data += chunk
        return RECORD.unpack(data)

    def _wait_by_shim(self, before_reaping: Callable[[Exit], None]) -> tuple[Exit, list[Exit]]:
        command: Exit | None = None
        orphans: list[Exit] = []
        while (record := self._next()) is not None:
            kind, pid, code, status, is_command, _, user_us, system_us, maxrss_kib, mono_ns = record
            if kind != EXITED:
                continue
            ended = Exit(
                pid, status if code == 1 else -status, user_us * 1000, system_us * 1000, maxrss_kib * 1024, mono_ns
            )
            if is_command:
                command = ended
                before_reaping(ended)
            else:
                orphans.append(ended)
            with contextlib.suppress(OSError):
                os.write(self._ack, b"\0")
        _, wait_status = os.waitpid(self._child, 0)
        if command is None:  # the launcher itself was killed
            code = os.waitstatus_to_exitcode(wait_status)
            command = Exit(self.pid, code, 0, 0, 0, time.monotonic_ns())
        return command, orphans

    def _wait_directly(self, before_reaping: Callable[[Exit], None]) -> tuple[Exit, list[Exit]]:
        with contextlib.suppress(ChildProcessError, AttributeError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        mono_ns = time.monotonic_ns()
        before_reaping(Exit(self.pid, 0, 0, 0, 0, mono_ns))
        _, status, usage = os.wait4(self.pid, 0)
        ended = Exit(
            self.pid,
            os.waitstatus_to_exitcode(status),
            round(usage.ru_utime * 1e9),
            round(usage.ru_stime * 1e9),
            usage.ru_maxrss * 1024,
            mono_ns,
        )
        return ended, []

    def _forward(self) -> None:
        while True:
            if sys.platform == "darwin":  # no word about who sent it
                number, alone = (received := signal.sigwait(FORWARDED)), received not in FROM_TERMINALS
            else:
                info = signal.sigwaitinfo(FORWARDED)
                number, alone = info.si_signo, info.si_code != SI_KERNEL
            if alone:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, number)


def _pipe() -> tuple[int, int]:
    """Return a pipe off the places of the standard streams, which may be closed: they are the command's."""
    ends = os.pipe()
    reader, writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in ends)
    for fd in ends:
        os.close(fd)
    return reader, writer


def end_as(status: int) -> int:
    """End this process as the command ended: by the same signal, or return its exit status.

    A core of ours would say nothing, so none is left.
    """
    if status >= 0:
        return status
    number = -status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
