"""Jobs on a real Slurm: of the Slurm plugin, on two nodes, and ended by it; each with its cost and its node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jumper
from jumper.core.run import Run
from jumper.store.segments import read_segment
from tests.cluster.beds import NETNS, Slurm
from tests.snakemake.conftest import CASES, REPOSITORY, row
from tests.snakemake.test_foreign import SHIPPED, files
from tests.snakemake.test_truth import close, cpu, times

PLUGIN = """
localrules: all
rule all:
    input: "smp.txt", "run.txt", "mpi.txt", "again.txt"
rule smp:
    input: "rank.py"
    output: "smp.txt"
    threads: 2
    resources: mem_mb=900, runtime=5
    shell: "python3 -S {input} 1.0 100 smp; touch {output}; times > smp.times"
rule run:
    output: "run.txt"
    resources: mem_mb=900, runtime=5
    run:
        import time
        begin = time.process_time()
        while time.process_time() - begin < 1:
            pass
        open(output[0], "w").close()
rule mpi:
    output: "mpi.txt"
    benchmark: "mpi.tsv"
    resources: mem_mb=900, runtime=5, tasks=2, nodes=2, mpi="srun"
    shell: "{resources.mpi} -n {resources.tasks} python3 -S rank.py 2.0 150 mpi; touch {output}; times > mpi.times"
rule kids:
    output: "kids.txt"
    group: "truth"
    resources: mem_mb=900, runtime=5
    shell: "for i in $(seq 20); do python3 -S burn.py 0.05; done; times > kids.times; touch {output}"
rule late:
    input: "kids.txt"
    output: "late.txt"
    group: "truth"
    resources: mem_mb=900, runtime=5
    shell: "python3 -S hold.py 1.3 220 0 late.peak; touch {output}"
rule brief:
    input: "late.txt"
    output: "brief.txt"
    group: "truth"
    resources: mem_mb=900, runtime=5
    shell: "python3 -S hold.py 0 200 0 brief.peak; times > brief.times; touch {output}"
rule detached:
    input: "brief.txt"
    output: "detached.txt"
    group: "truth"
    resources: mem_mb=900, runtime=5
    shell: "setsid -f python3 -S hold.py 0 300 30 detached.peak;"
           " until test -s detached.peak; do sleep 0.1; done; sleep 1; touch {output}; kill $(cat detached.peak.pid)"
rule again:
    input: "detached.txt"
    output: "again.txt"
    group: "truth"
    retries: 1
    resources: mem_mb=lambda wildcards, attempt: 450 * attempt, runtime=5
    shell: "python3 -S burn.py 0.2; times > again.{resources.mem_mb}.times; test {resources.mem_mb} = 900;"
           " touch {output}"
"""
PAGE = (REPOSITORY / "docs/slurm.md").read_text()
(PROFILE,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
#: this Slurm has no accounting
SLURM = ("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "3")
#: node -> seconds that its wall clock is ahead while the plugin runs its jobs; where it is behind, srun's waits run out
AHEAD = {"node1": 3600, "node2": 1800, "node3": 600}
#: Holds 120 MB for a while, then takes more than it may.
GROW = """
import time
held = bytearray(120 * 10**6)
time.sleep(2)
more = bytearray(600 * 10**6)
time.sleep(60)
"""
#: How Slurm is asked for a job by the cluster-generic plugin.
STATUS = """#!/bin/sh
case $(scontrol -o show job "$1" | sed 's/.*JobState=//; s/ .*//') in
COMPLETED) echo success ;;
PENDING | CONFIGURING | RUNNING | COMPLETING) echo running ;;
*) echo failed ;;
esac
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm that ends jobs for their memory."""
    cluster = Slurm(tmp_path_factory.mktemp("slurm"), EXTRA_CONF="JobAcctGatherParams=OverMemoryKill")
    yield cluster
    cluster.down()


def snakemake(bed: Slurm, folder: Path, snakefile: str, *arguments: str, path: str = "") -> Any:
    """Run Snakemake on the login host on a workflow of ours; return what it said."""
    (folder / "Snakefile").write_text(snakefile)
    for program in ("rank.py", "burn.py", "hold.py"):
        shutil.copy(CASES / program, folder)
    (folder / "status.sh").write_text(STATUS)
    (folder / "grow.py").write_text(GROW)
    (folder / "status.sh").chmod(0o755)
    return started(bed, folder, *arguments, path=path)


def started(bed: Slurm, folder: Path, *arguments: str, path: str = "") -> Any:
    """Run Snakemake on the login host on what is in a folder; return what it said."""
    path += f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "snakemake", *arguments, "--latency-wait", "60", "--logger-jumper-report", "none"]
    return bed.run(*command, cwd=folder, env=environment, timeout=280)


def said_by_jobs(bed: Slurm, folder: Path) -> Iterator[str]:
    """Yield what Slurm and the jobs' own logs say of the jobs that were submitted below a folder."""
    jobs = bed.run("scontrol", "--oneliner", "show", "job").stdout.splitlines()
    yield from (job for job in jobs if f"WorkDir={folder}/" in job)
    yield from (f"{log}:\n{log.read_text()[-2000:]}" for log in folder.glob("*/.snakemake/slurm_logs/**/*.log"))


def the_run(folder: Path) -> Run:
    (path,) = (folder / ".snakemake/jumper/runs").glob("*")
    return jumper.open_run(path)


@pytest.fixture(scope="module")
def plugin(bed: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the Slurm plugin ran a job of each kind."""
    pytest.importorskip("snakemake_executor_plugin_slurm")
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "profile").mkdir()
    (folder / "profile/config.yaml").write_text(PROFILE)
    lies = AHEAD if shutil.which("cc") else {}
    for node, ahead in lies.items():
        subprocess.run(["bash", NETNS, "clock", bed.folder, node, str(ahead)], check=True, capture_output=True)
    try:
        done = snakemake(bed, folder, PLUGIN, "--profile", "profile", *SLURM)
    finally:
        for node in lies:
            subprocess.run(["bash", NETNS, "clock", bed.folder, node, "0"], check=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_job_of_one_node_costs_what_the_kernel_says(plugin: Path) -> None:
    task = row(the_run(plugin), "smp")
    (said,) = plugin.glob("smp.node?")
    assert task["node"] == said.suffix[1:]
    assert cpu(task["cpu_s"], times(plugin / "smp.times"))
    assert close(task["memory_peak_bytes"], float(said.read_text().split()[1]), 0.01, 0)
    assert str(task["external_id"]).isdigit()
    asked = ("threads_asked", "memory_asked_bytes", "runtime_asked_s", "input_bytes")
    assert [task[name] for name in asked] == [2, 900 * 10**6, 300, (plugin / "rank.py").stat().st_size]
    assert 2 * 80e6 < task["memory_beside_bytes"] < 2 * 300e6  # two Snakemakes


def test_rule_python_on_a_node_costs_what_it_used(plugin: Path) -> None:
    task = row(the_run(plugin), "run")
    assert cpu(task["cpu_s"], 1.0)
    assert task["node"] in ("node1", "node2", "node3")


@pytest.mark.parametrize("said", ["kids", "brief", "again.450", "again.900"])
def test_short_children_short_jobs_and_failed_attempts_cost_what_the_shell_says(plugin: Path, said: str) -> None:
    run = the_run(plugin)
    task = row(run, said.partition(".")[0], "1.2.1" if said == "again.900" else "1.1.1")
    assert cpu(task["cpu_s"], times(plugin / f"{said}.times"))
    assert task["state"] == ("failed" if said == "again.450" else "done")
    assert task["external_id"] == row(run, "late")["external_id"]  # one job of Slurm for all of the group


@pytest.mark.parametrize("key", ["late", "brief", "detached"])
def test_peaks_at_the_end_of_short_jobs_and_of_a_child_that_detached_are_seen(plugin: Path, key: str) -> None:
    said = int((plugin / f"{key}.peak").read_text())
    assert close(row(the_run(plugin), key)["memory_peak_bytes"], said, 0.01, 0)


def test_each_node_of_a_parallel_job_has_its_part(plugin: Path) -> None:
    run = the_run(plugin)
    task, said = row(run, "mpi"), {path.suffix[1:]: path.read_text().split() for path in plugin.glob("mpi.node?")}
    parts = run.parts[run.parts["key"] == "mpi"].set_index("node")
    assert len(said) == 2
    assert set(parts.index) == set(said)
    for node, (used, peak) in said.items():
        own = times(plugin / "mpi.times") if node == task["node"] else 0.0  # of the shell, and of srun
        assert cpu(parts["cpu_s"][node], float(used) + own), node
        beside = parts["memory_peak_bytes"][node] - float(peak)
        assert abs(beside) <= 0.01 * float(peak) or (own and 0 < beside < 20e6), node
        assert parts["samples"][node] >= 2
    assert task["cpu_s"] == pytest.approx(parts["cpu_s"].sum())
    assert task["memory_peak_bytes"] == parts["memory_peak_bytes"].max()
    assert set(task["flags"]) <= {"estimated"}  # a busy machine may not see the ledger of Slurm's daemon


def test_the_benchmark_file_of_a_parallel_job_has_all_of_its_nodes(plugin: Path) -> None:
    header, values = (line.split("\t") for line in (plugin / "mpi.tsv").read_text().splitlines())
    benchmark = dict(zip(header, values, strict=True))
    task = row(the_run(plugin), "mpi")
    assert float(benchmark["cpu_time"]) == pytest.approx(task["cpu_s"], rel=0.02, abs=0.02)
    assert float(benchmark["max_rss"]) * 2**20 == pytest.approx(task["rss_peak_bytes"], rel=0.1)


def test_samples_of_all_nodes_are_in_one_time(plugin: Path) -> None:
    samples = the_run(plugin).samples("process")
    assert set(samples["node"]) >= {path.suffix[1:] for path in plugin.glob("mpi.node?")}
    assert samples["time_ns"].max() - samples["time_ns"].min() < 300e9  # monotonic clocks are 100,000 s apart


def test_the_clocks_of_nodes_stand_between_what_is_known_of_their_jobs(plugin: Path) -> None:
    """Each node's wall clock is wrong by minutes, those of followers of a parallel job too."""
    run = the_run(plugin)
    nodes = set(run.parts["node"])
    assert len(nodes) >= 2
    lies = AHEAD if shutil.which("cc") else {}
    for name, clock in run.info["clocks"].items():
        segment = read_segment(run.path / f"spool/{name}.seg", rows=False)
        if segment.node in nodes:
            mono, wall = segment.clock[0]
            true = wall - mono - lies.get(segment.node, 0) * 10**9  # all hosts have this machine's wall clock
            assert abs(clock["offset_ns"] - true) <= clock["error_ns"] + 50e6, name
            assert 0 < clock["error_ns"] < 120e9, name
        elif segment.node == "head":
            assert clock["error_ns"] == 0


def test_the_run_expects_and_has_all_jobs(plugin: Path) -> None:
    coverage = the_run(plugin).info["coverage"]
    assert {name: coverage[name] for name in ("expected", "came", "missing")} == {
        "expected": 9,
        "came": 9,
        "missing": [],
    }


@pytest.mark.parametrize(
    ("name", "targets", "rules"),
    [
        ("simple", ["test1.out", "res/somedir1.out"], {"a": 1, "d": 1}),
        pytest.param("simple", [], {"a": 1, "b": 1, "c": 1, "d": 2}, marks=pytest.mark.slow),
        pytest.param("groups", [], {"a": 3, "b": 3, "c": 1}, marks=pytest.mark.slow),
    ],
)
def test_a_workflow_that_snakemake_ships_gives_the_same_on_slurm_with_us_and_without(
    bed: Slurm, tmp_path: Path, name: str, targets: list[str], rules: dict[str, int]
) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm")
    usual = (
        "--executor",
        "slurm",
        "--jobs",
        "4",
        "--default-resources",
        "mem_mb=900",  # two Snakemakes of 170 MB, one of which counts twice while it forks
        "runtime=5",
        "slurm_partition=main",
        "--set-resources",
        "c:mem=900MB",  # both ask for 5 MB there
    )
    ways = {"without": (), "with": ("--logger", "jumper")}
    for way in ways:
        shutil.copytree(SHIPPED / name, tmp_path / way)
    with ThreadPoolExecutor() as both:
        ended = both.map(lambda w: started(bed, tmp_path / w, *usual, *SLURM, *targets, "--quiet", *ways[w]), ways)
    failed = {way: done.stderr[-2000:] for way, done in zip(ways, ended, strict=True) if done.returncode}
    assert failed == {}, "\n".join(said_by_jobs(bed, tmp_path))
    assert files(tmp_path / "with") == files(tmp_path / "without")
    assert len(files(tmp_path / "with")) > len(files(SHIPPED / name))
    tasks = the_run(tmp_path / "with").tasks
    assert tasks["group"].value_counts().to_dict() == rules
    assert tasks["cpu_s"].notna().all() and tasks["external_id"].str.isdigit().all()
    assert set(tasks["node"]) <= {"node1", "node2", "node3"}


def test_the_page_s_commands_measure_ranks_on_two_nodes(bed: Slurm, tmp_path: Path) -> None:
    (tmp_path / "solver").write_text(
        f"#!/bin/sh\nexec {sys.executable} -S {CASES}/rank.py 0.3 20 solver.$SLURM_PROCID\n"
    )
    (tmp_path / "solver").chmod(0o755)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "jumper").write_text(f'#!/bin/sh\nexec {sys.executable} -m jumper "$@"\n')
    (programs / "jumper").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    done = bed.run("bash", "-ec", COMMANDS, cwd=tmp_path, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    tasks = jumper.open_run(tmp_path / "solver.run").tasks
    said = {path.suffix[1:] for path in tmp_path.glob("solver.*.node?")}
    assert len(tasks) == 4
    assert len(said) == 2
    assert set(tasks["node"]) == said
    assert all(node in done.stdout for node in said)
    assert tasks["cpu_s"].min() >= 0.3


BATCH = """
rule hungry:
    output: "hungry.txt"
    resources: mem_mb=500, nodes=1
    shell: "python3 -S grow.py; touch {output}"
rule half:
    output: "half.txt"
    resources: mem_mb=900, nodes=2
    shell: "srun -n 2 python3 -S rank.py 1.0 50 half; touch {output}; times > half.times"
rule late:
    output: "late.txt"
    resources: mem_mb=900, nodes=1
    shell: "sleep 200; touch {output}"
"""
#: A Slurm in which a step that overlaps others never comes to be.
NO_OVERLAP = """#!/bin/sh
case " $* " in *" --overlap "*) exec sleep 1000 ;; esac
exec {srun} "$@"
"""


def submit(bed: Slurm, folder: Path, *targets: str, options: str = "", **environment: str) -> Run:
    """Run jobs by `sbatch`, one of which Slurm ends; return what was measured."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    command = f"sbatch --parsable --mem={{resources.mem_mb}} -N{{resources.nodes}} {options}"
    done = snakemake(
        bed, folder, BATCH, "--executor", "cluster-generic", "--cluster-generic-submit-cmd", command, "-j2",
        "--cluster-generic-status-cmd", str(folder / "status.sh"), "--seconds-between-status-checks", "1",
        "--keep-going", *(f"{target}.txt" for target in targets), "--logger", "jumper", **environment,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return the_run(folder)


@pytest.fixture(scope="module")
def batch(bed: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which jobs ran by `sbatch`, one of them beyond its memory."""
    folder = tmp_path_factory.mktemp("batch")
    (folder / "bin").mkdir()
    srun = folder / "bin/srun"
    srun.write_text(NO_OVERLAP.format(srun=shutil.which("srun")))
    srun.chmod(0o755)
    submit(bed, folder, "hungry", "half", path=f"{srun.parent}:")
    return folder


def test_a_job_that_slurm_ended_for_its_memory_says_so_and_keeps_its_samples(batch: Path) -> None:
    task = row(the_run(batch), "hungry")
    assert task["state"] == "failed"
    assert re.search("Slurm: .*exceeded (job )?memory limit", str(task["reason"]), re.IGNORECASE)
    assert "oom" in task["flags"]
    assert task["samples"] >= 1
    assert task["memory_peak_bytes"] >= 120e6
    assert not pd.isna(task["cpu_s"])
    assert str(task["external_id"]).isdigit()
    assert str(task["node"]).startswith("node")


def test_where_the_other_node_cannot_be_followed_the_own_one_is(batch: Path) -> None:
    run = the_run(batch)
    task = row(run, "half")
    assert task["state"] == "done"
    assert {"nodes 1/2"} <= set(task["flags"]) <= {"nodes 1/2", "estimated"}  # a busy machine may not see the ledger
    (used, _), own = (batch / f"half.{task['node']}").read_text().split(), times(batch / "half.times")
    assert cpu(task["cpu_s"], float(used) + own)
    assert run.parts[run.parts["key"] == "half"]["node"].tolist() == [task["node"]]


@pytest.mark.slow
def test_a_job_that_slurm_ended_for_its_time_says_so(bed: Slurm, tmp_path: Path) -> None:
    task = row(submit(bed, tmp_path, "late", options="--time=1"), "late")
    assert task["state"] == "failed"
    assert "at its time limit of 00:01:00" in str(task["reason"])
    assert task["samples"] >= 50
