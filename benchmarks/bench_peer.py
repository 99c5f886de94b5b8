"""One tick against the two monitors of jumper-extension 0.4.1, in an environment and under a uid of their own.

Its `native_c` lowers the priority of every process of its user, so it never runs as root or as whoever runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_tick import HOT, NEVER_S, settle
from benchmarks.measuring import HERE, NotPossible, Row, Size, compiled, program, row
from benchmarks.watched import engine, floor, tree

PEER = "jumper-extension==0.4.1"
#: what its thread monitor imports
NEEDED = ("itables", "pandas", "psutil", "pyyaml")
OWN_UID = 23456
PLACE = HERE.parent / "build" / "bench-peer"
#: shorter than a tick takes, so that it ticks back to back
SHORT = "0.00001"

#: CPU us a tick: ours, the bare C loop's, theirs
Series = tuple[list[float], list[float], list[float]]


def peers(size: Size) -> Iterator[Row]:
    """Yield the rows of jumper against both monitors."""
    for count in size.trees:
        for backend, measure, least in (("thread", _thread, 30), ("native_c", _native, 5)):
            peer = f"{PEER.replace('==', ' ')} {backend}"
            name = f"tick, {count} processes, {HOT}: {peer}"
            try:
                ours, bare, theirs = measure(size, count)
            except NotPossible as error:
                yield Row(name, "", "", f"not measured: {error}", f"at least {least} times cheaper")
            else:
                yield row(name, ours, theirs, " us", least=least)
                beside = row("", bare, theirs, " us", least=least)
                yield Row(f"the bare C loop in our place, {count} processes: {peer}", beside.ours, beside.against,
                          beside.ratio, "")  # fmt: skip


def _thread(size: Size, count: int) -> Series:
    python = environment(size)
    spawn = compiled("spawn")
    command: list[str | Path] = [python, HERE / "peer_side.py", packages(python), spawn, str(count), str(own_uid())]
    ours, bares, theirs = [], [], []
    with program(command) as (to, answers, _):
        answer = answers.readline()
        if not answer:
            raise NotPossible("its thread monitor does not start")
        pid = json.loads(answer)["tree"]
        with engine(pid, NEVER_S) as native, floor(pid) as bare:
            settle()
            for _ in range(size.rounds):
                ours.append(native.hot(size.passes))
                bares.append(bare.hot(size.passes))
                to.write(f"{max(1, size.passes // 10)}\n".encode())
                to.flush()
                theirs.append(float(answers.readline()))
    return ours, bares, theirs


def _native(size: Size, count: int) -> Series:
    uid = own_uid()
    binary = collector(environment(size))
    ours, bares, theirs = [], [], []
    with tree(count, uid=uid) as watched, engine(watched.pid, NEVER_S) as native, floor(watched.pid) as bare:
        settle()
        for _ in range(size.rounds):
            ours.append(native.hot(size.passes))
            bares.append(bare.hot(size.passes))
            theirs.append(_native_hot(binary, watched.pid, uid, size.passes))
    return ours, bares, theirs


def _native_hot(binary: Path, pid: int, uid: int, passes: int) -> float:
    """Return its CPU us a tick, back to back."""
    options = ["--interval", SHORT, "--levels", "process", "--collectors", "cpu,memory,io", "--target-pid", str(pid)]
    process = subprocess.Popen([binary, *options], stdout=subprocess.PIPE, user=uid, group=uid, extra_groups=[])
    clock = (~process.pid << 3) | 2  # the process's CPU clock, clock_getcpuclockid(3)
    assert process.stdout is not None
    try:
        for _ in range(3):  # ready, and two ticks to be warm
            process.stdout.readline()
        before = time.clock_gettime_ns(clock)
        for _ in range(passes):
            if not process.stdout.readline():
                raise NotPossible("its collector ended")
        return (time.clock_gettime_ns(clock) - before) / passes / 1e3
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(10)


def own_uid() -> int:
    """Return a uid that nobody else has.

    Raises
    ------
    NotPossible
        Where there is none to be had.
    """
    if os.geteuid() != 0:
        raise NotPossible("it needs a uid of its own, and only root can give one")
    return OWN_UID


def environment(size: Size) -> Path:
    """Return the Python of a virtual environment that has the peer.

    Raises
    ------
    NotPossible
        Where it cannot be installed.
    """
    if not size.peers:
        raise NotPossible("left out in this size")
    own_uid()
    python = PLACE / "bin" / "python"
    done = PLACE / "installed"
    if not done.exists():
        venv.create(PLACE, with_pip=True, clear=True)
        pip: list[str] = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for options in (["--no-deps", PEER], list(NEEDED)):
            tried = subprocess.run([*pip, *options], capture_output=True, text=True)
            if tried.returncode:
                raise NotPossible(f"it cannot be installed: {(tried.stderr.strip() or 'no reason given')[-200:]}")
        done.touch()
    return python


def packages(python: Path) -> Path:
    """Return where an environment has its packages."""
    return python.parent.parent / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def collector(python: Path) -> Path:
    """Return its compiled collector, built by its own Makefile, where others may execute it.

    Raises
    ------
    NotPossible
        Where it does not compile.
    """
    source = packages(python) / "jumper_extension" / "monitor" / "backends" / "native_c"
    tried = subprocess.run(["make", "-s", "-C", source], capture_output=True, text=True)
    if tried.returncode:
        raise NotPossible(f"its collector does not compile: {tried.stderr.strip()[-200:]}")
    target = compiled("spawn").parent / "jumper_collector"
    target.write_bytes((source / "jumper_collector").read_bytes())
    target.chmod(0o755)
    return target
