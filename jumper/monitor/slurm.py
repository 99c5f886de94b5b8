"""What is asked of Slurm: the nodes of this job, and a step on them that takes nothing from the job's own steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence

from jumper.monitor.metrics.process.procfs import OWN_TAG
from jumper.monitor.nodelist import expand_nodelist
from jumper.schema.errors import MonitorUnavailableError

__all__ = [
    "get_slurm_nodes",
    "job_id",
    "job_shares",
    "nodes_of",
    "overlaps_devices",
    "step_command",
    "step_environment",
]

#: how long a question to Slurm may take
ASK_S = 10.0
#: of `scontrol show job --details`: "Nodes=node[1-2] CPU_IDs=0-3,8 Mem=600 GRES="
_SHARE = re.compile(r" Nodes=(\S+) CPU_IDs=([\d,-]+) Mem=(\d+)")
#: of Slurm's variables, those that say which cluster it is; `--jobid` names the job, the others would shape our step
_KEPT = ("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JWT")


def get_slurm_nodes(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of this job's nodes, each once.

    They are in ``SLURM_JOB_NODELIST``, else ``SLURM_NODELIST``, else asked of
    ``scontrol show job``. Source: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES".

    Raises
    ------
    MonitorUnavailableError
        Where this is no job of Slurm, or it does not tell.

    Examples
    --------
    >>> get_slurm_nodes({"SLURM_JOB_NODELIST": "node[1-2]"})
    ['node1', 'node2']
    """
    environment = os.environ if environment is None else environment
    text = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if text:
        return list(dict.fromkeys(_expand(text)))
    job = job_id(environment)
    try:
        nodes = nodes_of(job)
    except (OSError, subprocess.SubprocessError) as error:
        raise MonitorUnavailableError(f"Slurm does not tell the nodes of job {job}: {_said(error)}") from error
    if not nodes:
        raise MonitorUnavailableError(f"job {job} has no nodes yet; `scontrol show job {job}` says why")
    return nodes


def nodes_of(job: str) -> list[str]:
    """Return the names of the nodes of a job, as Slurm has them; the job's own environment may hide them.

    Source: scontrol(1), "show job".

    Raises
    ------
    OSError, subprocess.SubprocessError
        Where there is no answer.
    """
    shown = _ask("scontrol", "--oneliner", "show", "job", job)
    lists = [word.partition("=")[2] for word in shown.split() if word.startswith("NodeList=")]
    return list(dict.fromkeys(_expand(lists[0]))) if lists and lists[0] != "(null)" else []


def step_command(
    job: str,
    nodes: Sequence[str],
    module: str,
    python: str = sys.executable,
    *,
    wait_s: int = 5,
    devices: bool = False,
) -> list[str]:
    """Return the command that runs a module of ours once on each of these nodes.

    Its step overlaps the others and asks for no memory or binding, so that no other step waits for
    it; it fails where it is not granted within `wait_s` seconds. With `devices` it may use those of the
    job, beside the others: only where :func:`overlaps_devices`. Source: srun(1).

    Examples
    --------
    >>> step_command("7", ["n1", "n2"], "a.b", "python")[:4]
    ['srun', '--overlap', '--jobid=7', '--nodelist=n1,n2']
    """
    return [
        "srun", "--overlap", f"--jobid={job}", f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--cpu-bind=none",
        "--mpi=none", "--export=ALL", "--kill-on-bad-exit=0", f"--immediate={wait_s}", "--quiet",
        *([] if devices else ["--gres=none"]), python, "-P", "-m", module,
    ]  # fmt: skip


def overlaps_devices() -> bool:
    """Return whether a step that overlaps others does so on devices too.

    Source: srun(1), "--overlap"; up to Slurm 20.11 it was about CPUs alone.
    """
    try:
        version = re.search(r"(\d+)\.(\d+)", _ask("srun", "--version"))
    except (OSError, subprocess.SubprocessError):
        return False
    return version is not None and (int(version[1]), int(version[2])) >= (21, 8)


def step_environment(environment: Mapping[str, str], without: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of such a step: without what shapes the job's own steps, and known as ours."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in without and (name in _KEPT or not name.startswith(("SLURM_", "SRUN_", "SBATCH_", "SLURMD_")))
    }
    name, _, value = OWN_TAG.decode().partition("=")
    return {**kept, name: value}


def job_shares(job: str) -> dict[str, dict[str, int]]:
    """Return what a job has of each of its nodes: ``cpus``, and ``memory_bytes`` where Slurm shares that out.

    Empty where Slurm does not tell. Source: scontrol(1), "show job --details".
    """
    try:
        shown = _ask("scontrol", "--oneliner", "--details", "show", "job", job)
    except (OSError, subprocess.SubprocessError):
        return {}
    shares = {}
    for nodes, cpus, mib in _SHARE.findall(shown):
        share = {"cpus": len(expand_nodelist(f"[{cpus}]")), "memory_bytes": int(mib) << 20}
        for node in _expand(nodes):
            shares[node] = {name: value for name, value in share.items() if value}
    return shares


def job_id(environment: Mapping[str, str] | None = None) -> str:
    """Return this job's id. Source: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES".

    Raises
    ------
    MonitorUnavailableError
        Where this is no job of Slurm.
    """
    environment = os.environ if environment is None else environment
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if not job:
        raise MonitorUnavailableError("this is no job of Slurm (SLURM_JOB_ID is not set); start it by sbatch or salloc")
    return job


def _expand(text: str) -> list[str]:
    """Let Slurm expand a list of nodes; where it is not there or does not know the form, do it here."""
    try:
        names = _ask("scontrol", "show", "hostnames", text).split()
    except (OSError, subprocess.SubprocessError):
        names = []
    return names or expand_nodelist(text)


def _ask(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=ASK_S, check=True, stdin=subprocess.DEVNULL
    ).stdout


def _said(error: Exception) -> str:
    return str(getattr(error, "stderr", "") or error).strip()
