"""One attempt of a job while it runs: its processes or, for Python of a rule, its thread; and its records.

A job that runs in a process of its own costs what the kernel tells the one who
waits for it. The Python of a rule (`run:`) runs in Snakemake's process: it costs
the difference between two readings.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from jumper.monitor.zombie import await_end
from jumper_snakemake.beyond import Beyond
from jumper_snakemake.child import IO, Child
from jumper_snakemake.ends import OOM
from jumper_snakemake.jobs import reason_of
from jumper_snakemake.readings import Readings, open_io, own_memory
from jumper_snakemake.settings import TAG
from jumper_snakemake.site import Site, Watch

if TYPE_CHECKING:
    from jumper.monitor.roots import Most
    from jumper_snakemake.looks import Looked

#: how a shell or its waiter tells of SIGKILL
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class Attempt:
    """One attempt of a job (of a repeat of it, where it is benchmarked several times).

    Parameters
    ----------
    site : Site
    facts : dict
        As :func:`jumper_snakemake.jobs.facts_of` gives them.
    outer, inner : int
        See :func:`jumper_snakemake.jobs.attempt_of`.
    in_process : bool
        It is Python that runs in this process.
    """

    def __init__(self, site: Site, facts: dict[str, Any], outer: int, inner: int, *, in_process: bool) -> None:
        self.site = site
        self.facts = facts
        self.outer, self.inner, self.repeat = outer, inner, 1
        self.in_process = in_process
        self.children: list[Child] = []
        self.record: object | None = None
        self.looked: list[Looked] = []
        self.start_ns = time.monotonic_ns()
        self.stop_ns: int | None = None
        self.shared = self.is_service = False
        self._told = self._over = self._joined = False
        self._watch: Watch | None = None
        self._base: Readings | None = None
        self._end: Readings | None = None
        self._own_most: Most | None = None
        self._who = f"{os.getpid()}.{threading.get_native_id()}"
        self._beyond = Beyond(site)
        self._oom_kills = site.oom_kills()
        try:
            self._join()
        except Exception as error:
            site.failed("a job's start", error)

    @property
    def attempt_id(self) -> str:
        """`outer.inner.repeat`."""
        return f"{self.outer}.{self.inner}.{self.repeat}"

    @property
    def mark(self) -> str:
        """The value of the variable :data:`TAG` in the environment of the processes of this attempt."""
        return f"{self._who}.{self.start_ns}"

    def child(self, pid: int, start_ns: int, own_peak: bool) -> None:
        """Take a process that was started for this attempt since start_ns; whether its high-water mark is its own."""
        try:
            # opened while it lives: a zombie's cannot be, but read
            child = Child(pid, start_ns, open_io(pid), 0 if own_peak else own_memory()[1], f"{TAG}={self.mark}")
            self.children.append(child)
            nodes = self.site.nodes()  # these follow what has the tag and is not in the tree
            if not self.in_process:
                child.watch = self.site.watch(pid, child.tag if nodes is None else None, own_peak)
            if nodes is not None:
                self._beyond.follow(str(self.facts["key"]), self.attempt_id, child.tag)
        except Exception as error:
            self.site.failed("a job's process", error)

    def belongs(self, pid: int, record: object) -> None:
        """Say which benchmark record a process is measured for; a new one is the next repeat."""
        if self.record is not None and record is not self.record:
            mine = [child for child in self.children if child.pid == pid and child.ended is None]
            self.children = [child for child in self.children if child not in mine]
            self.next_repeat(record)
            self.children = mine
            for child in mine:
                self._beyond.follow(str(self.facts["key"]), self.attempt_id, child.tag)
        self.record = record

    def next_repeat(self, record: object | None) -> None:
        """End this repeat and begin the next."""
        if self.record is not None:
            self.end(None)
            self.repeat += 1
            self.children, self.looked, self._beyond = [], [], Beyond(self.site)
            self.start_ns, self.stop_ns = time.monotonic_ns(), None
            self._told = self._over = False
            try:
                self._join()
            except Exception as error:
                self.site.failed("a repeat's start", error)
        self.record = record

    def await_child(self, pid: int) -> int | None:
        """Wait until a process of this attempt has ended, and read what it cost before it is reaped.

        Returns its exit status or its negative signal; None where somebody else has to wait for it.
        """
        for child in self.children:
            if child.pid == pid and child.ended is None:
                break
        else:
            return None
        try:
            self.tell_start()
        except Exception as error:
            self.site.failed("a job's start", error)
        try:
            child.ended = await_end(pid)
            child.leave()
            if not self.in_process:
                self._beyond.end()
        except Exception as error:
            self.site.failed("a job's end", error)
        return None if child.ended is None else child.ended.status

    def tell_start(self) -> None:
        """Put the start into the run."""
        if not self._told:
            self._told = True
            start_ns = self.children[0].start_ns if self.children and not self.in_process else self.start_ns
            thread = threading.get_native_id()
            self.site.note({**self.facts, **self._record("start", start_ns), "thread": thread, **self._base_facts()})

    def end(self, failure: BaseException | None) -> None:
        """Put the end into the run; safe to call twice."""
        if self._over:
            return
        self._over = True
        try:
            self.stop_ns = self._leave()
            self.tell_start()
            self.site.note(self._stop(failure, self.stop_ns))
        except Exception as error:
            self.site.failed("a job's end", error)

    def _stop(self, failure: BaseException | None, stop_ns: int) -> dict[str, Any]:
        status = None
        for child in self.children:
            if child.ended is not None:
                status = child.ended.status
        stop = {**self._record("stop", stop_ns), "state": "done", "flags": []}
        if status is not None:
            stop["exit_code"] = status
        if self.in_process and self.shared:
            stop["flags"].append("shared")
        if failure is not None:
            stop["reason"] = reason_of(status, failure)
            # a service is ended by Snakemake when nobody needs it any more
            if not (self.is_service and status == -signal.SIGTERM):
                stop["state"] = "cancelled" if isinstance(failure, (KeyboardInterrupt, SystemExit)) else "failed"
            if status in _KILLED and (self.site.oom_kills(now=True) or 0) > (self._oom_kills or 0):
                stop["flags"].append(OOM)
                stop["reason"] = f"{stop['reason']}: the kernel's OOM killer struck meanwhile"
        if self._beyond.nodes:
            stop["nodes"] = self._beyond.nodes
        if self.looked:
            stop.update(vms_peak_bytes=self.most_looked("vms"), uss_peak_bytes=self.most_looked("uss"))
        beside = self._beside()
        if beside is not None:
            stop["memory_beside_bytes"] = beside
        stop.update(self._process_cost() if self.in_process else self._children_cost())
        return stop

    def measures(self, pid: int | None) -> bool:
        """Whether one of its processes is measured; without a pid: whether it is, as a whole."""
        if pid is None:
            return self._base is not None if self.in_process else self._joined
        return any(child.pid == pid and child.watch is not None for child in self.children)

    @property
    def known(self) -> bool:
        """Whether what it has cost until now is known."""
        if self.in_process:
            return self._end is not None
        return any(child.ended is not None and child.ended.cpu_user_ns is not None for child in self.children)

    def wall_s(self) -> float | None:
        """Return seconds from its start to its end: of its first process to that of the last one."""
        if self.in_process:
            return None if self.stop_ns is None else (self.stop_ns - self.start_ns) / 1e9
        ends = [child.ended.mono_ns for child in self.children if child.ended is not None]
        return (max(ends) - min(child.start_ns for child in self.children)) / 1e9 if ends else None

    @property
    def cpu_s(self) -> float:
        """CPU seconds of what has ended so far; of the whole attempt after its end."""
        if self.in_process:
            own_ns = self._own_cpu_ns() if self._end is not None else 0
        else:
            own_ns = sum(child.cpu_ns for child in self.children)
        return (own_ns + self._beyond.cpu_ns) / 1e9

    def rss_peak(self) -> int | None:
        """Return the highest sum of RSS of its processes on one node, in bytes, as far as it was seen or told."""
        return self._beyond.highest(_highest([most.rss for most in self._seen()] + self._marks()), "rss")

    def _seen(self) -> list[Most]:
        return [most for most in (self._own_most, *(child.most for child in self.children)) if most is not None]

    def _marks(self) -> list[int | None]:
        """Return high-water marks of single processes that this attempt alone made."""
        if self.in_process:
            risen = self._base is not None and self._end is not None and self._end.hwm > self._base.hwm
            return [self._end.hwm] if risen and self._end is not None else []
        return [child.most.hwm for child in self.children if child.most] + [child.told_peak for child in self.children]

    def memory_peak(self) -> int | None:
        """Return the highest memory with shared pages counted once, in bytes, as far as it was seen or told."""
        seen = [most.memory for most in self._seen()] + [most.pss for most in self._seen()]
        return self._beyond.highest(_highest(seen + self._marks()), "memory")

    def most_looked(self, name: Literal["vms", "uss", "pss"]) -> int | None:
        """Return the highest of what was looked at, of one process after the other, in bytes; None where nobody did."""
        return _highest([getattr(each, name) for each in self.looked]) if self.looked else None

    def io(self, name: str) -> int | None:
        """Return one of the counters of /proc/PID/io, in bytes or calls."""
        if self.in_process:
            if self._base is None or self._end is None:
                return None
            return self._end.io.get(name, 0) - self._base.io.get(name, 0)
        known = [child.io[name] for child in self.children if name in child.io]
        return sum(known) if known else None

    def _join(self) -> None:
        running = self.site.running
        if running:
            self.shared = True
            for other in tuple(running):
                other.shared = True
        running.add(self)
        self.site.ready()  # what that takes is not the job's time
        if self.in_process:
            self._watch = self.site.watch(os.getpid())
            self._base = Readings.take(self._own_cost_ns(self._watch))
        self.start_ns = time.monotonic_ns()
        self._joined = True

    def _leave(self) -> int:
        self.site.running.discard(self)
        for child in self.children:  # of whom nobody waited
            child.leave()
        if not self.in_process or self._watch is None:
            ends = [child.ended.mono_ns for child in self.children if child.ended is not None]
            return max(ends) if ends else time.monotonic_ns()
        self._end = Readings.take(self._own_cost_ns(self._watch))
        stop_ns = time.monotonic_ns()  # after the sample that was taken for it
        self._own_most = self._watch.finish()
        self._beyond.end()
        return stop_ns

    def _own_cost_ns(self, watch: Watch) -> int:
        return watch.sampler_cpu_ns() + (self.site.looker.cpu_ns if self.site.looker is not None else 0)

    def _record(self, event: str, mono_ns: int) -> dict[str, Any]:
        return {
            "type": "task",
            "event": event,
            "key": self.facts["key"],
            "attempt_id": self.attempt_id,
            "mono_ns": mono_ns,
        }

    def _base_facts(self) -> dict[str, Any]:
        if self.in_process:
            return {} if self._base is None else {"rss_start_bytes": self._base.rss}
        return {"roots": [[child.pid, child.start_ns, child.until_ns] for child in self.children if child.watch]}

    def _children_cost(self) -> dict[str, Any]:
        """Return what its processes cost, as their waiter was told."""
        cost: dict[str, Any] = self._base_facts()
        user_ns = system_ns = maxrss = floor = 0
        for child in self.children:
            ended = child.ended
            if ended is None or ended.cpu_user_ns is None:
                break
            user_ns += ended.cpu_user_ns
            system_ns += ended.cpu_system_ns or 0
            maxrss = max(maxrss, ended.maxrss_bytes or 0)
            floor = max(floor, child.floor_bytes)
        else:
            if self.children:
                cost["rusage"] = {
                    "cpu_user_ns": user_ns,
                    "cpu_system_ns": system_ns,
                    "maxrss_bytes": maxrss,
                    "maxrss_floor_bytes": floor,
                }
        counted = [child.io for child in self.children if child.io]
        if counted:
            cost["io"] = {name: sum(io[name] for io in counted) for name in IO} if len(counted) > 1 else counted[0]
        return cost

    def _process_cost(self) -> dict[str, Any]:
        """Return what its Python cost: of the whole process where it was alone in it, else of its thread."""
        base, end = self._base, self._end
        if base is None or end is None:
            return {}
        cost: dict[str, Any] = {"rss_stop_bytes": end.rss}
        if end.hwm > base.hwm:
            cost["hwm_bytes"] = end.hwm
        if not self.shared:
            first, last = {**base.io, "cpu_ns": base.process_ns}, {**end.io, "cpu_ns": end.process_ns}
            last["cpu_ns"] = max(first["cpu_ns"], last["cpu_ns"] - (end.sampler_ns - base.sampler_ns))
            return {**cost, "base": first, "end": last, "children": {"cpu_ns": end.reaped_ns - base.reaped_ns}}
        children: dict[str, Any] = {"cpu_ns": sum(child.told_cpu_ns for child in self.children)}
        for name in IO:
            children[name] = sum(child.io.get(name, 0) for child in self.children)
        first, last = {**base.thread_io, "cpu_ns": base.thread_ns}, {**end.thread_io, "cpu_ns": end.thread_ns}
        return {**cost, "base": first, "end": last, "children": {**children, "estimated": True}}

    def _beside(self) -> int | None:
        if self.facts.get("external_id") is None:
            return None
        from jumper_snakemake.around import memory_beside

        return memory_beside(self.in_process)

    def _own_cpu_ns(self) -> int:
        cost = self._process_cost()
        return int(cost["end"]["cpu_ns"] - cost["base"]["cpu_ns"] + cost["children"]["cpu_ns"]) if cost else 0


def _highest(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
