"""Why a job ended that did not end by itself: what the batch system, its log and the control group say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

#: how long a question to the batch system may take
ASK_S = 10.0
#: how much of a log's end is looked at, bytes
LOG_END = 1 << 16
OOM = "oom"
#: states of Slurm jobs that did not end by themselves (squeue(1), "JOB STATE CODES"), in words
_STATES = {
    "TIMEOUT": "Slurm ended it at its time limit of {TimeLimit}",
    "OUT_OF_MEMORY": "Slurm ended it for its memory",
    "DEADLINE": "Slurm ended it at its deadline",
    "NODE_FAIL": "its node {NodeList} failed",
    "BOOT_FAIL": "its node {NodeList} did not start",
    "PREEMPTED": "Slurm ended it for another job (preempted)",
    "CANCELLED": "it was cancelled in Slurm",
}
_MEMORY = re.compile(r"oom.kill|out.of.memory|exceeded (?:job )?memory limit|memory limit.*exceeded", re.IGNORECASE)


class End(NamedTuple):
    """Why a job ended: a reason in one line, and flags of the tasks table."""

    reason: str | None = None
    flags: tuple[str, ...] = ()


def slurm_end(job: str, folder: str, logs: Iterable[str] = ()) -> End:
    """Return why a job of Slurm ended, as far as Slurm or the job's log says.

    Source: scontrol(1), "show job"; where it has forgotten the job, sacct(1).

    Parameters
    ----------
    job : str
        Its id; nothing is said of a job of somebody else, or of another folder.
    folder : str
        Where it was submitted.
    logs : iterable of str
        Files that its output may be in.
    """
    if not re.fullmatch(r"\d+(_\d+)?", job):
        return End()
    said = _ask("scontrol", "--oneliner", "show", "job", job)
    known = _shown(said)
    if known:
        if f"({os.getuid()})" not in known.get("UserId", "") or f" WorkDir={folder} " not in said:
            return End()
    else:
        columns = ["State", "Timelimit", "NodeList", "WorkDir", "UID"]
        said = _ask("sacct", "--jobs", job, "--allocations", "--noheader", "--parsable2", "--format", ",".join(columns))
        known = dict(zip(columns, said.strip().split("|"), strict=False))
        if known.get("UID") != str(os.getuid()) or known.get("WorkDir") != folder:
            return End()
        known |= {"JobState": known["State"].split()[0], "TimeLimit": known["Timelimit"]}
    state = known.get("JobState", "")
    words = _STATES.get(state)
    in_log = next((line for log in (*logs, known.get("StdErr", "")) if (line := memory_line(log))), None)
    reason = words.format_map(known) if words else None
    if in_log is not None:
        reason = f"{reason}: {in_log}" if reason else f"Slurm: {in_log}"
    return End(reason, (OOM,) if state == "OUT_OF_MEMORY" or in_log is not None else ())


def memory_line(log: str) -> str | None:
    """Return the last line at the end of a log that tells of a limit on memory, or None.

    Examples
    --------
    >>> memory_line("/dev/null")
    """
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_END))
            lines = file.read(LOG_END).decode(errors="replace").splitlines()
    except OSError:
        return None
    found = next((line for line in reversed(lines) if line.startswith("slurmstepd") and _MEMORY.search(line)), None)
    return None if found is None else found.partition(": ")[2].removeprefix("error: ")[:300]


def oom_kills(root: str = "/") -> int | None:
    """Return how often the kernel's OOM killer struck in this process's control group, or None where nobody says.

    Source: Documentation/admin-guide/cgroup-v2.rst, ``memory.events``; cgroup-v1/memory.rst, ``memory.oom_control``.
    """
    place = _oom_file(root)
    return None if place is None else _oom_count(place)


@cache  # looked for once, and not at every attempt
def _oom_file(root: str) -> str | None:
    try:
        with open(f"{root}/proc/self/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    groups = f"{root}/sys/fs/cgroup"
    places = [f"{groups}/memory{path}/memory.oom_control" for _, names, path in lines if "memory" in names.split(",")]
    places += [f"{mount}{path}/memory.events" for _, names, path in lines if not names
               for mount in (groups, f"{groups}/unified")]  # fmt: skip
    return next((place for place in places if _oom_count(place) is not None), None)


def _oom_count(place: str) -> int | None:
    try:
        with open(place) as file:
            return int(dict(line.split() for line in file)["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def _shown(text: str) -> dict[str, str]:
    """Return the fields of `scontrol --oneliner show job`.

    Examples
    --------
    >>> _shown("JobId=7 JobState=TIMEOUT Reason=TimeLimit")["JobState"]
    'TIMEOUT'
    """
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
