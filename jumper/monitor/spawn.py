"""Children whose high-water mark is their own: started by a small program, which makes them ours."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from jumper.monitor import brief

#: see the head of ext/spawn.c
RECORD = struct.Struct("=ii")
SPAWN = str(Path(__file__).with_name("_spawn"))


class OwnPeak(subprocess.Popen[Any]):
    """A shell command as `subprocess.Popen` starts it, whose ``ru_maxrss`` does not begin at our own peak.

    The child has the same parent, streams, environment, arguments and signals. Where
    the program is not built, or for another call than of a shell by its path, it is
    started as ever.

    Attributes
    ----------
    own_peak : bool
        Whether it was.

    Examples
    --------
    >>> child = OwnPeak("exit 3", shell=True, executable="/bin/sh")
    >>> child.wait(), child.args
    (3, 'exit 3')
    """

    def __init__(self, args: Any, *more: Any, **kwargs: Any) -> None:
        program = self._by_program(args, more, kwargs)
        self.own_peak = program is not None
        if program is None:
            super().__init__(args, *more, **kwargs)
        try:
            self.started()
        finally:
            if program is not None:
                _reap(program)

    def started(self) -> None:
        """Do what is to be done first with the process; the program that started it ends meanwhile."""

    def _by_program(self, args: Any, more: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Start it by the program, and return that one's pid; None where nothing was started, or what was is gone."""
        shell = kwargs.get("executable")
        plain = isinstance(args, str) and isinstance(shell, str) and shell[:1] == "/" and kwargs.get("shell")
        if more or not plain or not kwargs.get("close_fds", True) or not _is_built(SPAWN):
            return None
        try:
            report, theirs = brief.pipe()
        except OSError:  # no descriptors left: not a reason that the command should not start
            return None
        try:
            command = [SPAWN, str(theirs), "--", shell, "-c", args]
            changed = {**kwargs, "shell": False, "executable": None, "close_fds": True, "pass_fds": (theirs,)}
            try:
                super().__init__(command, **changed)
            except OSError:  # the same error, or a better one, comes without the program
                return None
            finally:
                brief.close(theirs)
            answer = brief.read_soon(report, RECORD.size)
            if answer is None:
                answer = os.read(report, RECORD.size)
        finally:
            brief.close(report)
        program = self.pid
        pid, error = RECORD.unpack(answer) if len(answer) == RECORD.size else (-1, errno.EIO)
        if error == 0:
            self.pid, self.args = pid, args
            return program
        _reap(program)
        if pid > 0:
            _reap(pid)
        self.returncode = error  # nobody waits for it any more
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        return None


@cache
def _is_built(program: str) -> bool:
    return os.access(program, os.X_OK)


def _reap(pid: int) -> None:
    if brief.reap(pid):
        return
    with contextlib.suppress(ChildProcessError):  # who ignores SIGCHLD has nobody to reap
        os.waitpid(pid, 0)
