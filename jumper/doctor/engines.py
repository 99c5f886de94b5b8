"""Checks of what samples: the engines, the launcher, the agent, levels and collectors."""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
from pathlib import Path

from jumper.doctor.check import Check
from jumper.utilities import get_available_levels

_PACKAGE = Path(__file__).parent.parent
SHIM = _PACKAGE / "monitor" / "_shim"


def native_extension() -> Check:
    """Whether the compiled modules of the native engine load."""
    try:
        module = importlib.import_module("jumper.monitor.backends.native._engine")
    except ImportError as error:
        return Check(
            "engines", "native extension", "limited", f"{error}; the python engine does its work, at more cost",
            "install a C compiler and the Python headers (Debian: gcc python3-dev), then reinstall jumper-workflows",
        )  # fmt: skip
    return Check("engines", "native extension", "ok", Path(str(module.__file__)).name)


def launcher() -> Check:
    """Whether the launcher of `jumper run` runs a command and reports its peak."""
    if not os.access(SHIM, os.F_OK):
        return Check(
            "engines", "launcher", "limited", "not built: a command's peak below that of jumper itself is not seen",
            "install a C compiler (Debian: gcc libc6-dev), then reinstall jumper-workflows",
        )  # fmt: skip
    report, report_end = os.pipe()
    ack_end, ack = os.pipe()
    os.close(ack)
    try:
        argv = [str(SHIM), str(report_end), str(ack_end), "--", "true"]
        status = subprocess.run(argv, pass_fds=(report_end, ack_end), timeout=10, check=False).returncode
        os.close(report_end)
        data = os.read(report, 4096)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("engines", "launcher", "limited", f"{SHIM} does not run: {error}", "is the folder mounted noexec?")
    finally:
        os.close(report)
        os.close(ack_end)
    if status != 0 or len(data) < 112:
        return Check("engines", "launcher", "limited", f"`true` ended with {status}", "reinstall jumper-workflows")
    (peak_kib,) = struct.unpack_from("=q", data, 56 + 40)
    return Check("engines", "launcher", "ok", f"the peak of `true` is {peak_kib} KiB")


def agent() -> Check:
    """Whether this Python can start the sampling process: it imports it by its own path."""
    code = f"import sys; sys.path.insert(0, {str(_PACKAGE.parent)!r}); import jumper.monitor.agent"
    try:
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("engines", "agent process", "missing", str(error), "is sys.executable a Python 3.11 or newer?")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Check("engines", "agent process", "missing", last, "reinstall jumper-workflows in this environment")
    return Check("engines", "agent process", "ok", f"{sys.executable} -P -m jumper.monitor.agent")


def levels() -> Check:
    """The levels that can be measured here; `slurm` only inside a job."""
    return Check("engines", "levels", "ok", ", ".join(get_available_levels()))


def collectors() -> Check:
    """Which collectors run besides the built-in ones, from where, and why one of a package's does not."""
    from jumper.config.entries import BUILT_IN
    from jumper.config.load import load_config
    from jumper.schema.errors import CollectorConfigError

    try:
        config = load_config()
    except CollectorConfigError as error:
        return Check("engines", "collectors", "missing", str(error), "mend that file; nothing is measured before")
    own = [f"{entry.name} ({entry.origin})" for entry in config.entries if entry.origin != BUILT_IN]
    text = "; ".join([", ".join(["the built-in ones", *own]), *(each.text for each in config.refused)])
    if config.refused:
        return Check(
            "engines", "collectors", "limited", text,
            "tell that package's authors, or silence it: an entry of its name that is null in your collectors.yaml",
        )  # fmt: skip
    return Check("engines", "collectors", "ok", text)
