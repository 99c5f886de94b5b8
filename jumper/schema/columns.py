"""The columns of the samples: name, unit, kind, how they add up, and where they come from.

``COLUMNS`` lists what is stored (cumulative counters and gauges in base units);
``DERIVED`` lists the columns of the documents (percent, GiB, rates) that are
computed from them and never stored. Nobody spells a column twice: collectors,
segments, readers and documentation all take it from here.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["key", "counter", "gauge", "peak", "rate"]
Over = Literal["sum", "max", "min", "mean", "first", "none"]

#: Streams of a run. The first four are the levels of the documents.
STREAMS = {
    "process": "the target and its whole tree: one row a tick and target",
    "user": "all processes of the user: one row a tick",
    "system": "the whole machine: one row a tick",
    "slurm": "the processes of this Slurm job on this node: one row a tick",
    "thread": "threads of the target: one row a tick and thread",
    "monitor": "the monitor's own cost: one row a tick",
    "worker": "who used the CPU of a Dask worker's process, since it is measured: one row a second",
}


class Column(NamedTuple):
    """One column of the samples.

    Attributes
    ----------
    name : str
    unit : str
        Base unit: ``ns``, ``bytes``, ``1``; for derived columns the documents' unit.
    kind : {"key", "counter", "gauge", "peak", "rate"}
        A counter only grows; a gauge is a value at an instant; a peak is a
        high-water mark; a rate is derived from a counter.
    scope : tuple of str
        Streams that carry it.
    over_processes, over_nodes, over_time : {"sum", "max", "min", "mean", "first", "none"}
        How it adds up. For counters, over time, ``sum`` means: of the differences.
    source : str
        Where the kernel (or who else) keeps the number.
    dtype : {"i8", "f8"}
        Storage type in segments, little-endian 64 bit.
    """

    name: str
    unit: str
    kind: Kind
    scope: tuple[str, ...]
    over_processes: Over
    over_nodes: Over
    over_time: Over
    source: str
    dtype: Literal["i8", "f8"] = "i8"


_TREES = ("process", "user", "slurm")
_LEVELS = (*_TREES, "system")


def _counter(name: str, unit: str, scope: tuple[str, ...], source: str) -> Column:
    return Column(name, unit, "counter", scope, "sum", "sum", "sum", source)


def _gauge(name: str, unit: str, scope: tuple[str, ...], source: str) -> Column:
    return Column(name, unit, "gauge", scope, "sum", "sum", "max", source)


def _peak(name: str, source: str) -> Column:
    return Column(name, "bytes", "peak", ("process",), "sum", "sum", "max", source)


def _key(name: str, unit: str, scope: tuple[str, ...], source: str) -> Column:
    return Column(name, unit, "key", scope, "none", "none", "none", source)


COLUMNS: tuple[Column, ...] = (
    _key("mono_ns", "ns", tuple(STREAMS), "CLOCK_MONOTONIC at the start of the tick"),
    _key("pid", "1", ("process", "thread", "monitor", "worker"),
         "process id of the target (of the monitor in `monitor`)"),
    _key("tid", "1", ("thread",), "kernel thread id"),
    _counter("cpu_ns", "ns", (*_LEVELS, "thread", "monitor", "worker"),
             "process CPU clock of the living + cutime and cstime of who reaped the dead; "
             "system: /proc/stat without idle and iowait; thread: schedstat; worker: sum of its parts"),
    _counter("cpu_user_ns", "ns", _LEVELS, "/proc/PID/stat utime+cutime; system: /proc/stat user+nice"),
    _counter("cpu_system_ns", "ns", _LEVELS, "/proc/PID/stat stime+cstime; system: /proc/stat system+irq+softirq"),
    _counter("cpu_iowait_ns", "ns", ("system",), "/proc/stat iowait"),
    _gauge("rss_bytes", "bytes", (*_TREES, "monitor"), "sum of VmRSS; shared pages count in each process"),
    _gauge("pss_bytes", "bytes", _TREES, "sum of Pss in smaps_rollup, last reading of each process; "
           "null while a process has none"),
    _gauge("memory_bytes", "bytes", _LEVELS,
           "memory in use, shared pages once: RSS less what PSS showed to be shared; system: MemTotal - MemAvailable"),
    _peak("rss_peak_bytes", "highest rss_bytes since the previous row, early samples of new processes included"),
    _peak("memory_peak_bytes", "highest memory_bytes since the previous row, early samples included, "
          "and what a high-water mark adds to it"),
    _peak("hwm_bytes", "sum of VmHWM of all processes that lived since the previous row: an upper bound"),
    Column("hwm_max_bytes", "bytes", "peak", ("process",), "max", "max", "max", "largest VmHWM of a single process"),
    _gauge("swap_bytes", "bytes", _LEVELS, "sum of VmSwap; system: SwapTotal - SwapFree"),
    _counter("read_bytes", "bytes", (*_LEVELS, "thread"), "/proc/PID/io read_bytes (storage); system: /proc/diskstats"),
    _counter("write_bytes", "bytes", (*_LEVELS, "thread"),
             "/proc/PID/io write_bytes (storage); system: /proc/diskstats"),
    _counter("read_chars", "bytes", (*_TREES, "thread"), "/proc/PID/io rchar (through system calls)"),
    _counter("write_chars", "bytes", (*_TREES, "thread"), "/proc/PID/io wchar (through system calls)"),
    _counter("reads", "1", _LEVELS, "/proc/PID/io syscr; system: /proc/diskstats reads completed"),
    _counter("writes", "1", _LEVELS, "/proc/PID/io syscw; system: /proc/diskstats writes completed"),
    _gauge("processes", "1", _TREES, "number of processes"),
    _gauge("threads", "1", _TREES, "sum of num_threads"),
    _gauge("pss_missing", "1", _TREES, "processes of a tree of several whose sharing is not known yet"),
    _counter("unseen_faults", "1", ("process",),
             "page faults (cminflt of /proc/PID/stat) of children that died unseen: how much they may have touched"),
    _counter("processes_seen", "1", ("process",), "how many processes it has had, as far as seen"),
    _counter("lost_cpu_ns", "ns", _TREES, "last seen CPU of children whose parent never collected it: a lower bound"),
    _counter("net_sent_bytes", "bytes", ("system",), "/proc/net/dev without lo"),
    _counter("net_recv_bytes", "bytes", ("system",), "/proc/net/dev without lo"),
    _counter("net_sent_packets", "1", ("system",), "/proc/net/dev without lo"),
    _counter("net_recv_packets", "1", ("system",), "/proc/net/dev without lo"),
    _counter("cpu_pressure_ns", "ns", ("system",), "/proc/pressure/cpu: time in which some waited for a CPU"),
    _counter("memory_pressure_ns", "ns", ("system",), "/proc/pressure/memory: time in which some waited for memory"),
    _counter("io_pressure_ns", "ns", ("system",), "/proc/pressure/io: time in which some waited for I/O"),
    _counter("ticks", "1", ("monitor",), "ticks taken"),
    _counter("missed", "1", ("monitor",), "ticks of the schedule that could not be taken"),
    Column("late_ns", "ns", "gauge", ("monitor",), "max", "max", "max", "start of this tick after its due time"),
    _counter("pss_cpu_ns", "ns", ("monitor",), "CPU time of the thread that reads PSS (part of cpu_ns)"),
    _counter("dropped", "1", ("monitor",), "blocks that could not be written, rows that there was no room for"),
    _counter("cpu_tasks_ns", "ns", ("worker",), "clocks of threads while they ran tasks, coroutines between awaits, "
             "children of tasks, helper threads of tasks that were alone"),
    _counter("cpu_pool_ns", "ns", ("worker",), "the same threads around the calls: what Dask does for each task"),
    _counter("cpu_loop_ns", "ns", ("worker",), "threads of Dask's event loop and its profiler, without coroutines"),
    _counter("cpu_offload_ns", "ns", ("worker",), "Dask's offload threads: what they serialize and spill"),
    _counter("cpu_own_ns", "ns", ("worker",), "the monitor's threads and processes"),
    _counter("cpu_unattributed_ns", "ns", ("worker",), "the process's clock and its children beyond all these: "
             "threads of libraries and of users, children that nobody was seen to start"),
    _counter("gpu_busy_ns", "ns", _LEVELS, "utilisation x time, summed over devices; trees: that of their processes"),
    _counter("gpu_band_ns", "ns", _LEVELS, "the same of device memory being read or written"),
    _gauge("gpu_memory_bytes", "bytes", _LEVELS, "device memory in use; trees: by their processes"),
    _counter("gpu_energy_uj", "uJ", _LEVELS, "the devices' own energy counters; trees: their part of the busy time"),
    _gauge("gpu_power_uw", "uW", ("system",), "power that the devices draw"),
    Column("gpu_temperature_c", "C", "gauge", ("system",), "max", "max", "max", "hottest device"),
    _counter("energy_uj", "uJ", _LEVELS, "RAPL, CPU packages and their memory; trees: their part of the CPU time used"),
    _counter("energy_dram_uj", "uJ", ("system",), "RAPL, memory alone (part of energy_uj)"),
    _gauge("cgroup_memory_bytes", "bytes", ("process",),
           "memory.current of the target's control group; version 1: memory.usage_in_bytes"),
    Column("cgroup_memory_peak_bytes", "bytes", "peak", ("process",), "max", "sum", "max",
           "memory.peak: since the group was made; version 1: memory.max_usage_in_bytes"),
    Column("cgroup_memory_limit_bytes", "bytes", "gauge", ("process",), "min", "sum", "min",
           "smallest memory.max on the way to the root; version 1: memory.limit_in_bytes"),
    _gauge("cgroup_swap_bytes", "bytes", ("process",),
           "memory.swap.current; version 1: memory.memsw.usage_in_bytes beyond memory.usage_in_bytes"),
    _counter("cgroup_limit_hits", "1", ("process",),
             "how often the group was at its limit: max of memory.events; version 1: memory.failcnt"),
    _counter("cgroup_oom_kills", "1", ("process",), "oom_kill of memory.events; version 1: of memory.oom_control"),
    _counter("cgroup_pressure_ns", "ns", ("process",), "memory.pressure: time in which some waited for memory"),
    _counter("cgroup_cpu_ns", "ns", ("process",), "usage_usec of cpu.stat; version 1: cpuacct.usage"),
    _counter("cgroup_throttled_ns", "ns", ("process",), "throttled_usec of cpu.stat; version 1: throttled_time"),
    _counter("netns_sent_bytes", "bytes", ("process",),
             "/proc/PID/net/dev without lo, of the network namespaces of the tree that are not the node's"),
    _counter("netns_recv_bytes", "bytes", ("process",), "the same, received"),
    _counter("netns_sent_packets", "1", ("process",), "the same, packets sent"),
    _counter("netns_recv_packets", "1", ("process",), "the same, packets received"),
)  # fmt: skip

#: Stored columns of one device each; # stands for its number.
DEVICE_COLUMNS: tuple[Column, ...] = tuple(column._replace(over_nodes="none") for column in (
    _counter("cpu_#_ns", "ns", ("system",), "/proc/stat, core #"),
    _counter("gpu_#_busy_ns", "ns", _LEVELS, "GPU #: utilisation x time"),
    _counter("gpu_#_band_ns", "ns", _LEVELS, "GPU #: utilisation of its memory x time"),
    _gauge("gpu_#_memory_bytes", "bytes", _LEVELS, "GPU #: memory in use"),
    _counter("gpu_#_energy_uj", "uJ", _LEVELS, "GPU #: its energy counter"),
    _gauge("gpu_#_power_uw", "uW", ("system",), "GPU #: power"),
    Column("gpu_#_temperature_c", "C", "gauge", ("system",), "max", "max", "max", "GPU #: temperature"),
    _counter("energy_#_uj", "uJ", ("system",), "RAPL, CPU package #"),
))  # fmt: skip


def _doc(name: str, unit: str, kind: Kind, nodes: Over, source: str) -> Column:
    return Column(name, unit, kind, _LEVELS, "sum", nodes, "mean", source, "f8")


def _gpu(name: str, unit: str, kind: Kind, source: str) -> tuple[Column, ...]:
    return (
        _doc(f"{name}_avg", unit, kind, "mean", f"{source}: mean of the devices"),
        _doc(f"{name}_min", unit, kind, "min", f"{source}: lowest"),
        _doc(f"{name}_max", unit, kind, "max", f"{source}: highest"),
    )


DERIVED: tuple[Column, ...] = (
    _doc("cpu_util_avg", "%", "rate", "mean", "difference of cpu_ns over time and CPUs; system: mean of cores"),
    _doc("cpu_util_min", "%", "rate", "min", "lowest core"),
    _doc("cpu_util_max", "%", "rate", "max", "highest core"),
    _doc("memory", "GiB", "gauge", "sum", "memory_bytes / 2**30"),
    _doc("io_read", "bytes/s", "rate", "sum", "difference of read_bytes over time"),
    _doc("io_write", "bytes/s", "rate", "sum", "difference of write_bytes over time"),
    _doc("io_read_count", "1/s", "rate", "sum", "difference of reads over time"),
    _doc("io_write_count", "1/s", "rate", "sum", "difference of writes over time"),
    _doc("net_bytes_sent", "bytes/s", "rate", "sum", "difference of net_sent_bytes over time"),
    _doc("net_bytes_recv", "bytes/s", "rate", "sum", "difference of net_recv_bytes over time"),
    _doc("net_packets_sent", "1/s", "rate", "sum", "difference of net_sent_packets over time"),
    _doc("net_packets_recv", "1/s", "rate", "sum", "difference of net_recv_packets over time"),
    *_gpu("gpu_util", "%", "rate", "difference of gpu_#_busy_ns over time"),
    *_gpu("gpu_band", "%", "rate", "difference of gpu_#_band_ns over time"),
    *_gpu("gpu_mem", "GiB", "gauge", "gpu_#_memory_bytes / 2**30"),
)  # fmt: skip


def stored_columns(stream: str) -> tuple[Column, ...]:
    """Return the built-in stored columns of a stream, in storage order.

    Examples
    --------
    >>> [c.name for c in stored_columns("thread")][:4]
    ['mono_ns', 'pid', 'tid', 'cpu_ns']
    """
    return tuple(c for c in COLUMNS if stream in c.scope)


def declared(name: str) -> Column | None:
    """Return the declaration of a stored column, those of single devices included; None where there is none.

    Examples
    --------
    >>> declared("gpu_12_busy_ns").unit, declared("cpu_ns").kind, declared("my_temperature")
    ('ns', 'counter', None)
    """
    return _BY_NAME.get(_NUMBER.sub("_#_", name, count=1))


def is_derived(name: str) -> bool:
    """Return whether a column of a level is computed from stored ones (and so never stored).

    Examples
    --------
    >>> is_derived("cpu_util_3"), is_derived("gpu_band_avg"), is_derived("memory"), is_derived("my_temperature")
    (True, True, True, False)
    """
    return name in _DERIVED_NAMES or _DERIVED_DEVICE.fullmatch(name) is not None


_BY_NAME = {column.name: column for column in (*COLUMNS, *DEVICE_COLUMNS)}
_NUMBER = re.compile(r"_\d+_")
_DERIVED_NAMES = frozenset(c.name for c in DERIVED)
_DERIVED_DEVICE = re.compile(r"(cpu_util|gpu_util|gpu_band|gpu_mem)_\d+")
