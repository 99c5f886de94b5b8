"""Every way in which Snakemake runs a job: each has its row, and the workflow goes as without us."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import jumper
from tests.snakemake.conftest import Workflow, row

Make = Callable[[str], Workflow]

KINDS = """
rule all:
    input: "shadow.txt", "sink.txt", "gathered.txt", "wrapped.txt", "client.txt", "twice.txt"
rule shadowed:
    output: "shadow.txt"
    shadow: "minimal"
    benchmark: "shadow.tsv"
    shell: "echo > {output}"
rule source:
    output: pipe("pipe.txt")
    shell: "echo through > {output}"
rule sink:
    input: "pipe.txt"
    output: "sink.txt"
    shell: "cat {input} > {output}"
checkpoint many:
    output: directory("parts")
    shell: "mkdir {output}; touch {output}/one"
rule part:
    input: "parts/{name}"
    output: "done/{name}"
    shell: "touch {output}"
def parts(wildcards):
    import os
    return [f"done/{name}" for name in os.listdir(checkpoints.many.get().output[0]) if name[0] != "."]
rule gather:
    input: parts
    output: "gathered.txt"
    run:
        open(output[0], "w").close()
rule wrapped:
    output: "wrapped.txt"
    wrapper: "file:wrap"
rule service:
    output: service("service.txt")
    shell: "touch {output}; sleep 300"
rule client:
    input: "service.txt"
    output: "client.txt"
    shell: "test -e {input}; touch {output}"
rule twice:
    output: "twice.txt"
    resources: mem_mb=50, runtime=2
    run:
        shell("touch {output}")
        assert next(shell("echo word", iterable=True)) == "word"
        assert shell("echo word", read=True).strip() == "word"
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workflow, str]:
    """All kinds, run once."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "Snakefile").write_text(KINDS)
    (folder / "wrap").mkdir()
    (folder / "wrap/wrapper.py").write_text("open(snakemake.output[0], 'w').close()\n")
    (folder / "wrap/environment.yaml").write_text("channels: []\n")
    made = Workflow(folder)
    return made, made.done("-j4")


def test_every_kind_of_job_has_a_row_with_its_cost(kinds: tuple[Workflow, str]) -> None:
    tasks = kinds[0].run().tasks
    keys = {"shadowed", "source", "sink", "many", "part[name=one]", "gather", "wrapped", "service", "client", "twice"}
    assert set(tasks["key"]) == keys
    assert tasks["cpu_s"].notna().all()
    assert tasks["memory_peak_bytes"].notna().all()
    assert set(tasks["state"]) == {"done"}
    assert "jumper: this" not in kinds[1]


def test_a_job_asks_for_what_its_rule_asks_for_whatever_process_runs_it(kinds: tuple[Workflow, str]) -> None:
    asked = kinds[0].run().tasks.set_index("key")[["threads_asked", "memory_asked_bytes", "runtime_asked_s"]]
    assert asked.loc["twice"].tolist() == [1, 50e6, 120]
    others = asked.drop(index="twice")  # a process of its own, of `run:` and of shadow, has defaults of its own
    assert others[["memory_asked_bytes", "runtime_asked_s"]].isna().all().all()
    assert (others["threads_asked"] == 1).all()


def test_defaults_that_the_user_sets_are_asked_for(workflow: Make) -> None:
    made = workflow("""
rule all:
    input: "a.txt", "b.txt"
rule own:
    output: "a.txt"
    threads: 3
    resources: mem_mb=50
    run:
        open(output[0], "w").close()
rule plain:
    output: "b.txt"
    run:
        open(output[0], "w").close()
""")
    (made.folder / "profile").mkdir()
    (made.folder / "profile/config.yaml").write_text("default-resources:\n  mem_mb: 70\n  runtime: 3\n")
    made.done("--profile", "profile")
    asked = made.run().tasks.set_index("key")[["threads_asked", "memory_asked_bytes", "runtime_asked_s"]]
    assert asked.loc["own"].tolist() == [2, 50e6, 180]
    assert asked.loc["plain"].tolist() == [1, 70e6, 180]


def test_a_local_rule_on_a_cluster_asks_for_what_its_rule_or_the_user_asks_for(workflow: Make) -> None:
    """Where the user sets any default, Snakemake gives 1000 MB to every rule; only what goes there asks for it."""
    made = workflow("""
localrules: all, plain, inside, own, profiled
names = ["plain", "inside", "own", "profiled", "sent"]
rule all:
    input: expand("{name}.txt", name=names)
for name in ("plain", "profiled", "sent"):
    rule:
        name: name
        output: f"{name}.txt"
        shell: "touch {output}"
rule own:
    output: "own.txt"
    resources: mem_mb=lambda wildcards, attempt: 50 * attempt
    shell: "touch {output}"
rule inside:
    output: "inside.txt"
    run:
        open(output[0], "w").close()
""")
    (made.folder / "profile").mkdir()
    (made.folder / "profile/config.yaml").write_text(
        "set-resources:\n  profiled:\n    mem_mb: 60\ndefault-resources:\n  runtime: 3\n"
    )
    submit = made.folder / "submit.sh"
    submit.write_text('#!/bin/sh\nsh "$1" > "$1.out" 2>&1 < /dev/null &\necho batch-$!\n')
    submit.chmod(0o755)
    made.done(
        "-j4", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", str(submit), "--profile", "profile",
        "--latency-wait", "60", "--seconds-between-status-checks", "1",
    )  # fmt: skip
    asked = made.run().tasks.set_index("key")[["memory_asked_bytes", "runtime_asked_s"]]
    assert asked.loc[["own", "profiled", "sent"], "memory_asked_bytes"].tolist() == [50e6, 60e6, 1000e6]
    assert asked.loc[["plain", "inside"], "memory_asked_bytes"].isna().all()
    assert (asked["runtime_asked_s"] == 180).all()


def test_a_service_is_done_when_snakemake_ends_it(kinds: tuple[Workflow, str]) -> None:
    task = kinds[0].task("service")
    assert (task["state"], task["exit_code"], task["reason"]) == ("done", -15, "ended by signal 15")


def test_what_a_rule_runs_is_noted(kinds: tuple[Workflow, str]) -> None:
    notes = {key: json.loads(text) for key, text in kinds[0].run().tasks.set_index("key")["annotations"].items()}
    assert {key: note["directive"] for key, note in notes.items() if key in ("sink", "wrapped", "twice")} == {
        "sink": "shell",
        "wrapped": "wrapper",
        "twice": "run",
    }
    assert notes["shadowed"]["benchmark"] == "shadow.tsv"


def test_nothing_is_to_be_done_again_without_us(kinds: tuple[Workflow, str]) -> None:
    again = kinds[0].call("-n", logger=())
    assert "Nothing to be done" in again.stdout + again.stderr


def test_an_empty_run_and_a_dry_run_leave_nothing_behind(workflow: Make) -> None:
    made = workflow("rule a:\n    output: 'a.txt'\n    shell: 'touch {output}'\n")
    made.done("-n")
    assert made.runs() == []
    (made.folder / "a.txt").touch()
    made.done()
    assert made.runs() == []
    assert not (made.folder / ".snakemake/jumper").exists()


def test_jobs_of_a_cluster_that_clears_the_environment(workflow: Make) -> None:
    made = workflow("""
rule all:
    input: "grouped.txt", "retried.txt"
rule retried:
    output: "retried.txt"
    benchmark: "retried.tsv"
    retries: 1
    resources: mem_mb=lambda wildcards, attempt: 100 * attempt
    shell: "test {resources.mem_mb} -ge 200; python -S -c 'sum(i for i in range(3000000))'; touch {output}"
rule first:
    output: "first.txt"
    group: "both"
    shell: "touch {output}"
rule second:
    input: "first.txt"
    output: "grouped.txt"
    group: "both"
    run:
        open(output[0], "w").close()
""")
    submit = made.folder / "submit.sh"
    submit.write_text('#!/bin/sh\nenv -i PATH="$PATH" HOME="$HOME" PYTHONPATH="$PYTHONPATH" '
                      'sh "$1" > "$1.log" 2>&1 < /dev/null &\necho $!\n')  # fmt: skip
    submit.chmod(0o755)
    made.done("-j2", "--executor", "cluster-generic", "--cluster-generic-submit-cmd", str(submit),
              "--latency-wait", "60")  # fmt: skip
    run = made.run()
    first, second = row(run, "retried"), row(run, "retried", "1.2.1")
    assert (first["state"], second["state"]) == ("failed", "done")
    assert first["pid"] != second["pid"]  # of the shell that ran it
    assert float((made.folder / "retried.tsv").read_text().split()[-1]) == pytest.approx(second["cpu_s"], abs=0.01)
    assert {"first", "second"} < set(run.tasks["key"])
    assert len({row(run, key)["pid"] for key in ("retried", "first", "second")}) == 3
    assert run.info["coverage"]["missing"] == []


def test_two_runs_in_one_directory_at_once(workflow: Make) -> None:
    made = workflow("rule one:\n    output: '{name}.txt'\n    shell: 'sleep 1; touch {output}'\n")
    both = [threading.Thread(target=made.done, args=("--nolock", f"{name}.txt")) for name in "ab"]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(key for path in made.runs() for key in jumper.open_run(path).tasks["key"]) == [
        "one[name=a]",
        "one[name=b]",
    ]
    assert len(made.runs()) == 2


def test_rule_python_in_threads_has_the_cost_of_its_thread(workflow: Make) -> None:
    made = workflow("""
rule all:
    input: "0.txt", "1.txt"
rule one:
    output: "{i}.txt"
    run:
        import time
        began = time.thread_time()
        while time.thread_time() - began < 0.4 + 0.4 * int(wildcards.i):
            pass
        open(output[0], "w").close()
""")
    made.done("-j2", "--force-use-threads")
    for i in (0, 1):
        task = made.task(f"one[i={i}]")
        assert task["cpu_s"] == pytest.approx(0.4 + 0.4 * i, abs=0.03)
        assert "shared" in task["flags"]  # type: ignore[operator]


def test_a_workflow_that_a_job_starts_is_no_part_of_the_run(workflow: Make) -> None:
    made = workflow(f"""
rule outer:
    output: "outer.txt"
    shell: "{sys.executable} -m snakemake -c1 --directory inner --snakefile inner.smk; touch {{output}}"
""")
    (made.folder / "inner.smk").write_text("rule inner:\n    output: 'i.txt'\n    run:\n        open(output[0], 'w')\n")
    made.done()
    assert (made.folder / "inner/i.txt").exists()
    assert set(made.run().tasks["key"]) == {"outer"}


def test_wildcards_of_any_text_and_another_working_directory(workflow: Make, tmp_path: Path) -> None:
    names = ["sp ace", "a/b", "quo'te\"", "1 < 2 > 0 & 1", "\U0001f40d", "".join(map(str, range(80))), "a=1,b=2]"]
    made = workflow("rule one:\n    output: 'out/{name}.txt'\n    shell: 'touch {output:q}'\n")
    made.done("--directory", "else where", *(f"out/{name}.txt" for name in names))
    assert made.runs() == []
    tasks = Workflow(tmp_path / "else where").run().tasks
    assert sorted(json.loads(text)["name"] for text in tasks["wildcards"]) == sorted(names)
    assert set(tasks["state"]) == {"done"}
    assert tasks["key"].is_unique


def test_a_killed_snakemake_leaves_what_it_knew_and_resumes(workflow: Make) -> None:
    kill = "test -e again || {{ touch {output} again; sleep 2; kill -9 $PPID; }}"
    made = workflow(f"rule one:\n    output: 'a.txt'\n    shell: '{kill}; touch {{output}}'\n")
    assert made.call().returncode == -9
    made.done("--rerun-incomplete", "--nolock")
    lost, done = (row(jumper.open_run(path), "one") for path in made.runs())
    assert (lost["state"], done["state"]) == ("lost", "done")
    assert lost["samples"] >= 1  # type: ignore[operator]


def test_where_nothing_can_be_written_jobs_run_all_the_same(workflow: Make) -> None:
    made = workflow("""
rule all:
    input: "a.txt", "b.txt"
rule a:
    output: "a.txt"
    benchmark: "a.tsv"
    shell: "sleep 0.2; touch {output}"
rule b:
    output: "b.txt"
    benchmark: "b.tsv"
    run:
        open(output[0], "w").close()
""")
    said = made.done("--logger-jumper-dir", "/dev/null")
    warnings = [line for line in said.splitlines() if "jumper" in line and "Command:" not in line]
    assert len(warnings) == 1
    assert "/dev/null" in warnings[0]
    for name in ("a", "b"):  # Snakemake's own values, then
        assert float((made.folder / f"{name}.tsv").read_text().splitlines()[1].split()[2]) > 0


def test_tools_that_call_snakemake_themselves(workflow: Make) -> None:
    made = workflow("rule one:\n    output: 'a.txt'\n    shell: 'touch {output}'\n")
    done = subprocess.run(
        [sys.executable, "-m", "jumper_snakemake", "run", "--report", "none", "--",
         "sh", "-c", f"{sys.executable} -m snakemake -c1; exit 7"],
        cwd=made.folder, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert "jumper: 1 job measured" in done.stderr
    assert made.task("one")["state"] == "done"
