"""What `jumper run` says, against what the workload itself was told by the kernel."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.truth.conftest import Runner

MIB = 1 << 20


def close_cpu(measured: float, truth: float) -> bool:
    """Within 1 % or 20 ms; the interpreter's own end comes after its last word."""
    return abs(measured - truth) <= max(0.01 * truth, 0.02)


@pytest.mark.parametrize(
    "workload",
    [("children", 40, 0.05), ("grandchildren", 4, 0.5), ("threads", 2, 0.5), ("child_of_thread", 1.5)],
    ids=lambda w: w[0],
)
def test_cpu_is_what_the_kernel_says(runner: Runner, workload: tuple[object, ...]) -> None:
    row, truth, run = runner.measure(*workload)
    assert close_cpu(row["cpu_s"], truth["cpu"]), (row["cpu_s"], truth)
    # the series comes from the ledger, not from the wait: it has to get there by itself
    # (what the dead used is shown there in whole clock ticks, user and system apart: up to 20 ms less)
    ledger = run.samples("process")["cpu_ns"].iloc[-1] / 1e9
    assert -0.02 - 0.01 * truth["cpu"] <= ledger - truth["cpu"] <= max(0.01 * truth["cpu"], 0.02), (ledger, truth)


def test_an_orphan_belongs_to_the_command_that_started_it(runner: Runner) -> None:
    row, truth, _ = runner.measure("orphan", 0.5)
    expected = truth["cpu"] + truth["orphan_s"]
    assert close_cpu(row["cpu_s"], expected), (row["cpu_s"], expected)


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_peak_of_20_ms_is_seen(runner: Runner, generation: int) -> None:
    row, truth, _ = runner.measure("run_touch", generation, 512, 0.02)
    assert truth["peak"] > 512 * MIB
    assert row["memory_peak_bytes"] == pytest.approx(truth["peak"], rel=0.02)


def test_a_peak_beside_a_large_parent_is_seen_or_flagged(runner: Runner) -> None:
    row, truth, _ = runner.measure("beside", 1024, 512, 0.02)
    # the truth is the sum of two marks: it holds twice what both map from the same files
    least = 0.98 * truth["peak"] - 12 * MIB
    assert row["memory_peak_bytes"] >= least or "memory-estimated" in row["flags"], (row["memory_peak_bytes"], truth)
    assert row["memory_peak_bytes"] <= 1.02 * truth["peak"]
    assert row["rss_peak_upper_bytes"] >= 0.98 * truth["peak"]


def test_true_measured_from_a_large_program_is_small(runner: Runner) -> None:
    out = runner.folder / "run-true"
    code = (
        "import sys, subprocess; sys.path.insert(0, sys.argv[1]); import workloads;"
        "area = workloads.allocate(1024); raise SystemExit(subprocess.run(sys.argv[2:]).returncode)"
    )
    command = runner.jumper("run", "--backend", runner.backend, "-o", str(out), "--", "/bin/true")
    assert runner.popen([runner.python, "-c", code, str(runner.folder), *command]).wait(timeout=60) == 0
    import jumper

    (row,) = jumper.open_run(out).tasks.to_dict("records")
    assert row["memory_peak_bytes"] < 32 * MIB


def test_shared_memory_counts_once(runner: Runner) -> None:
    row, truth, _ = runner.measure("share", 512, 4, 3)
    assert row["memory_peak_bytes"] == pytest.approx(truth["peak"], rel=0.02)
    assert row["memory_peak_bytes"] < 1.06 * 512 * MIB
    assert row["rss_peak_bytes"] > 3.9 * 512 * MIB
    assert row["memory_peak_source"] in ("pss", "hwm")  # the parent alone has touched all of it


def test_written_bytes_are_exact(runner: Runner) -> None:
    row, truth, _ = runner.measure("write", runner.folder / "written", 100 * MIB)
    own_word = len(json.dumps(truth))
    assert row["write_chars"] == 100 * MIB + own_word
    assert abs(row["write_bytes"] - 100 * MIB) <= 64 << 10


def test_exit_status_streams_and_signals_are_the_commands(me: Runner) -> None:
    out = me.folder / "run-streams"
    script = "cat; echo err >&2; exit 7"
    command = me.jumper("run", "-o", str(out), "--", "sh", "-c", script)
    process = me.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate(b"through") == (b"through", b"err\n")
    assert process.returncode == 7


@pytest.mark.parametrize("signal", ["TERM", "KILL", "INT"])
def test_a_command_that_dies_by_a_signal(me: Runner, signal: str) -> None:
    import jumper

    out = me.folder / "run-signal"
    process = me.popen(me.jumper("run", "-o", str(out), "--", "sh", "-c", f"kill -{signal} $$"))
    number = {"TERM": 15, "KILL": 9, "INT": 2}[signal]
    assert process.wait(timeout=60) == -number
    (row,) = jumper.open_run(out).tasks.to_dict("records")
    assert (row["state"], row["exit_code"]) == ("failed", -number)


def test_a_command_that_does_not_exist(me: Runner) -> None:
    out = me.folder / "run-missing"
    process = me.popen(me.jumper("run", "-o", str(out), "--", "no-such-command"), stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 127
    assert errors.decode().splitlines() == ["jumper: cannot run 'no-such-command': No such file or directory"]
    assert not out.exists()
