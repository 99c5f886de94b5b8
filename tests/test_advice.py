"""Advice: it holds every attempt that succeeded, says nothing without data, and Snakemake takes it as it is printed."""

from __future__ import annotations

import io
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from jumper.analysis.advice import NEWEST, Advice, advise
from jumper.analysis.sizing import Rule
from jumper.analysis.workers import advise_dask
from jumper.report import advised
from tests import made

GB, MIB = 1e9, 2**20


def table(peaks: Any, group: str = "align", **columns: Any) -> pd.DataFrame:
    """Return attempts of a group that succeeded, one a minute, but for what the columns say."""
    count = len(peaks)
    rows = {
        "key": [f"{group}-{i}" for i in range(count)], "group": group, "kind": "snakemake", "state": "done",
        "start_ns": [made.START_NS + i * 60 * made.SECOND for i in range(count)], "wall_s": 3600.0,
        "memory_peak_bytes": [None if p is None else round(p) for p in peaks], "flags": [[] for _ in range(count)],
    }  # fmt: skip
    return made.tasks_table(pd.DataFrame(rows | columns).to_dict("records"))  # type: ignore[arg-type]


def only(tasks: pd.DataFrame, may_fail: float = 0.0) -> Advice:
    (found,) = advise(tasks, may_fail)
    return found


def printed(found: list[Advice]) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(advised.AdviceTable(found))
    return out.getvalue()


def uniform(count: int = 60, seed: int = 1) -> Any:
    return np.random.default_rng(seed).uniform(0.9, 1.0, count) * GB


peaks = st.lists(st.floats(1e6, 1e11), min_size=5, max_size=70)


@settings(max_examples=20, deadline=None)
@given(peaks, st.integers(0, 1000), st.booleans())
def test_no_attempt_that_succeeded_would_fail(values: list[float], seed: int, follows: bool) -> None:
    chance = np.random.default_rng(seed)
    inputs = np.array(values) * chance.uniform(0.5, 1.5) if follows else chance.uniform(1, 1e10, len(values))
    tasks = table(values, input_bytes=inputs.round())
    found = only(tasks)
    assert found.memory is not None
    used = tasks["memory_peak_bytes"].to_numpy(float)
    assert (found.memory.bytes(tasks["input_bytes"].to_numpy(float)) >= used).all()


def test_attempts_that_are_too_old_to_learn_from_would_not_fail_either() -> None:
    found = only(table([8 * GB, *uniform(NEWEST)]))
    assert found.memory is not None and found.memory_bytes is not None
    assert 8 * GB <= found.memory_bytes < 9 * GB


def evaluated(expression: str, input_bytes: float, attempt: int = 1) -> float:
    """Return what Snakemake would ask for: the expression with its input and attempt."""
    return float(eval(expression, {"input": SimpleNamespace(size_mb=input_bytes / MIB), "attempt": attempt}))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["line", "steps", "constant"]), st.sampled_from([0.0, 0.02]))
def test_what_is_printed_asks_for_what_the_rule_says(seed: int, law: str, may_fail: float) -> None:
    chance = np.random.default_rng(seed)
    inputs = chance.uniform(1, 10, 60).round(9) * GB
    used = {"line": inputs * 2 + GB, "steps": np.where(inputs < 4 * GB, GB, 8 * GB), "constant": inputs * 0 + 3 * GB}
    tasks = table(used[law] * chance.uniform(0.98, 1, 60), input_bytes=inputs.round())
    found = only(tasks, may_fail)
    assert found.memory is not None
    text = advised.mem_mb(found.memory)
    for size in [*inputs.round(), 0.0, 3e10]:
        ours = found.memory.bytes(np.array([size]))[0] / 1e6
        assert ours <= evaluated(text, size) <= ours * 1.003 + 2
    if may_fail:
        profile = yaml.safe_load(advised.snakemake_profile([found]))
        again = str(profile["set-resources"]["align"]["mem_mb"])
        assert profile["retries"] == advised.RETRIES
        assert evaluated(again, inputs[0], 1) == evaluated(text, inputs[0])
        assert evaluated(again, inputs[0], 2) * 1e6 >= used[law].max() * 0.98
        assert evaluated(again, inputs[0], 3) == 2 * evaluated(again, inputs[0], 2)


@pytest.mark.parametrize("edge", [3_806_483_068, 3_806_483_069, 2**30, 1])
def test_an_input_at_the_edge_of_a_step_belongs_to_the_next_one(edge: int) -> None:
    text = advised.mem_mb(Rule("steps", np.array([float(edge)]), np.array([1, 8]) * GB))
    assert [evaluated(text, edge - 2), evaluated(text, edge)] == [1000, 8000]


def test_the_more_attempts_the_nearer_to_the_highest() -> None:
    over = []
    for count in (6, 40, 1500):
        found = only(table(uniform(count)))
        assert found.memory_bytes is not None and found.highest_bytes is not None
        over.append(found.memory_bytes / found.highest_bytes)
    assert over[0] > over[1] > over[2] > 1


def test_six_attempts_that_are_alike_do_not_say_that_the_next_run_is_like_them() -> None:
    # peaks of one rule in three runs of six attempts: 164, 164 and 153 MiB, hardly any spread in each
    assert only(table([153 * MIB - 10_000 * n for n in range(6)])).memory_bytes > 164 * MIB  # type: ignore[operator]
    assert only(table([153 * MIB] * 600)).memory_bytes < 1.025 * 153 * MIB  # type: ignore[operator]


def test_failures_that_are_allowed_save_memory_where_few_attempts_use_much() -> None:
    tasks = table(np.insert(uniform(300), [20, 60], [20 * GB, 30 * GB]))
    safe, bold = only(tasks), only(tasks, 0.05)
    assert safe.memory_bytes is not None and bold.memory_bytes is not None
    assert safe.memory_bytes > 30 * GB and bold.memory_bytes < 2 * GB
    assert bold.backtest is not None and safe.backtest is not None
    assert bold.backtest.advised.wasted_gb_h < 0.75 * safe.backtest.advised.wasted_gb_h


def test_an_attempt_that_died_at_its_limit_needs_more_than_that() -> None:
    tasks = table([*uniform(20), 4 * GB], memory_asked_bytes=4 * GB)
    tasks.loc[20, "state"] = "failed"
    found = only(tasks)
    assert found.memory_bytes is not None and found.memory_bytes >= 8 * GB
    assert found.attempts == 21 and "1 ended at the limit" in found.notes[0]


def test_a_later_attempt_that_succeeded_says_what_the_first_one_needed() -> None:
    tasks = table([*uniform(20), 1 * GB, 1.6 * GB], memory_asked_bytes=[GB] * 21 + [2 * GB])
    tasks.loc[20, "state"] = "failed"
    tasks.loc[20, "key"] = tasks.loc[21, "key"] = "align-again"
    found = only(tasks)
    assert found.attempts == 21 and found.highest_bytes == 1.6 * GB
    assert "1 failed left out" in found.notes


@pytest.mark.parametrize("flag", ["oom", None])
def test_an_oom_that_nobody_sampled_counts_as_the_limit(flag: str | None) -> None:
    flags: list[list[str]] = [[] for _ in range(21)]
    flags[20] = [flag] if flag else []
    tasks = table([*uniform(20), 0.2 * GB], memory_limit_bytes=4 * GB, flags=flags)
    tasks.loc[20, "state"] = "failed"
    found = only(tasks)
    assert found.memory_bytes is not None
    assert (found.memory_bytes >= 8 * GB) == (flag == "oom")


@pytest.mark.parametrize("flag", ["shared", "truncated", "memory-estimated"])
def test_peaks_that_say_too_little_are_not_learned_from(flag: str) -> None:
    tasks = table(uniform(20), flags=[[flag]] * 16 + [[]] * 4)
    found = only(tasks)
    assert found.memory is None and found.attempts == 4
    assert found.notes == (f"16 left out: {flag}", "no advice on memory: 4 attempts with a sure peak, 5 are needed")


def test_no_data_is_no_advice() -> None:
    assert advise(made.tasks_table([])) == []
    assert "no advice on memory: 1 attempt with a sure peak, 5 are needed" in only(table([GB])).notes
    for tasks in (table([GB]), table([None] * 20), table(uniform(20), wall_s=None), table(uniform(20), state="failed")):
        found = only(tasks)
        assert found.memory is None and found.notes
        assert "no advice" in advised.snakemake_profile([found]) or found.runtime_s
    assert "no advice" in advised.resources_lines(advise(table([GB])))
    assert "no advice" in advised.dask_lines(advise_dask(made.make(3)))


def test_threads_follow_the_cores_that_were_busy() -> None:
    def threads(cores: float, asked: int, **more: Any) -> int | None:
        return only(table(uniform(8), cpu_s=cores * 3600, threads_asked=asked, **more)).threads

    assert threads(1.04, 8) == 2 and threads(0.9, 8) == 1 and threads(5.9, 8) is None
    assert threads(1.04, 8, flags=[["estimated"]] * 8) is None
    assert threads(1.04, 8, wall_s=0.5) is None
    assert only(table(uniform(4), cpu_s=10.0, threads_asked=8)).threads is None


def test_runtime_lies_above_the_longest_and_above_one_that_was_cut_off() -> None:
    assert only(table(uniform(8))).runtime_s == 5400
    cut = table(uniform(9), runtime_asked_s=7200.0, wall_s=[3600.0] * 8 + [7200.0])
    cut.loc[8, "state"] = "failed"
    found = only(cut)
    assert found.runtime_s is not None and found.runtime_s >= 1.5 * 2 * 7200


def test_the_group_that_saves_most_comes_first_and_the_back_test_is_in_what_is_printed() -> None:
    small = table(uniform(40) / 100, "small", memory_asked_bytes=2 * GB)
    large = table(uniform(40), "large", memory_asked_bytes=40 * GB)
    found = advise(pd.concat([small, large], ignore_index=True))
    assert [advice.group for advice in found] == ["large", "small"]
    tested = found[0].backtest
    assert tested is not None and tested.asked is not None and tested.advised.attempts == 28
    assert tested.asked.wasted_gb_h == pytest.approx(28 * 40 - (uniform(40)[12:] / GB).sum())
    profile = advised.snakemake_profile(found)
    assert f"{tested.advised.failed} failures" in profile and "applied to the 56 attempts" in profile
    text = printed(found)
    assert "56 attempts" in text and "as asked" in text and "highest seen + 5 %" in text
    assert json.loads(json.dumps(advised.as_json(found, 0.0), allow_nan=False))["groups"][0]["group"] == "large"


def test_names_of_groups_are_data_everywhere() -> None:
    hostile = 'x": [red]\n- {evil'
    found = advise(table(uniform(20), hostile, cpu_s=3600.0, threads_asked=8))
    profile = yaml.safe_load(advised.snakemake_profile(found))
    assert list(profile["set-resources"]) == [hostile] == list(profile["set-threads"])
    assert "\n- {evil" not in advised.resources_lines(found)
    assert "[red]" in printed(found)


def test_workers_hold_what_the_fullest_one_held_below_where_dask_spills() -> None:
    run = made.make(60)
    (found,) = advise_dask(run)
    highest = run.tasks["memory_peak_bytes"].max()
    assert found.nodes == ("n1", "n2") and found.threads == 2
    assert found.memory_limit_bytes == pytest.approx(highest / 0.7)
    assert found.workers * found.threads <= 2 * 4
    assert found.workers * found.memory_limit_bytes <= 16 * made.GIB
    line = advised.dask_lines([found]).splitlines()[1]
    assert f"--nworkers {found.workers} --nthreads 2 --memory-limit {math.ceil(highest / 0.7 / MIB)}MiB" in line


def worked(tasks: list[dict[str, Any]], nodes: dict[str, tuple[int, int | None]] | None = None) -> made.Made:
    """A Dask run of these tasks, from 0 s to 100 s where they do not say it, on nodes of so many CPUs and bytes."""
    usual = {"kind": "dask", "group": "g", "state": "done", "worker": "w1", "thread": 1, "wall_s": 10.0, "cpu_s": 5.0,
             "memory_peak_bytes": 100 * MIB, "start": 0, "stop": 100}  # fmt: skip
    rows = [{"key": f"g-{number}", "attempt_id": str(number), **usual, **task} for number, task in enumerate(tasks)]
    for row in rows:
        row |= {f"{name}_ns": made.START_NS + row.pop(name) * made.SECOND for name in ("start", "stop")}
    info = {"nodes": {name: {"num_cpus": cpus, "memory_bytes": memory}
                      for name, (cpus, memory) in (nodes or {"n1": (4, 16 * made.GIB)}).items()}}  # fmt: skip
    return made.Made(info, made.tasks_table(rows))


def test_workers_follow_from_tasks_that_say_all_and_from_the_size_of_their_node() -> None:
    long = {"wall_s": 30.0, "cpu_s": 27.0}  # of all time 0.8 cores, of the mean task 0.7
    told = [{"thread": n % 2} for n in range(4)] + [long] + [{**long, "worker": "w2", "thread": n} for n in range(3)]
    told[0]["memory_peak_bytes"] = 700 * MIB
    huge = {"memory_peak_bytes": 50 * made.GIB, "cpu_s": 1000.0}
    silent = [{"kind": "snakemake"}, {"flags": ["truncated"]}, {"worker": None}, {"cpu_s": None}, {"wall_s": None},
              {"memory_peak_bytes": None}]  # fmt: skip
    nodes: dict[str, tuple[int, int | None]] = {
        "n1": (4, 1500 * MIB), "n2": (4, 1500 * MIB), "big": (8, 64 * made.GIB), "tiny": (4, 800 * MIB),
        "lone": (1, 64 * made.GIB), "odd": (4, None),
    }  # fmt: skip
    found = advise_dask(worked([*told, *({**huge, **one} for one in silent)], nodes))
    evidence = "8 tasks on 2 workers of 2 threads kept 0.80 cores busy each; the fullest worker held 700 MiB"
    assert [(one.nodes, one.workers, one.threads, round(one.memory_limit_bytes / MIB)) for one in found] == [
        (("lone",), 1, 1, 1000), (("tiny",), 1, 2, 800), (("n1", "n2"), 1, 2, 1000), (("big",), 5, 2, 1000),
    ]  # fmt: skip
    assert [one.evidence for one in found] == [evidence, f"{evidence}, and such a node has 800 MiB", evidence, evidence]


def test_workers_of_tasks_that_wait_run_two_a_core_and_none_gets_less_than_64_mib() -> None:
    (found,) = advise_dask(worked([{"cpu_s": 0.5, "memory_peak_bytes": MIB} for _ in range(5)]))
    assert (found.workers, found.threads, found.memory_limit_bytes) == (8, 1, 64 * MIB)


@pytest.mark.parametrize("tasks", [[{}] * 4, [{"wall_s": 0.0, "cpu_s": 0.0}] * 5], ids=["too few", "no time"])
def test_workers_are_not_advised_from_next_to_nothing(tasks: list[dict[str, Any]]) -> None:
    assert advise_dask(worked(tasks)) == [] and len(advise_dask(worked([{}] * 5))) == 1


@pytest.mark.parametrize(
    ("first", "second", "events", "workers"),
    [
        ((0, 10), (50, 55), [], 1),
        ((0, 60), (50, 55), [], 2),
        ((0, 10), (50, 55), [("worker-left", "w1", 60)], 2),
        ((0, 10), (50, 55), [("worker-joined", "w2", 5)], 2),
        ((0, 10), (50, 55), [("worker-memory", "w2", 5), ("worker-memory", "w1", 60)], 1),
        ((0, 10), (5, 7), [("worker-joined", "w1", 8)], 2),
        ((0, 10), (5, 7), [("worker-left", "w1", 4)], 2),
        ((0, 10), (50, 55), [("worker-joined", "w9", 0), ("worker-left", "w9", 99)], 1),
    ],
)
def test_a_worker_lives_from_its_first_task_to_its_last_and_as_long_as_the_scheduler_saw_it(
    first: tuple[int, int], second: tuple[int, int], events: list[tuple[str, str, int]], workers: int
) -> None:
    when = [("w1", *first)] * 4 + [("w2", *second)]
    run = worked([{"worker": name, "start": start, "stop": stop} for name, start, stop in when])
    run.events = pd.DataFrame({
        "time_ns": [made.START_NS + at * made.SECOND for *_, at in events], "kind": [kind for kind, *_ in events],
        "text": "", "detail": [json.dumps({"worker": name}) for _, name, _ in events],
    })  # fmt: skip
    (found,) = advise_dask(run)
    assert f"5 tasks on {workers} worker{'s' * (workers > 1)} of " in found.evidence


def restarted(names: list[str], *, told: bool = False) -> made.Made:
    """A run of ten tasks on one worker of two threads, and of one task on each of the others, one after the other."""
    run = made.make(9 + len(names), nodes=1, workers=1, threads=2, samples=False)
    run.tasks = run.tasks.sort_values("start_ns", ignore_index=True)
    run.tasks["worker"] = [names[0]] * 10 + names[1:]
    run.tasks.loc[10:, ["start_ns", "stop_ns"]] += np.arange(1, len(names))[:, None] * 100 * made.SECOND
    if told:
        run.events = pd.DataFrame({
            "time_ns": made.START_NS, "kind": "worker-joined", "text": "",
            "detail": [json.dumps({"worker": name}) for name in names],
        })  # fmt: skip
    return run


@pytest.mark.parametrize(("told", "workers"), [(False, "1 worker"), (True, "4 workers")], ids=["restarted", "at once"])
def test_a_worker_that_was_restarted_is_no_second_one(told: bool, workers: str) -> None:
    run = restarted(["tcp://a", "tcp://b", "tcp://c", "tcp://d"], told=told)
    (found,) = advise_dask(run)
    assert f" on {workers} of 2 threads kept " in found.evidence and found.threads == 2
    assert f" on {workers} of 2 threads kept " in advised.dask_lines([found])


SNAKEFILE = """
rule all:
    input: "small.out", "large.out"

rule align:
    input: "{size}.in"
    output: "{size}.out"
    threads: 8
    shell: "echo {resources.mem_mb} {threads} {resources.runtime} > {output}"
"""


@pytest.mark.parametrize("form", ["snakemake-profile", "resources"])
def test_snakemake_takes_the_advice_as_it_is_printed(form: str, tmp_path: Path) -> None:
    snakemake = shutil.which("snakemake", path=str(Path(sys.executable).parent))
    if snakemake is None:
        pytest.skip("snakemake is not installed")
    inputs = np.linspace(1, 40, 40) * MIB
    found = advise(table(GB + 100 * inputs, input_bytes=inputs, cpu_s=3600.0 * 1.5, threads_asked=8))
    (tmp_path / "small.in").write_bytes(b"")
    with (tmp_path / "large.in").open("wb") as file:
        file.truncate(30 * MIB)
    command = [snakemake, "--cores", "8", "--quiet", "all"]
    if form == "snakemake-profile":
        (tmp_path / "Snakefile").write_text(SNAKEFILE)
        (tmp_path / "profile").mkdir()
        (tmp_path / "profile/config.yaml").write_text(advised.snakemake_profile(found))
        command += ["--profile", "profile"]
    else:
        lines = advised.resources_lines(found).split("\n\n")[1]
        (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("    threads: 8\n", lines + "\n"))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rule = found[0].memory
    assert rule is not None and rule.shape == "line"
    for name, size in (("small", 0.0), ("large", 30.0 * MIB)):
        memory, threads, runtime = (float(word) for word in (tmp_path / f"{name}.out").read_text().split())
        ours = rule.bytes(np.array([size]))[0] / 1e6
        assert ours <= memory <= 1.003 * ours + 2 and (threads, runtime) == (2, 90)
