"""Once a node: series of the whole machine are taken by whichever monitor holds the node's lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from jumper.utilities import node_name, safe_name

#: how often one who does not hold the lock tries again
RETRY_S = 10.0


class NodeLock:
    """A lock on this node, of this user.

    ``fcntl.lockf``, because a ``flock`` lives on in forked children after SIGKILL;
    one descriptor a file, close-on-exec. The file's name holds the node's, as hosts
    can share a folder.

    Parameters
    ----------
    folder : path
        The spool folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = NodeLock(folder)
    ...     lock.held(), lock.held()
    (True, True)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = os.path.join(folder, f"node-{safe_name(node_name())}.lock")
        self._fd: int | None = None
        self._next = 0.0

    def held(self) -> bool:
        """Return whether this process holds the lock, trying for it now and then."""
        if self._fd is not None:
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + RETRY_S
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        """Let go of the lock."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None
            self._next = 0.0
