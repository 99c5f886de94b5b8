"""A job on several nodes of Slurm: which they are, and an agent on each that follows the job's processes there.

The agents are a step of the job that overlaps the others: it takes no CPUs, memory
or devices from them. All of it happens beside the job, which never waits for it; where
it cannot be had in time, the job is measured on its own node, and says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from jumper.monitor.lines import LineProcess
from jumper.monitor.slurm import nodes_of, step_command, step_environment
from jumper.utilities import node_name
from jumper_snakemake.beyond import Cost
from jumper_snakemake.settings import TAG, VARIABLE
from jumper_snakemake.site import Site
from jumper_snakemake.steps import Parts

#: how long Slurm may take to grant the step, and the agents to answer at the end of a job
BUDGET_S = 5.0


def starts_steps(environment: Mapping[str, str]) -> bool:
    """Return whether this is the batch step of a Slurm job: what it starts by `srun` is none of its descendants.

    Source: srun(1), "OUTPUT ENVIRONMENT VARIABLES": each step has a SLURM_STEP_ID.

    Examples
    --------
    >>> starts_steps({"SLURM_JOB_ID": "7"}), starts_steps({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})
    (True, False)
    """
    return bool(environment.get("SLURM_JOB_ID")) and "SLURM_STEP_ID" not in environment


class Nodes:
    """The nodes of the job that this process runs in, and who follows its attempts there.

    Parameters
    ----------
    site : Site
        Of this process.
    job : str
        Slurm's job id.

    Attributes
    ----------
    names : list of str
        The nodes, once Slurm has told.
    """

    def __init__(self, site: Site, job: str) -> None:
        self._site = site
        self._job = job
        self.names: list[str] = []
        self._parts = Parts(site.engine, site.note, site.settings.interval)
        self._srun: LineProcess | None = None
        self._waiting: list[dict[str, Any]] = []
        self._told: dict[str, dict[int, list[Cost]]] = {}
        self._change = threading.Condition()
        self._over = False
        self._began = time.monotonic()
        self._count = 0
        threading.Thread(target=self._parts.run, name="jumper-parts", daemon=True).start()
        threading.Thread(target=self._start, name="jumper-nodes", daemon=True).start()

    def begin(self, key: str, attempt_id: str, tag: str) -> int:
        """Follow the processes with a tag; return the number of this part."""
        with self._change:
            self._count += 1
            number = self._count
        self._parts.begin(number, key, attempt_id, tag)
        self._send({"cmd": "begin", "number": number, "key": key, "attempt_id": attempt_id, "tag": tag})
        return number

    def end(self, number: int) -> tuple[list[Cost], list[Cost]]:
        """Follow them no more; return what they cost here, and on other nodes as far as these answer in time."""
        self._send({"cmd": "end", "number": number})
        here = self._parts.end(number)
        with self._change:
            until = max(self._began, time.monotonic()) + BUDGET_S if self._told else self._began + BUDGET_S
            self._change.wait_for(lambda: self._has_ended(number), max(0.0, until - time.monotonic()))
            return here, [cost for told in self._told.values() for cost in told.pop(number, ())]

    def _has_ended(self, number: int) -> bool:
        if self._over or not self.names:
            return self._over
        return sum(number in told for told in self._told.values()) >= len(self.names) - 1

    def close(self) -> None:
        """End the agents, whose segments are whole then."""
        self._parts.close()
        with self._change:
            self._over = True
            srun, self._srun = self._srun, None
        if srun is not None:
            srun.end(BUDGET_S)

    def _start(self) -> None:
        following = False
        with self._site.harmless("the nodes of a job"):
            names = nodes_of(self._job)
            others = [name for name in names if name != node_name()]
            if len(others) != len(names) - 1:  # this node has another name for Slurm: batch steps run on the first
                others = names[1:]
            with self._change:
                self.names = names
                if others and not self._over:
                    self._follow(others)
                    following = True
        if not following:
            self._finish()

    def _follow(self, nodes: list[str]) -> None:
        settings = self._site.settings
        config = {
            "run": os.path.basename(settings.run),
            "spool": os.path.join(settings.run, "spool"),
            **{name: getattr(settings, name) for name in ("backend", "interval", "levels")},
        }
        command = step_command(self._job, nodes, "jumper_snakemake.follower", wait_s=round(BUDGET_S))
        environment = step_environment(os.environ, (VARIABLE, TAG))
        self._srun = LineProcess(command, environment, self._hear, self._finish)
        for message in [config, *self._waiting]:
            self._srun.send(message)
        self._waiting.clear()

    def _hear(self, message: dict[str, Any]) -> None:
        node = str(message.get("node"))
        with self._change:
            told = self._told.setdefault(node, {})
            if "number" in message:
                told[int(message["number"])] = [Cost(*cost) for cost in message["costs"]]
            self._change.notify_all()

    def _finish(self) -> None:
        with self._change:
            self._over = True
            self._change.notify_all()

    def _send(self, message: dict[str, Any]) -> None:
        with self._change:
            if self._over:
                return
            if self._srun is None:
                self._waiting.append(message)
            else:
                self._srun.send(message)
