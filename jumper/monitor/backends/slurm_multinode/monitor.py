"""The monitor of all nodes of a Slurm job: an agent on each, their rows on one clock, their hardware summed."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jumper.adapters.data import NodeDataStore
from jumper.monitor.agent_process import MODULE, AgentProcess, agent_environment
from jumper.monitor.backends.base import BaseMonitor, Source
from jumper.monitor.backends.slurm_multinode.fleet import Fleet
from jumper.monitor.backends.slurm_multinode.log import NodeLog
from jumper.monitor.backends.slurm_multinode.node import Node
from jumper.monitor.slurm import (
    get_slurm_nodes,
    job_id,
    job_shares,
    overlaps_devices,
    step_command,
    step_environment,
)

#: says what the events say, at once, to whoever configured logging, else warnings to stderr
_LOG = logging.getLogger("jumper")


class SlurmMultinodeMonitor(BaseMonitor):
    """Sample the job's processes on each of its nodes.

    On every node runs an agent, as a step of the job that takes no CPUs or memory from the others. The
    level ``process`` is all that the job runs there: processes with its id in their environment, and what
    they started. ``data`` has the nodes joined by time, ``nodes`` has each.

    Parameters
    ----------
    log_path : path, optional
        Where samples and events are appended as JSON lines; default: nowhere.
    python_executable : path, optional
        The Python of the agents, in which jumper is installed; default: this one.
    levels, collectors
        As of :class:`jumper.monitor.backends.base.BaseMonitor`.
    ready_s : float, optional
        How long the nodes have to answer, all together.

    Attributes
    ----------
    nodes : NodeDataStore
        The nodes that have answered.
    events : list of dict
        ``node-missing``, ``node-lost`` and ``node-back`` among them, each with its ``node``.
    coverage : dict
        What was expected and what came.
    """

    def __init__(
        self,
        log_path: str | os.PathLike[str] | None = None,
        python_executable: str | os.PathLike[str] | None = None,
        levels: Collection[str] | None = None,
        collectors: str | os.PathLike[str] | None = None,
        *,
        ready_s: float = 10.0,
    ) -> None:
        self.log_path = log_path
        self.python_executable = python_executable
        self.ready_s = ready_s
        self._nodes: list[Node] = []
        self._log: NodeLog | None = None
        self._starting = self._stop_asked = False
        self._owner: int | None = None
        self._devices = False
        super().__init__(levels, collectors)

    @property
    def coverage(self) -> dict[str, Any]:
        """What was expected and what came: ``expected``, ``came``, ``missing`` with reasons, ``gap_s``, and by node."""
        return {
            "expected": len(self._nodes),
            "came": sum(len(node.data) > 0 for node in self._nodes),
            "missing": [f"{node.name}: {node.reason}" for node in self._nodes if node.state == "lost"],
            "gap_s": sum(node.gap_s for node in self._nodes),
            "nodes": {
                node.name: {
                    "state": node.state,
                    "samples": len(node.data),
                    "gap_s": node.gap_s,
                    "clock_error_ns": node.clock_error_ns,
                }
                for node in self._nodes
            },
        }

    def start(self, interval: float = 1.0) -> None:
        """Begin on all nodes; returns when each has answered or failed, or after `ready_s`.

        Parameters
        ----------
        interval : float
            Seconds between samples.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        JumperError
            Where the log cannot be written.
        MonitorUnavailableError
            Where this is no job of Slurm, or none of its nodes answered.
        """
        if self.running or self._starting:
            return
        self._starting, self._stop_asked, self._owner = True, False, os.getpid()
        try:
            super().start(interval)
        except BaseException:
            self._end()
            raise
        finally:
            self._starting = False
        if self._stop_asked:  # by a signal, or another thread, before there was what to stop
            self.stop()

    def stop(self) -> None:
        """Take the last samples and end all agents; safe to call twice, before and during :meth:`start`."""
        if os.getpid() != self._owner:  # it was not started, or this is a fork, which has no say
            return
        self._stop_asked = True
        if self.running and self._source is not None:
            self._end()
            self._finish()

    def _make(self) -> Source:
        job, names = job_id(), get_slurm_nodes()
        shares, self._devices = job_shares(job), overlaps_devices()
        if self.log_path is not None:
            self._log = NodeLog(self.log_path, {"job": job, "interval": self.interval, "nodes": names})
        assert self.start_time is not None
        start_time = self.start_time

        def make(name: str, stream: Callable[[str, Mapping[str, Any]], None]) -> AgentProcess:
            return self._agent(job, name, shares.get(name), stream)

        self._nodes = [Node(name, make, self.interval, start_time, self._sample, self._event) for name in names]
        fleet = Fleet(self._nodes, self.ready_s, self._every_look, self._joined)
        if self._stop_asked:
            fleet.stop()
        return fleet

    def _agent(
        self, job: str, node: str, share: Mapping[str, int] | None, stream: Callable[[str, Mapping[str, Any]], None]
    ) -> AgentProcess:
        python = os.fspath(self.python_executable or sys.executable)
        environment = dict(os.environ) if self.python_executable else agent_environment(os.environ)
        return AgentProcess(
            0,
            self.interval,
            self.levels,
            self.config,
            stream=stream,
            note=lambda record: self._note({**record, "node": node}),
            tag=f"SLURM_JOB_ID={job}",
            job=share,
            command=step_command(job, [node], MODULE, python, devices=self._devices),
            environment=step_environment(environment),
        )

    def _reset(self) -> None:
        self.nodes = NodeDataStore()
        self.data = self.nodes.joined()

    def _joined(self, node: Node) -> None:
        assert node.info is not None
        self.nodes.register_node(node.info, node.data)
        if self._log is not None:
            self._log.node(node.info)
        self._aggregate_hardware_info()

    def _aggregate_hardware_info(self) -> None:
        infos = list(self.nodes.hardware.values())
        self.num_cpus = sum(info.num_cpus for info in infos)
        self.num_system_cpus = sum(info.num_system_cpus for info in infos)
        self.num_gpus = sum(info.num_gpus for info in infos)
        self.gpu_memory = max(info.gpu_memory for info in infos)
        self.gpu_name = ", ".join(dict.fromkeys(info.gpu_name for info in infos if info.gpu_name))
        self.cpu_handles = [handle for info in infos for handle in info.cpu_handles]
        self.memory_limits = {
            level: sum(info.memory_limits[level] for info in infos) for level in infos[0].memory_limits
        }

    def _sample(self, node: str, level: str, row: Mapping[str, Any]) -> None:
        if self._log is not None:
            self._log.sample(node, level, row)

    def _event(self, node: str | None, kind: str, text: str) -> None:
        of_node = {"node": node, "text": f"{node}: {text}"} if node is not None else {"text": text}
        _LOG.log(logging.INFO if kind == "node-back" else logging.WARNING, "%s: %s", kind, of_node["text"])
        self._note({
            "type": "event", "kind": kind, **of_node, "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(),
        })  # fmt: skip

    def _note(self, record: Mapping[str, Any]) -> None:
        super()._note(record)
        if self._log is not None:
            self._log.event(record)

    def _every_look(self) -> None:
        if self._log is not None:
            self._log.look()
            if self._log.reason is not None:
                reason, self._log = self._log.reason, None
                self._event(None, "log-lost", reason)

    def _end(self) -> None:
        if self._source is not None:
            self._source.stop()
        self._close_log()

    def _ended(self, reason: str | None) -> None:
        super()._ended(reason)
        self._event(None, "monitor-lost", str(reason))
        self._close_log()

    def _close_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()
