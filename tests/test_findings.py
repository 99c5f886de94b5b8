"""Findings on made runs with one known fault each: it is found, with its figures; a sound run has none."""

from __future__ import annotations

import io
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from jumper import open_run
from jumper.analysis.advice import advise
from jumper.analysis.findings import Finding, findings, memory, slowness
from jumper.analysis.findings.view import View
from jumper.analysis.nodetime import crowded
from jumper.analysis.summary import summarize
from jumper.analysis.units import human_bytes
from jumper.analysis.workers import advise_dask
from jumper.report import advised, found, terminal
from jumper.report.page.builder import page
from jumper.schema import TASK_COLUMNS
from tests import made

GB = 10**9


def workflow(count: int = 24, *, nodes: int = 2, lanes: int = 4, kind: str = "snakemake", **columns: Any) -> made.Made:
    """Return a run of one group `align` whose jobs of 60 s fill `lanes` threads; nothing is wrong with it.

    Each job used 1.8 GB of 2 GB and 0.95 of its one core, and read 1 MB/s.
    """
    at = np.arange(count)
    begin = 60.0 * (at // lanes)
    rows = pd.DataFrame({
        "key": [f"align[{n}]" for n in at], "attempt_id": [str(n) for n in at], "attempt": 1, "group": "align",
        "kind": kind, "node": [f"n{n % nodes + 1}" for n in at], "pid": 100 + at, "state": "done", "exit_code": 0,
        "start_ns": made.START_NS + (begin * 1e9).astype("int64"), "wall_s": 60.0, "cpu_s": 57.0, "threads_asked": 1,
        "memory_asked_bytes": 2 * GB, "memory_peak_bytes": 9 * GB // 5, "memory_peak_source": "hwm", "queued_s": 0.0,
        "read_chars": 60_000_000, "write_chars": 0, "read_bytes": 0, "write_bytes": 0, "gap_s": 0.0, "samples": 60,
    })  # fmt: skip
    for name, values in columns.items():
        rows[name] = values
    rows["stop_ns"] = rows["start_ns"] + (rows["wall_s"] * 1e9).astype("int64")
    rows["flags"] = columns.get("flags", [[] for _ in at])
    span = float((rows["stop_ns"].max() - made.START_NS) / 1e9) if count else 1.0
    return made.Made(made._info(kind, nodes, 1.0, span), made.tasks_table(rows))


def slowed(node: str, seconds: float) -> list[float]:
    """Wall times of 24 jobs on two nodes, none like the other, in which one node takes longer."""
    noise = np.random.default_rng(7).uniform(0, 4, 24)
    return [float((seconds if f"n{n % 2 + 1}" == node else 60.0) + noise[n]) for n in range(24)]


def node_samples(
    run: made.Made, cores: float, cpu_pressure: float = 0.0, io_pressure: float = 0.0, memory_pressure: float = 0.0,
    network: float = 0.0,
) -> made.Made:  # fmt: skip
    """Give each node of a run a stream `system` in which so many cores were busy, and bytes a second came in."""
    at = np.arange(0.0, 400.0)
    frames = []
    for node in run.nodes:
        frame = made._keys(at, node)
        rates = {"cpu": cores, "cpu_pressure": cpu_pressure, "io_pressure": io_pressure,
                 "memory_pressure": memory_pressure}  # fmt: skip
        for name, rate in rates.items():
            frame[f"{name}_ns"] = np.round(at * rate * 1e9).astype("int64")
        frame["net_recv_bytes"] = np.round(at * network).astype("int64")
        frame["net_sent_bytes"] = 0
        frames.append(frame)
    run.streams["system"] = pd.concat(frames, ignore_index=True)
    return run


def grouped(run: made.Made, **rates: float) -> made.Made:
    """Give each node of a run a target whose control group's counters grow so much a second."""
    at = np.arange(0.0, 400.0)
    frames = [made._keys(at, node, 7) for node in run.nodes]
    for frame in frames:
        for name, rate in rates.items():
            frame[name] = np.floor(at * rate).astype("int64")
    run.streams["process"] = pd.concat(frames, ignore_index=True)
    return run


def tail(count: int = 24) -> made.Made:
    """A run of six minutes on four threads, after which one job goes on for four more."""
    run = workflow(count)
    run.tasks.loc[count - 1, "stop_ns"] += 240 * made.SECOND
    run.tasks.loc[count - 1, ["wall_s", "cpu_s"]] = [300.0, 285.0]
    return run


def late() -> made.Made:
    """Jobs that were ready for five minutes before the first one started."""
    run = workflow()
    run.tasks["queued_s"] = 300.0
    run.tasks.loc[8:, "queued_s"] = 0.0
    return run


def with_gpus(seconds: float) -> made.Made:
    run = workflow(gpu_seconds=seconds)
    for node in run.info["nodes"].values():
        node["num_gpus"] = 2
    return run


def watched(cores: float) -> made.Made:
    run = workflow()
    at = np.arange(0.0, 120.0)
    frame = made._monitor(at, "n1", 9)
    frame["cpu_ns"] = np.round(at * cores * 1e9).astype("int64")
    run.streams["monitor"] = frame
    return run


#: name of the finding, severity, subject, words of its text, cost (core hours, GB hours), and the run with the fault
FAULTS: dict[str, tuple[str, str, str, str, tuple[float | None, float | None], Callable[[], made.Made]]] = {
    "asked far too much": (
        "memory-far", "medium", "align", "none of its 24 attempts used more than 1.68 GiB (9%)", (None, 0.4 * 18.133),
        lambda: workflow(memory_asked_bytes=20 * GB),
    ),
    "near what was asked": (
        "memory-near", "high", "align", "1.84 GiB of the 1.86 GiB asked for (99%), in align[0]", (None, None),
        lambda: workflow(memory_peak_bytes=[1_980_000_000] + 23 * [GB]),
    ),
    "near its limit in Dask": (
        "memory-near", "high", "align", "(85%), in align[0]", (None, None),
        lambda: workflow(kind="dask", memory_asked_bytes=None, memory_limit_bytes=2 * GB, threads_asked=None,
                         memory_peak_bytes=[1_700_000_000] + 23 * [GB]),
    ),
    "a worker near its limit, with several tasks in it": (
        "memory-near", "high", "worker w1", "while several tasks ran at once, of align", (None, None),
        lambda: workflow(kind="dask", memory_asked_bytes=None, memory_limit_bytes=2 * GB, worker="w1",
                         flags=[["shared"] for _ in range(24)]),
    ),
    "killed for its memory": (
        "killed", "high", "align", "had reached 1.86 GiB, 100% of the 1.86 GiB allowed, when it failed with status -9; "
        "it was align[3].", (None, None),
        lambda: workflow(state=3 * ["done"] + ["failed"] + 20 * ["done"], exit_code=3 * [0] + [-9] + 20 * [0],
                         memory_peak_bytes=3 * [GB] + [2 * GB] + 20 * [GB]),
    ),
    "failed, and repeated": (
        "failed", "high", "align", "failed in 2 of 24 attempts, which occupied 120 core seconds: exit status 3. "
        "1 of them succeeded when repeated.", (120 / 3600, None),
        lambda: workflow(state=2 * ["failed"] + 22 * ["done"], exit_code=2 * [3] + 22 * [0],
                         key=["align[0]", "align[1]", "align[1]"] + [f"align[{n}]" for n in range(3, 24)]),
    ),
    "swapped": (
        "swapping", "medium", "align", "up to 1.00 GiB swapped out, in 2 of 24 attempts on n1, n2", (None, None),
        lambda: workflow(swap_peak_bytes=2 * [made.GIB] + 22 * [0]),
    ),
    "threads not used": (
        "threads-unused", "medium", "align", "asks for 8 threads; the busiest of its 24 attempts kept 0.95 cores busy",
        (24 * 60 * 7 / 3600, None), lambda: workflow(threads_asked=8),
    ),
    "more threads than asked for": (
        "threads-exceeded", "medium", "align", "asks for 1 thread and keeps 3.80 cores busy", (None, None),
        lambda: workflow(cpu_s=228.0),
    ),
    "crowded": (
        "cores-crowded", "medium", "n1, n2", "busy, and 95% of that time some thread waited", (None, None),
        lambda: node_samples(workflow(count=96, lanes=16), 3.9, 0.95),
    ),
    "crowded by others": (
        "cores-crowded", "info", "n1, n2", "This run used 44% of the CPU time", (None, None),
        lambda: node_samples(workflow(), 3.9, 0.95),
    ),
    "idle devices": ("gpu-idle", "medium", "4 GPUs", "on n1, n2 were busy 0.2%", (None, None), lambda: with_gpus(0.1)),
    "starved devices": ("gpu-starved", "medium", "align", "busy 25% of its time", (None, None),
                        lambda: with_gpus(15.0)),
    "short of memory": (
        "memory-pressure", "medium", "n1, n2", "for 6 min 39 s some thread waited for it 50% of the time", (None, None),
        lambda: node_samples(workflow(), 1.0, memory_pressure=0.5),
    ),
    "short of what its control group allows": (
        "memory-pressure", "medium", "n1, n2", "for 6 min 39 s some thread waited for it 30% of the time", (None, None),
        lambda: grouped(workflow(), cgroup_pressure_ns=0.3e9),
    ),
    "killed by the limit of a control group": (
        "oom-kills", "high", "6 OOM kills", "by the memory limit of a control group, on n1, n2", (None, None),
        lambda: grouped(workflow(), cgroup_oom_kills=0.01),
    ),
    "waiting for the network": (
        "network-bound", "info", "align", "keeps 0.10 cores busy while it moves 23.8 MiB/s over the network",
        (24 * 54 / 3600, None), lambda: node_samples(workflow(cpu_s=6.0), 0.4, network=50e6),
    ),
    "a slow node": (
        "straggler", "medium", "n2", "align takes 1 min 42 s there and 1 min 02 s elsewhere", (0.133, None),
        lambda: workflow(wall_s=slowed("n2", 100.0), cpu_s=57.0),
    ),
    "bound by its reads": (
        "io-bound", "info", "align", "moves 47.7 MiB/s, most of it on storage", (24 * 54 / 3600, None),
        lambda: workflow(cpu_s=6.0, read_chars=3 * GB, read_bytes=3 * GB),
    ),
    "waiting for a busy disk": (
        "io-bound", "info", "align", "moves 1.91 MiB/s", (24 * 54 / 3600, None),
        lambda: node_samples(workflow(cpu_s=6.0, read_chars=120_000_000), 0.4, io_pressure=0.6),
    ),
    "a long tail": (
        "long-tail", "medium", "The last", "4 min 00 s (40% of the run) kept at most 25% of its usual 4 threads "
        "busy, with 1 task of align", (3 * 240 / 3600, None), tail,
    ),
    "a late start": (
        "waiting", "medium", "For", "5 min 00 s (45% of the run) tasks of align were ready",
        (4 * 300 / 3600, None), late,
    ),
    "gaps": ("gap", "info", "1 min 12 s", "inside 24 attempts (5% of their time)", (None, None),
             lambda: workflow(gap_s=3.0)),
    "a monitor that costs": ("own-cost", "info", "Measuring", "took 5.0% of a core for each of 1 monitor",
                             (119 * 0.05 / 3600, None), lambda: watched(0.05)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_known_fault_is_found_with_its_figures(fault: str) -> None:
    name, severity, subject, words, cost, make = FAULTS[fault]
    said = findings(make())
    (one,) = [finding for finding in said if finding.name == name]
    assert (one.severity, one.subject) == (severity, subject)
    assert words in one.text, one.text
    assert one.action
    for spent, expected in zip((one.core_hours, one.gb_hours), cost, strict=True):
        assert spent is expected is None or spent == pytest.approx(expected, rel=0.02)
    others = {finding.name for finding in said} - {name}
    assert others <= {"killed": {"failed"}}.get(name, set()), others


SOUND: dict[str, Callable[[], made.Made]] = {
    "a workflow": workflow,
    "Dask": lambda: made.make(60, state="done"),
    "a command": made.make_command,
    "nothing": lambda: made.make(0),
    "busy nodes that nobody waits for": lambda: node_samples(workflow(), 3.9, 0.3),
    "an idle node that somebody waits for": lambda: node_samples(workflow(), 1.0, 0.9),
    "a cheap monitor": lambda: watched(0.005),
    "a network that moves much beside those who compute": lambda: node_samples(workflow(), 2.0, network=50e6),
    "a network of which each attempt has little": lambda: node_samples(workflow(cpu_s=6.0), 0.4, network=10e6),
    "some waits for memory": lambda: node_samples(workflow(), 1.0, memory_pressure=0.1),
    "a group at its limit without harm": lambda: grouped(workflow(), cgroup_limit_hits=9, cgroup_pressure_ns=0.1e9),
    "busy devices": lambda: with_gpus(55.0),
    "small waits": lambda: workflow(queued_s=5.0),
    "a node that is a little slower": lambda: workflow(wall_s=slowed("n2", 70.0), cpu_s=57.0),
    "waste too small to matter": lambda: pd_concat(workflow(), workflow(5, wall_s=0.5, group="tiny", threads_asked=8,
                                                                        memory_asked_bytes=20 * GB, cpu_s=0.4)),
    "few attempts": lambda: workflow(4, memory_asked_bytes=20 * GB, threads_asked=8),
    "peaks that are not sure": lambda: workflow(memory_asked_bytes=20 * GB, flags=[["memory-estimated"]] * 24),
    "CPU that is not sure": lambda: workflow(threads_asked=8, flags=[["estimated"]] * 24),
    "a small gap": lambda: workflow(gap_s=[3.0] + 23 * [0.0]),
}  # fmt: skip


def pd_concat(one: made.Made, other: made.Made) -> made.Made:
    """Return a run with the attempts of both."""
    one.tasks = pd.concat([one.tasks, other.tasks], ignore_index=True)
    return one


@pytest.mark.parametrize("run", SOUND)
def test_a_sound_run_has_none(run: str) -> None:
    assert findings(SOUND[run]()) == []


def test_a_node_is_called_slow_by_chance_in_less_than_one_run_of_a_hundred() -> None:
    random = np.random.default_rng(11)
    view, said = View(workflow()), []
    for _ in range(300):
        view.wall = 60 * random.lognormal(0, 1.0, 24)
        said += list(slowness.stragglers(view))
    assert len(said) <= 7  # P(more) at a rate of 0.01 is 0.01


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([100, 110, 120, 130, 140, 150], ["leaky"]),
        ([100, 101, 100, 102, 100, 101], []),
        ([1000, 1010, 1020, 1030, 1040, 1050], []),
    ],
    ids=["it stays", "it is given back before the next one", "a twentieth of what the worker had"],
)
def test_memory_that_each_attempt_leaves_behind_is_found_where_it_stays(starts: list[int], expected: list[str]) -> None:
    run = made.make_command()
    begun = [n * made.SECOND for n in range(len(starts))]
    run.tasks = pd.DataFrame({
        "group": "leaky", "state": "done", "node": "n1", "pid": 7, "start_ns": begun,
        "rss_start_bytes": [s << 20 for s in starts], "rss_stop_bytes": [s + 10 << 20 for s in starts],
        "flags": [[] for _ in starts],
    })  # fmt: skip
    assert [f.subject for f in memory.leaks(View(run))] == expected
    assert summarize(run.tasks).rss_left_bytes["leaky"] == 60 << 20
    run.tasks["flags"] = [["shared"] for _ in starts]
    assert list(memory.leaks(View(run))) == []
    assert summarize(run.tasks).rss_left_bytes.isna().all()


@pytest.mark.parametrize(("cores", "said"), [(1.0, ["threads-unused"]), (3.9, [])], ids=["cores idle", "none idle"])
def test_what_a_full_node_left_to_a_group_does_not_say_what_it_can_use(cores: float, said: list[str]) -> None:
    run = node_samples(workflow(threads_asked=4), cores)
    assert [one.name for one in findings(run) if one.name == "threads-unused"] == said
    (advice,) = advise(run.tasks, crowded=crowded(run))
    assert advice.threads == (1 if said else None)


def test_what_a_batch_job_holds_beside_the_task_is_asked_for_too() -> None:
    alone, both = (workflow(memory_asked_bytes=20 * GB, memory_beside_bytes=beside) for beside in (None, GB))
    ((far,), (more,)) = ([one for one in findings(run) if one.name == "memory-far"] for run in (alone, both))
    assert "Ask for 1.74 GiB" in far.action and "Ask for 2.70 GiB" in more.action
    assert more.gb_hours == pytest.approx(far.gb_hours - 1.037 * 24 * 60 / 3600)
    assert "954 MiB of it is for the Snakemakes in its job" in more.action
    ((small,), (large,)) = (advise(run.tasks) for run in (alone, both))
    assert small.memory_bytes + GB <= large.memory_bytes <= 1.2 * (small.memory_bytes + GB)
    assert "954 MiB of the memory is for the Snakemakes in each batch job" in large.notes


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.05])
@pytest.mark.parametrize("count", [5, 6, 12, 60])
def test_who_follows_the_advice_earns_no_finding_from_an_equal_run(count: int, spread: float) -> None:
    random = np.random.default_rng(4)

    def peaks() -> list[int]:
        return [int(GB * (1 - spread * part)) for part in random.uniform(0, 1, count)]

    first = workflow(count, memory_asked_bytes=5 * GB, memory_peak_bytes=peaks())
    (advice,), (far,) = advise(first.tasks), list(memory.far(View(first)))
    wanted = yaml.safe_load(advised.snakemake_profile([advice]))["set-resources"]["align"]["mem_mb"]
    assert yaml.safe_load(far.snippet)["set-resources"]["align"]["mem_mb"] == wanted
    again = View(workflow(count, memory_asked_bytes=wanted * 10**6, memory_peak_bytes=peaks()))
    assert [*memory.near(again), *memory.far(again)] == []


def test_a_finding_and_the_advice_name_one_amount() -> None:
    run = workflow(memory_peak_bytes=[1_980_000_000] + 23 * [GB], memory_beside_bytes=GB // 100)
    (near,), (advice,) = findings(run), advise(run.tasks)
    said = yaml.safe_load(near.snippet)["set-resources"]["align"]["mem_mb"]
    assert near.name == "memory-near" and said == int(advised.mem_mb(advice.memory))


def died(count: int, kind: str, more: int = 0) -> made.Made:
    """A run whose last attempt reached 3.9 of the 4 GiB that it was allowed; `more` beside it in its job."""
    gib = made.GIB
    return workflow(
        count, kind=kind, nodes=1, memory_asked_bytes=4 * gib, memory_limit_bytes=4 * gib, memory_beside_bytes=more,
        memory_peak_bytes=[gib] * (count - 1) + [39 * gib // 10 - more], state=["done"] * (count - 1) + ["failed"],
        worker="w1" if kind == "dask" else None, thread=1,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 4, 6, 24])
@pytest.mark.parametrize("kind", ["snakemake", "dask", "command"])
def test_an_attempt_that_memory_ended_has_one_amount_in_the_finding_the_advice_and_what_is_pasted(
    kind: str, count: int
) -> None:
    run = died(count, kind)
    said = {one.name: one for one in findings(run)}
    assert set(said) == {"failed", "killed"}  # none that asks for less
    assert "had reached 3.90 GiB, 97% of the 4.00 GiB allowed" in said["killed"].text
    (advice,) = advise(run.tasks)
    assert advice.highest_bytes == 39 * made.GIB // 10 and advice.needed_bytes == 8 * made.GIB
    assert any(note.endswith("taken as twice the limit, 8.00 GiB") for note in advice.notes)
    action, few = said["killed"].action, count < 5
    wanted = 8.0 * made.GIB if few else float(advice.memory_bytes or 0)
    assert (advice.memory_bytes is None) == few and wanted >= 8 * made.GIB
    assert action.startswith(f"Give it {human_bytes(wanted)}, ") and "twice what it was allowed" in action
    assert ("taken as 8.00 GiB" in action) == (not few)
    out = io.StringIO()
    Console(file=out, width=200).print(advised.AdviceTable([advice]))
    row = next(line for line in out.getvalue().splitlines() if line.startswith("align "))
    assert " 3.90 GiB " in row and (few or f" {human_bytes(wanted)} " in row)
    if kind == "snakemake":
        asked = yaml.safe_load(said["killed"].snippet)["set-resources"]["align"]["mem_mb"]
        profile = advised.snakemake_profile([advice])
        assert asked == math.ceil(wanted / 1e6)
        if not few:
            assert yaml.safe_load(profile)["set-resources"]["align"]["mem_mb"] == asked
            assert "24 attempts used at most 3.90 GiB" in profile or count != 24
            assert "1 ended at the limit" in profile
    if kind == "dask" and not few:
        (limit,) = re.findall("--memory-limit (.*)", said["killed"].snippet)
        (workers,) = advise_dask(run)
        assert f"--memory-limit {limit}" in advised.dask_lines([workers])
        assert f"memory ended tasks that are advised to ask for {human_bytes(wanted)}" in workers.evidence


def test_a_group_that_memory_ended_and_that_swapped_is_told_one_amount_to_paste() -> None:
    run = died(24, "snakemake")
    run.tasks["swap_peak_bytes"] = made.GIB
    said = {one.name: one.snippet for one in findings(run)}
    assert said["swapping"] == "" and "mem_mb" in said["killed"]
    (swapped,) = [one for one in findings(workflow(swap_peak_bytes=made.GIB)) if one.name == "swapping"]
    assert "mem_mb" in swapped.snippet


def test_what_a_batch_job_holds_beside_an_attempt_that_memory_ended_counts() -> None:
    (killed,) = [one for one in findings(died(24, "snakemake", made.GIB)) if one.name == "killed"]
    assert "had reached 2.90 GiB, with the 1.00 GiB beside it in its job 97% of the 4.00 GiB allowed" in killed.text


def test_an_attempt_that_memory_ended_and_that_succeeded_when_repeated_says_what_it_needed() -> None:
    run = died(24, "snakemake")
    run.tasks.loc[22, ["key", "memory_peak_bytes"]] = [run.tasks.loc[23, "key"], 5 * made.GIB]
    (killed,) = [one for one in findings(run) if one.name == "killed"]
    (advice,) = advise(run.tasks)
    assert advice.highest_bytes == advice.needed_bytes == 5 * made.GIB
    assert killed.action == (
        f"Give it {human_bytes(advice.memory_bytes)}: that holds what it used when it was repeated and succeeded."
    )


@pytest.mark.parametrize(("part", "said"), [(0.97, []), (0.99, ["memory-near"])])
def test_what_is_near_is_what_the_attempts_say_is_not_enough(part: float, said: list[str]) -> None:
    assert [one.name for one in findings(workflow(memory_peak_bytes=int(part * 2 * GB)))] == said
    few = workflow(5, memory_peak_bytes=int(part * 2 * GB))
    assert [one.name for one in memory.near(View(few))] == ["memory-near"]


def test_what_is_missing_is_said() -> None:
    run = made.make_command()
    run.info["coverage"] |= {"missing": [{"node": "n2", "reason": "no shard"}], "torn": 2, "dropped": 1}
    run.events = pd.DataFrame({"kind": ["collector-off"], "text": ["gpu: no driver"]})
    said = {f.subject: f.text for f in findings(run)}
    assert said["1 expected part"] == "did not come: node n2: no shard."
    assert "2 blocks" in said and "1 block" in said
    assert said["A collector was switched off:"] == "gpu: no driver"


def test_a_failed_job_whose_cost_is_not_known_is_said_with_what_to_do() -> None:
    """As Snakemake's main process knows it: the job's state came, its record did not."""
    run = workflow(3)
    run.tasks.loc[1, ["state", "exit_code", "reason"]] = ["failed", 1, "exit status 1"]
    run.tasks.loc[1:, ["cpu_s", "memory_peak_bytes"]] = None
    why = "no record of its cost came: neither in the run's folder nor in a log"
    run.info["coverage"] = {"missing": [{"key": f"align[{n}]", "reason": why} for n in (1, 2)]}
    failed, missing = findings(run)
    assert (failed.name, missing.name, missing.severity) == ("failed", "missing", "high")
    assert missing.subject == "What 2 attempts cost"
    assert missing.text == f"is not known (align[1], align[2]); 1 of them failed: {why}."
    assert "its own log says why" in missing.action and "--logger-jumper-logs FOLDER" in missing.action
    run.tasks.loc[1, "state"] = "done"
    run.info["coverage"] = {"missing": [{"key": "align[1]", "reason": "no run has its cost"}]}
    (missing,) = findings(run)
    assert (missing.severity, missing.subject) == ("medium", "What 1 attempt cost")
    assert missing.text == "is not known (align[1]): no run has its cost."
    assert missing.action.endswith("Run them again with `snakemake --logger jumper`.")


def test_a_worker_that_brought_nothing_home_is_named_and_what_its_failed_tasks_lack() -> None:
    run = workflow(3, kind="dask", worker="tcp://a:1", memory_asked_bytes=None)
    run.info["coverage"] = {"missing": [{"worker": "tcp://a:1", "name": "w1", "reason": "its plugin did not report"}]}
    (missing,) = findings(run)
    assert (missing.severity, missing.subject) == ("medium", "1 worker")
    assert missing.text == "brought no figures home (w1): its plugin did not report."
    assert "JUMPER_SPOOL" in missing.action and "in no sum" in missing.action
    run.tasks.loc[1:, ["state", "cpu_s", "memory_peak_bytes"]] = ["lost", None, None]
    (missing,) = [one for one in findings(run) if one.name == "missing"]
    assert missing.severity == "high" and "(w1); 2 tasks of theirs failed or were lost: its" in missing.text


@pytest.mark.parametrize("fault", ["near its limit in Dask", "a worker near its limit, with several tasks in it"])
def test_a_worker_is_given_what_it_does_not_spill_below(fault: str) -> None:
    run = FAULTS[fault][-1]()
    (one,) = [found for found in findings(run) if found.name == "memory-near"]
    limit = 2**20 * int(one.snippet.rpartition(" ")[2].removesuffix("MiB"))
    highest = run.tasks["memory_peak_bytes"].max()
    # Dask spills from 70 % of the limit on: distributed.worker.memory.spill
    assert 0.7 * limit == pytest.approx(highest, rel=0.001) and limit > run.tasks["memory_limit_bytes"].max()


def test_findings_name_failures_first() -> None:
    run = made.make(20, state="lost")
    said = findings(run)
    assert summarize(run.tasks)["failed"].sum() == 20
    assert {f.severity for f in said[:5]} == {"high"} and "was lost with its worker in 4 of 4" in said[0].text


def test_the_most_severe_comes_first_and_then_what_cost_most() -> None:
    run = pd_concat(workflow(threads_asked=8), workflow(group="sort", memory_asked_bytes=20 * GB))
    run.tasks.loc[0, "state"] = "failed"
    assert [one.name for one in findings(run)] == ["failed", "threads-unused", "memory-far"]


def test_failures_are_named_and_what_is_more_is_counted() -> None:
    run = workflow(key=[f"align[{n}]" for n in range(24)], state=5 * ["failed"] + 19 * ["done"])
    assert findings(run)[0].action == "It was align[0], align[1], align[2] and 2 more."


def test_a_group_of_one_task_is_named_once() -> None:
    run = workflow(1, key="align", state="failed", exit_code=3, wall_s=0.4)
    (one,) = findings(run)
    assert (one.subject, one.text, one.action) == ("align", "failed in 1 of 1 attempt: exit status 3.", "")
    assert found.lead([one]) == one  # it has no advice, and is what the page must begin with


def test_a_long_command_is_named_in_one_line() -> None:
    command = "sh -c 'i=0\n" + 40 * "echo $i\n" + "'"
    run = workflow(1, kind="command", key=command, group="sh", state="failed", exit_code=3)
    (one,) = findings(run)
    assert one.action.startswith("It was sh -c 'i=0 echo $i echo") and one.action.endswith("….")
    assert "\n" not in one.action and len(one.action) < 100


def test_attempts_that_many_workers_took_with_them_are_one_sentence() -> None:
    reasons = [f"its worker {n} (tcp://w{n}) left while it ran" for n in range(3)]
    run = workflow(4, kind="dask", key="align-1", state="lost", reason=[*reasons, "its worker tcp://w4 left while it "
                   "ran; its nanny ended it when it held 1 GiB"], worker=[f"tcp://w{n}" for n in range(4)])  # fmt: skip
    told = findings(run)[0].text
    assert told == ("was lost with its worker in 4 of 4 attempts, which occupied 240 core seconds: its worker left "
                    "while it ran; its worker left while it ran; its nanny ended it when it held 1 GiB.")  # fmt: skip
    one = workflow(1, kind="dask", state="lost", reason=reasons[0], worker="tcp://w0")
    assert f": {reasons[0]}." in findings(one)[0].text


def test_what_succeeded_when_repeated_is_less_severe() -> None:
    run = workflow(key=["align[1]"] + [f"align[{n}]" for n in range(1, 24)], state=["failed"] + 23 * ["done"])
    (one,) = findings(run)
    assert one.severity == "medium" and "All succeeded when repeated" in one.text


def test_many_of_one_kind_are_folded_into_one_line() -> None:
    run = workflow(state="failed", group=[f"g{n:02}" for n in range(24)])
    said = findings(run)
    assert [one.subject for one in said[:10]] == [f"g{n:02}" for n in range(10)]
    assert said[10].subject == "14 more findings" and len(said) == 11
    assert said[10].text == "like these, 0.23 core hours in all: g10, g11, g12 and 11 more."


def test_the_profile_lines_are_what_snakemake_reads() -> None:
    (one,) = findings(workflow(memory_asked_bytes=20 * GB))
    assert 1800 < yaml.safe_load(one.snippet)["set-resources"]["align"]["mem_mb"] < 2000
    (one,) = findings(workflow(threads_asked=8))
    assert yaml.safe_load(one.snippet) == {"set-threads": {"align": 1}}


def test_a_command_under_slurm_gets_lines_for_its_script() -> None:
    near = workflow(kind="command", memory_asked_bytes=None, memory_limit_bytes=1_800_000_000)
    assert findings(near)[0].snippet == ""
    near.info["nodes"]["n1"]["limits_bytes"] = {"slurm": 1_800_000_000}
    assert findings(near)[0].snippet == "#SBATCH --mem=1781M"


def _values(kind: str) -> st.SearchStrategy[Any]:
    odd: dict[str, st.SearchStrategy[Any]] = {
        "int": st.sampled_from([0, 1, 7, -5, 10**9, made.START_NS, made.START_NS + 10**11, 2**62]),
        "float": st.sampled_from([0.0, 1.5, 100.0, -3.0, 1e300, float("inf"), float("nan")]),
        "str": st.sampled_from(["", "a", "b", "done", "failed", "lost", "dask", "<script>", "é\n[red]"]),
        "list": st.sampled_from([[], ["shared"], ["oom", "truncated"]]),
        "json": st.just("{}"),
    }
    return st.none() | odd[kind]


ROWS = st.lists(st.fixed_dictionaries({c.name: _values(c.dtype) for c in TASK_COLUMNS}), max_size=8)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.sets(st.sampled_from([c.name for c in TASK_COLUMNS])))
def test_no_table_is_too_odd(rows: list[dict[str, Any]], absent: set[str]) -> None:
    run = workflow(0)
    run.tasks = made.tasks_table(rows * 3).drop(columns=list(absent))
    for one in findings(run):
        assert isinstance(one, Finding) and one.name and not {"nan", "inf"} & set(one.text.split())


def test_streams_with_holes_are_read() -> None:
    run = node_samples(workflow(), 3.9, 0.95)
    run.streams["system"]["cpu_pressure_ns"] = None
    run.streams["monitor"] = made._keys(np.arange(5.0), "n1").assign(cpu_ns=None)
    assert findings(run) == []
    run.streams["system"] = run.streams["system"].iloc[:1]
    assert findings(run) == []


def test_the_page_the_terminal_the_notebook_and_the_documents_say_the_same(tmp_path: Path) -> None:
    made.write(made.make(60, threads=1), tmp_path / "RUN")
    run = open_run(tmp_path / "RUN")
    ours = run.findings()
    assert ours and ours == found.found_in(run)
    html = page(run)
    out = io.StringIO()
    Console(file=out, width=500).print(terminal.summary_table(run), found.FindingsText(ours))
    text = " ".join(out.getvalue().split())
    for one in ours:
        assert text.count(one.text) == 2 and one.text.replace("'", "&#39;") in html
    assert [one["text"] for one in found.as_json(run)["findings"]] == [one.text for one in ours]
    assert json.loads(json.dumps(terminal.summary_json(run)))["findings"] == found.as_json(run)["findings"]
    assert ours[0].text in run._repr_html_()


def test_a_hundred_thousand_attempts_are_read_as_arrays() -> None:
    """A loop over attempts would make it grow by a hundred times what it is here."""
    few, many = workflow(1000, lanes=100), workflow(100_000, lanes=10_000)
    spent = []
    for run in (few, many):
        findings(run)
        before = time.process_time()
        findings(run)
        spent.append(time.process_time() - before)
    assert spent[1] < 30 * max(spent[0], 0.02)
