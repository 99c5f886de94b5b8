"""A /proc of a test: processes whose numbers are known, that change and vanish when the test says so."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jumper.monitor.metrics.process.procfs import TICK_NS, ProcFS

MIB = 1 << 20
#: clock ticks of one second
SECOND = 1_000_000_000 // TICK_NS


@dataclass(frozen=True)
class Numbers:
    """What the files of one process say; CPU in clock ticks, memory in MiB, I/O in bytes."""

    ppid: int = 1
    session: int = 1
    state: str = "S"
    user: int = 0
    system: int = 0
    dead_user: int = 0
    dead_system: int = 0
    threads: int = 1
    start: int = 100
    minflt: int = 0
    cminflt: int = 0
    stack: int = 0
    rss: int = 1
    hwm: int = 1
    anon: int = 1
    swap: int = 0
    pss: int | None = None
    chars: int = 0
    written: int = 0
    comm: str = "a"
    environ: str = ""
    cmdline: str = ""
    io: bool = True
    tgid: int | None = None


class FakeProc:
    """A folder that :class:`~jumper.monitor.metrics.process.procfs.ProcFS` reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fs = ProcFS(str(root))
        self.known: dict[int, Numbers] = {}

    def put(self, pid: int, **numbers: Any) -> None:
        """Make a process, or change what is named of one that is there."""
        n = self.known[pid] = replace(self.known.get(pid, Numbers()), **numbers)
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = [0] * 49
        fields[0], fields[2], fields[6], fields[7] = n.ppid, n.session, n.minflt, n.cminflt
        fields[10:14] = [n.user, n.system, n.dead_user, n.dead_system]
        fields[16], fields[18], fields[24] = n.threads, n.start, n.stack
        (folder / "stat").write_text(f"{pid} ({n.comm}) {n.state} {' '.join(map(str, fields))}\n")
        kib = "".join(
            f"{name}:\t{mib * 1024} kB\n"
            for name, mib in (("VmHWM", n.hwm), ("VmRSS", n.rss), ("RssAnon", n.anon), ("VmSwap", n.swap))
        )
        (folder / "status").write_text(f"Tgid:\t{n.tgid or pid}\nThreads:\t{n.threads}\n{kib}")
        (folder / "statm").write_text(f"0 {n.rss * 256} 0 0 0 0 0\n")
        (folder / "environ").write_text(n.environ)
        (folder / "cmdline").write_text(n.cmdline)
        if n.io:
            lines = (n.chars, n.written, 0, 0, n.chars, n.written)
            names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")
            text = "".join(f"{a}: {b}\n" for a, b in zip(names, lines, strict=True))
            (folder / "io").write_text(text)
        if n.pss is not None:
            text = f"Rss: {n.rss * 1024} kB\nPss: {n.pss * 1024} kB\nAnonymous: {n.anon * 1024} kB\n"
            (folder / "smaps_rollup").write_text(text)

    def drop(self, pid: int) -> None:
        """Let a process be gone."""
        shutil.rmtree(self.root / str(pid))
        del self.known[pid]
