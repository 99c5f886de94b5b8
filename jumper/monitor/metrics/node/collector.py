"""The `node` collector: CPU by core, memory, disks and network of the whole machine, from /proc."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jumper.monitor.metrics.common import CollectorBackend
from jumper.monitor.metrics.context import CollectionContext
from jumper.monitor.metrics.process.procfs import TICK_NS, ProcFS

Counters = dict[str, int | None]

SECTOR = 512
#: whole disks only: partitions and device-mapper layers would count a byte twice
_DISK = re.compile(r"^(?:(?:sd|hd|vd|xvd)[a-z]+|nvme\d+n\d+|mmcblk\d+)$")


def parse_cpu(data: bytes) -> Counters:
    """Parse /proc/stat: busy time without idle and iowait, in all and by core, in ns.

    Guest time is part of user time already. Source: proc_stat(5).

    Examples
    --------
    >>> parse_cpu(b"cpu  1 2 3 4 5 6 7 8 9 0\\ncpu0 1 2 3 4 5 6 7 8 9 0\\n")["cpu_ns"] // TICK_NS
    27
    """
    found: Counters = {}
    for line in data.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *words = line.split()
        user, nice, system, _, iowait, irq, softirq, steal = [int(w) * TICK_NS for w in words[:8]]
        busy = user + nice + system + irq + softirq + steal
        if name == b"cpu":
            found["cpu_ns"] = busy
            found["cpu_user_ns"] = user + nice
            found["cpu_system_ns"] = system + irq + softirq
            found["cpu_iowait_ns"] = iowait
        else:
            found[f"cpu_{int(name[3:])}_ns"] = busy
    return found


def parse_memory(data: bytes) -> Counters:
    """Parse /proc/meminfo: memory in use as MemTotal - MemAvailable, swap in use; bytes."""
    rows = {name: int(kib) * 1024 for name, kib in re.findall(rb"^(\w+):\s+(\d+)", data, re.MULTILINE)}
    if b"MemTotal" not in rows:
        return {}
    available = rows.get(b"MemAvailable", rows.get(b"MemFree", 0))
    return {
        "memory_bytes": rows[b"MemTotal"] - available,
        "swap_bytes": rows.get(b"SwapTotal", 0) - rows.get(b"SwapFree", 0),
    }


def parse_disks(data: bytes) -> Counters:
    """Parse /proc/diskstats, whole disks only. Source: Documentation/admin-guide/iostats.rst."""
    totals = [0, 0, 0, 0]
    for line in data.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) > 9 and _DISK.match(words[2]):
            for index, column in enumerate((3, 5, 7, 9)):
                totals[index] += int(words[column])
    reads, sectors_read, writes, sectors_written = totals
    return {
        "reads": reads,
        "read_bytes": sectors_read * SECTOR,
        "writes": writes,
        "write_bytes": sectors_written * SECTOR,
    }


def parse_network(data: bytes) -> Counters:
    """Parse /proc/net/dev without the loopback. Source: proc_net(5)."""
    received = sent = packets_received = packets_sent = 0
    for line in data.decode("utf-8", "replace").splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        words = rest.split()
        if name.strip() == "lo" or len(words) < 10:
            continue
        received += int(words[0])
        packets_received += int(words[1])
        sent += int(words[8])
        packets_sent += int(words[9])
    return {
        "net_sent_bytes": sent,
        "net_recv_bytes": received,
        "net_sent_packets": packets_sent,
        "net_recv_packets": packets_received,
    }


def parse_pressure(name: str) -> Callable[[bytes], Counters]:
    """Return a parser of /proc/pressure/NAME: time in which some task waited, in ns.

    Source: Documentation/accounting/psi.rst; ``total=`` is in microseconds.

    Examples
    --------
    >>> parse_pressure("cpu")(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\\nfull total=1\\n")
    {'cpu_pressure_ns': 7000}
    """

    def parse(data: bytes) -> Counters:
        found = re.search(rb"some .*total=(\d+)", data)
        return {f"{name}_pressure_ns": int(found[1]) * 1000 if found else None}

    return parse


_FILES: tuple[tuple[str, Callable[[bytes], Counters]], ...] = (
    ("stat", parse_cpu),
    ("meminfo", parse_memory),
    ("diskstats", parse_disks),
    ("net/dev", parse_network),
    ("pressure/cpu", parse_pressure("cpu")),
    ("pressure/memory", parse_pressure("memory")),
    ("pressure/io", parse_pressure("io")),
)


class NodeCollector(CollectorBackend):
    """Counters of the machine for the level `system`, in base units.

    Parameters
    ----------
    root : str
        Where /proc is.

    Examples
    --------
    >>> from jumper.monitor.metrics.context import new_context
    >>> context = new_context(0, 0)
    >>> NodeCollector().snapshot(context)
    >>> context["counters"]["system"]["memory_bytes"] > 0
    True
    """

    name = "node"

    def __init__(self, root: str = "/proc") -> None:
        self._fs = ProcFS(root)
        self._levels: tuple[str, ...] = ("system",)

    def watch(self, levels: Any) -> None:
        """Say which levels are watched; nothing is read where `system` is not among them."""
        self._levels = tuple(levels)

    def snapshot(self, context: CollectionContext) -> None:
        """Read the node's files once."""
        if "system" not in self._levels:
            return
        counters: Counters = {}
        for name, parse in _FILES:
            data = self._fs.read(name, 1 << 20)
            if data:
                counters.update(parse(data))
        if not counters:
            counters = self._psutil()
        context["counters"]["system"] = counters

    def collect(self, level: str, context: CollectionContext) -> Counters:
        """Return the node's counters for `system`, nothing for other levels."""
        return context["counters"].get("system", {}) if level == "system" else {}

    @staticmethod
    def _psutil() -> Counters:
        """The same, as far as psutil has it, where there is no /proc."""
        import psutil

        cores = psutil.cpu_times(percpu=True)
        busy = [round((c.user + c.system + getattr(c, "nice", 0.0)) * 1e9) for c in cores]
        memory, disks, network = psutil.virtual_memory(), psutil.disk_io_counters(), psutil.net_io_counters()
        counters: Counters = {"cpu_ns": sum(busy), "memory_bytes": memory.total - memory.available}
        counters["swap_bytes"] = psutil.swap_memory().used
        counters.update({f"cpu_{index}_ns": value for index, value in enumerate(busy)})
        if disks is not None:
            counters.update(read_bytes=disks.read_bytes, write_bytes=disks.write_bytes)
            counters.update(reads=disks.read_count, writes=disks.write_count)
        if network is not None:
            counters.update(net_sent_bytes=network.bytes_sent, net_recv_bytes=network.bytes_recv)
            counters.update(net_sent_packets=network.packets_sent, net_recv_packets=network.packets_recv)
        return counters
