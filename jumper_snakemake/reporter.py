"""The page of `--reporter jumper`: what the jobs of a workflow cost, each as of the run that made its output."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumper.schema.errors import RunError
from jumper_snakemake.jobs import job_key
from jumper_snakemake.main import FOLDER

if TYPE_CHECKING:
    import pandas as pd

    from jumper.core.run import Run


def write(jobs: Iterable[Any], folder: str | os.PathLike[str] | None, page: str | os.PathLike[str]) -> str:
    """Write the page and return what to say of it, in one line.

    Parameters
    ----------
    jobs : iterable of JobRecordInterface
        Of the reporter: jobs whose outputs Snakemake knows.
    folder : path or None
        Runs are in its folder ``runs``; default ``.snakemake/jumper``.
    page : path

    Raises
    ------
    RunError
        Where no run has any of them, or the page cannot be written.
    """
    from jumper.report.page import write_report

    runs = Path(folder or FOLDER) / "runs"
    outputs = {job_key(record.job.rule.name, dict(record.job.wildcards.items())): record.output for record in jobs}
    keys = set(outputs)
    chosen, failed, damaged = newest(runs, keys)
    # one whose output is there was done since, unmeasured
    failed = {key for key in failed if not all(os.path.exists(name) for name in outputs[key])}
    if not chosen and failed:
        raise RunError(f"no job has a result: {_count(failed, 'failed', 'failed')}{_and(damaged)}")
    if not chosen:
        raise RunError(
            f"no run in {runs} has a job of this workflow; `snakemake --logger jumper` makes one{_and(damaged)}"
        )
    found = set().union(*chosen.values())
    (run, its), *others = chosen.items()
    unmeasured = keys - found - failed
    missing = dict.fromkeys(failed, "it failed and has no result") | dict.fromkeys(unmeasured, "no run has its cost")
    made = write_report(run if not others and run_keys(run) == its else Together(chosen, missing), page)
    lacking = [
        *([_count(failed, "failed and has no result", "failed and have no result")] if failed else []),
        *(
            [_count(unmeasured, "was not measured when it ran", "were not measured when they ran")]
            if unmeasured
            else []
        ),
    ]
    told = f"{len(found)} of {len(keys)} jobs, of {len(chosen)} run{'s' if others else ''}: {made}"
    return "; ".join([told, *lacking]) + _and(damaged)


def _count(keys: set[str], one: str, many: str) -> str:
    return f"{len(keys)} {one if len(keys) == 1 else many}"


def _and(damaged: list[str]) -> str:
    return "".join(f"; left out: {text}" for text in damaged)


def newest(runs: Path, keys: set[str]) -> tuple[dict[Run, set[str]], set[str], list[str]]:
    """Return which run was the last to do each of the keys, those that it did not do well, and what cannot be read.

    The runs, the newest first, each with its keys. A folder that is no run is told, and the others are read.
    """
    from jumper.core.run import open_run

    chosen: dict[Run, set[str]] = {}
    damaged: list[str] = []
    failed: set[str] = set()
    left = set(keys)
    for path in sorted(runs.glob("*/"), reverse=True):
        if not left:
            break
        try:
            run = open_run(path)
            tasks = run.tasks
        except RunError as error:
            damaged.append(str(error))
            continue
        here = left & set(tasks["key"])
        done = here & set(tasks.loc[tasks["state"] == "done", "key"])
        if done:
            chosen[run] = done
        failed |= here - done
        left -= here
    return chosen, failed, damaged


def run_keys(run: Run) -> set[str]:
    """Return the jobs of a run."""
    return set(run.tasks["key"])


class Together:
    """Jobs of several runs as one: what :class:`jumper.analysis.tables.RunTables` says.

    Parameters
    ----------
    chosen : mapping of Run to set of str
        Keys of the jobs of each that belong to it, the newest run first.
    missing : mapping of str to str
        Jobs that none of them is the run of, each with the reason.
    """

    def __init__(self, chosen: Mapping[Run, set[str]], missing: Mapping[str, str]) -> None:
        self._runs = list(chosen)
        infos = [run.info for run in self._runs]
        self.path = self._runs[0].path.parent
        self.tasks = _joined([run.tasks[run.tasks["key"].isin(keys)] for run, keys in chosen.items()])
        self.events = _joined([run.events for run in self._runs])
        self.nodes = {name: facts for info in reversed(infos) for name, facts in info.get("nodes", {}).items()}
        ends = [info["finished_ns"] for info in infos if info.get("finished_ns")]
        lacking = [{"key": key, "reason": reason} for key, reason in sorted(missing.items())]
        self.info: dict[str, Any] = {
            **infos[0],
            "run": ", ".join(str(info["run"]) for info in reversed(infos)),
            "created_ns": min((info["created_ns"] for info in infos if info.get("created_ns")), default=None),
            "finished_ns": max(ends, default=None),
            "coverage": {
                "expected": sum(map(len, chosen.values())) + len(missing),
                "came": sum(map(len, chosen.values())),
                "missing": lacking,
                "own_cpu_s": sum(info.get("coverage", {}).get("own_cpu_s") or 0.0 for info in infos),
            },
        }

    def samples(self, stream: str, node: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the samples of all of them, by time."""
        frame = _joined([run.samples(stream, node, columns) for run in self._runs])
        return frame.sort_values("time_ns", kind="stable", ignore_index=True) if "time_ns" in frame else frame


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    filled = [frame for frame in frames if not frame.empty]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]
