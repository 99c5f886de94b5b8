"""What can be measured on this machine, what is missing, and the next step: one check, one function.

A check looks at the thing itself (it runs the launcher, reads the file, loads the
library), because versions and configuration files promise more than containers keep.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import pkgutil
import platform
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jumper.schema import VERSION
from jumper.utilities import get_available_levels, node_name

if TYPE_CHECKING:
    from rich.table import Table

#: Version of the document of `jumper doctor --json`.
SCHEMA = 1
SHIM = Path(__file__).parent / "monitor" / "_shim"

Status = Literal["ok", "limited", "missing", "none"]
#: `limited`: works, with less; `missing`: can be had; `none`: this machine has no such thing.
COLORS: dict[Status, str] = {"ok": "green", "limited": "yellow", "missing": "red", "none": "dim"}


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of one check: what was found, and what would help where it is not ``ok``."""

    area: str
    name: str
    status: Status
    found: str
    next_step: str = ""


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
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent.parent)!r}); import jumper.monitor.agent"
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


def proc_folder() -> Check:
    """Whether /proc shows this process (it is Linux, and this namespace's)."""
    if not sys.platform.startswith("linux"):
        return Check("kernel", "/proc", "none", f"{platform.system()} has none: every number is an estimate by psutil")
    try:
        own = os.readlink("/proc/self")
    except OSError as error:
        return Check("kernel", "/proc", "missing", str(error), "mount it: mount -t proc proc /proc")
    if own != str(os.getpid()):
        return Check(
            "kernel", "/proc", "missing", f"it is another PID namespace's: it calls {os.getpid()} {own}",
            "mount this namespace's own: unshare --mount-proc",
        )  # fmt: skip
    return Check("kernel", "/proc", "ok", f"kernel {platform.release()}")


def other_processes(mounts: str = "/proc/mounts") -> Check:
    """Whether other users' processes can be seen (proc(5), ``hidepid``)."""
    options = ""
    for line in _text(mounts).splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == "/proc" and fields[2] == "proc":
            options = fields[3]
    hide = next((o.partition("=")[2] for o in options.split(",") if o.startswith("hidepid=")), "0")
    if hide in ("0", "off"):
        return Check("kernel", "hidepid", "ok", "off: processes of all users are visible")
    return Check(
        "kernel", "hidepid", "limited", f"{hide}: the count of processes at the level system is of those you may see",
        "nothing to do for your own tasks; an administrator can add you to the group of the mount option gid=",
    )  # fmt: skip


def children_files() -> Check:
    """Whether a thread's children are listed (proc_pid_task(5), CONFIG_PROC_CHILDREN), and what a look costs."""
    path = f"/proc/self/task/{os.getpid()}/children"
    if not os.access(path, os.R_OK):
        return Check(
            "kernel", "children files", "limited", "not there: trees are found by a walk over /proc, at more cost",
            "nothing to do; kernels built with CONFIG_PROC_CHILDREN have them",
        )  # fmt: skip
    start = time.perf_counter_ns()
    for _ in range(100):
        _text(path)
    cost_us = (time.perf_counter_ns() - start) / 100_000
    return Check("kernel", "children files", "ok", f"{cost_us:.0f} us a thread")


def cpu_clocks() -> Check:
    """Whether another process's CPU clock can be read (clock_getcpuclockid(3)): nanoseconds instead of ticks."""
    try:
        time.clock_gettime_ns((~os.getppid()) << 3 | 2)
    except (OSError, AttributeError, OverflowError) as error:
        return Check("kernel", "CPU clocks", "limited", f"{error}: CPU time is in ticks of 10 ms")
    return Check("kernel", "CPU clocks", "ok", "nanoseconds")


def io_file() -> Check:
    """Whether bytes read and written are counted (proc_pid_io(5), CONFIG_TASK_IO_ACCOUNTING)."""
    if "write_bytes" in _text("/proc/self/io"):
        return Check("kernel", "I/O counters", "ok", "/proc/PID/io")
    return Check("kernel", "I/O counters", "missing", "no /proc/self/io: bytes are null", "no step helps from outside")


def shared_pages() -> Check:
    """Whether shared pages can be counted once (proc_pid_smaps_rollup(5))."""
    if "Pss:" in _text("/proc/self/smaps_rollup"):
        return Check("kernel", "smaps_rollup", "ok", "shared pages count once")
    return Check("kernel", "smaps_rollup", "limited", "not readable: memory of a tree is its RSS, an upper bound")


def peak_reset() -> Check:
    """Whether a process can reset its own high-water mark (proc_pid_clear_refs(5)); tries it on this one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        return Check(
            "kernel", "clear_refs", "limited", f"{error.strerror}: peaks of Dask tasks are the highest sample",
            "a shorter interval sees more",
        )  # fmt: skip
    return Check("kernel", "clear_refs", "ok", "a task's peak can be told from the one before")


def cgroup_files() -> Check:
    """Which memory files of this process's cgroup can be read (cgroup-v2.rst, memory.rst)."""
    wanted = {"2": ("memory.current", "memory.peak", "memory.max", "memory.events"),
              "1": ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes")}  # fmt: skip
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mount = "2", Path("/sys/fs/cgroup")
        elif "memory" in controllers.split(","):
            version, mount = "1", Path("/sys/fs/cgroup/memory")
        else:
            continue
        # a container shows the path of the host, where only the mount itself is ours
        for folder in (mount / path.strip("/"), mount):
            found = [name for name in wanted[version] if os.access(folder / name, os.R_OK)]
            if found:
                lacking = [name for name in wanted[version] if name not in found]
                text = f"version {version}: {', '.join(found)}" + (f"; not {', '.join(lacking)}" if lacking else "")
                return Check("memory", "cgroup", "limited" if lacking else "ok", text)
    return Check("memory", "cgroup", "none", "no cgroup of this process counts memory that we can read")


def memory_limit() -> Check:
    """The smallest limit that applies here, and who set it."""
    from jumper.monitor.nodefacts import memory_limits_bytes

    limits = memory_limits_bytes()
    if not limits:
        return Check("memory", "limit", "limited", "no limit could be read")
    source = min(limits, key=lambda name: limits[name])
    return Check("memory", "limit", "ok", f"{limits[source] / 2**30:.1f} GiB, by {source}")


def spool() -> Check:
    """Whether samples can be written, where, and on what kind of file system."""
    from jumper.monitor.segment import spool_folder

    try:
        folder = spool_folder()
        room = os.statvfs(folder)
    except OSError as error:
        return Check("storage", "spool", "missing", str(error), "set JUMPER_SPOOL to a folder of your own on this node")
    free_gib = room.f_bavail * room.f_frsize / 2**30
    kind = _file_system(folder)
    text = f"{folder} ({kind or 'unknown file system'}, {free_gib:.1f} GiB free)"
    if kind in ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph"):
        return Check("storage", "spool", "limited", f"{text}: shared", "set JUMPER_SPOOL to a folder on a local disk")
    if free_gib < 0.1:
        return Check("storage", "spool", "limited", text, "make room there, or set JUMPER_SPOOL to another folder")
    return Check("storage", "spool", "ok", text)


def snakemake_way() -> Check:
    """Which way measures the jobs of the Snakemake that is installed here."""
    version = _snakemake_version()
    if version is None:
        return Check("snakemake", "way", "none", "Snakemake is not installed here")
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found >= (9, 0):
        return Check("snakemake", "way", "ok", f"{version}: snakemake --logger jumper")
    if found >= (8, 30):
        return Check(
            "snakemake", "way", "ok", f"{version} has no logger plugins: jumper-snakemake run -- snakemake ..."
        )
    return Check("snakemake", "way", "missing", f"{version} is older than what we know", "upgrade it to 8.30 or newer")


def snakemake_plugins() -> Check:
    """Whether Snakemake finds our plugins: it walks sys.path, and does not see what an import hook serves."""
    if _snakemake_version() is None:
        return Check("snakemake", "plugins", "none", "Snakemake is not installed here")
    packages = {module.name for module in pkgutil.iter_modules() if module.ispkg}
    wanted = ("snakemake_logger_plugin_jumper", "snakemake_report_plugin_jumper")
    lacking = [name for name in wanted if name not in packages]
    if lacking:
        return Check(
            "snakemake", "plugins", "missing", f"not on sys.path: {', '.join(lacking)}",
            "install jumper-workflows in this environment; a development install with --config-settings "
            "editable_mode=compat",
        )  # fmt: skip
    return Check("snakemake", "plugins", "ok", "--logger jumper, --reporter jumper")


def snakemake_hook() -> Check:
    """Whether each name of Snakemake that ours stand in for is there and as expected."""
    if _snakemake_version() is None:
        return Check("snakemake", "hook", "none", "Snakemake is not installed here")
    from jumper_snakemake.hook import PATCHES, fault_of

    faults = [f"{fault}: {patch.without}" for patch in PATCHES if (fault := fault_of(patch)) is not None]
    if faults:
        return Check(
            "snakemake", "hook", "limited", "; ".join(faults), "upgrade jumper-workflows, or take an older Snakemake"
        )
    return Check("snakemake", "hook", "ok", ", ".join(patch.name for patch in PATCHES))


def _snakemake_version() -> str | None:
    try:
        return importlib.metadata.version("snakemake")
    except importlib.metadata.PackageNotFoundError:
        return None


#: extra -> what it brings
EXTRAS = {
    "base": ("psutil", "pyyaml", "msgspec", "click", "rich"),
    "report": ("pandas", "pyarrow", "jinja2", "holoviews", "bokeh", "matplotlib"),
    "dask": ("dask", "distributed", "cloudpickle"),
    "snakemake": ("snakemake",),
    "gpu": ("nvidia-ml-py",),
    "ipython": ("ipython",),
}


def extra(name: str) -> Check:
    """Whether the packages of an extra are installed, with their versions."""
    found: list[str] = []
    lacking: list[str] = []
    for package in EXTRAS[name]:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lacking.append(package)
    if not lacking:
        return Check("packages", name, "ok", ", ".join(found))
    install = "jumper-workflows" if name == "base" else f"'jumper-workflows[{name}]'"
    text = f"without {', '.join(lacking)}" + (f"; {', '.join(found)}" if found else "")
    return Check("packages", name, "missing", text, f"pip install {install}")


def gpu_library() -> Check:
    """Whether NVIDIA's management library answers (NVML)."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Check("devices", "NVIDIA", "none", "no libnvidia-ml.so.1 on this machine")
    count = ctypes.c_uint()
    if (code := nvml.nvmlInit_v2()) or (code := nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))):
        return Check("devices", "NVIDIA", "missing", f"NVML error {code}", "does `nvidia-smi` work here?")
    nvml.nvmlShutdown()
    return Check("devices", "NVIDIA", "ok" if count.value else "none", f"{count.value} devices")


CHECKS: tuple[Callable[[], Check], ...] = (
    native_extension, launcher, agent, levels, collectors,
    proc_folder, other_processes, children_files, cpu_clocks, io_file, shared_pages, peak_reset,
    cgroup_files, memory_limit, spool, *(lambda name=name: extra(name) for name in EXTRAS), gpu_library,
    snakemake_way, snakemake_plugins, snakemake_hook,
)  # fmt: skip


def examine() -> list[Check]:
    """Run all checks.

    Examples
    --------
    >>> {check.area for check in examine()} >= {"engines", "kernel", "packages"}
    True
    """
    return [check() for check in CHECKS]


def as_document(checks: Iterable[Check]) -> dict[str, Any]:
    """Return what `jumper doctor --json` prints."""
    return {
        "schema": SCHEMA,
        "jumper": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "node": node_name(),
        "checks": [asdict(check) for check in checks],
    }


def as_tables(checks: Iterable[Check]) -> list[Table]:
    """Return the checks for a person: what was found, then what to do."""
    from rich.markup import escape
    from rich.table import Table

    found = Table(title=f"jumper {VERSION} on {escape(node_name())}", title_justify="left", box=None)
    steps = Table(title="What would help", title_justify="left", box=None, show_header=False)
    for column in ("", "", "status", "found"):
        found.add_column(column, overflow="fold")
    area = ""
    for check in checks:
        first = check.area if check.area != area else ""
        area = check.area
        color = COLORS[check.status]
        found.add_row(f"[bold]{first}", check.name, f"[{color}]{check.status}", escape(check.found))
        if check.next_step and check.status != "ok":
            steps.add_row(check.name, escape(check.next_step))
    return [found, steps] if steps.row_count else [found]


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder by its longest mount point; proc_pid_mounts(5)."""
    best, kind = "", ""
    for line in _text("/proc/mounts").splitlines():
        _, point, name, *_ = line.split()
        if len(point) >= len(best) and folder.is_relative_to(point.replace("\\040", " ")):
            best, kind = point, name
    return kind
