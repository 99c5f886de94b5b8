"""The pictures of a real Snakemake run hold what its jobs did before their first sample, and say what they do not know.

The answer is the workflow's own: a job writes 15,000,000 bytes as soon as it begins, and then waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jumper.report.data import RunRows
from jumper.report.page import words
from jumper.report.theme import LIGHT
from tests.snakemake.conftest import Workflow

Make = Callable[[str], Workflow]

AT_ONCE = """
rule early:
    output: "early.bin"
    shell: "head -c 15000000 /dev/zero > {output}; sleep 1.2"
"""


def test_what_a_job_did_before_its_first_sample_is_drawn(workflow: Make) -> None:
    flow = workflow(AT_ONCE)
    flow.done()
    rows = RunRows(flow.run())
    samples = rows.run.samples("process")
    [job] = rows.run.tasks.to_dict("records")
    mine = samples[samples["pid"] == job["pid"]]
    assert job["write_chars"] == 15_000_000 == mine["write_chars"].iloc[0]  # all of it is in the first sample
    moved = rows.transfer("process", "read_chars", "write_chars")
    assert moved is not None
    assert moved[1].sum() * rows.grid.width_s == pytest.approx(15_000_000)
    unseen = rows.grid.edges[1:] < rows.grid.seconds(mine["time_ns"].to_numpy("int64"))[0]
    assert moved[1][~unseen][2:].max() == 0
    assert rows.cpu is not None and rows.cpu_lines["early"].sum() * rows.grid.width_s == pytest.approx(job["cpu_s"])
    assert any(line.startswith("I/O through system calls") for line in words.in_words(rows))
    # its memory is not known until then, and said so
    assert rows.memory is not None
    assert np.flatnonzero(rows.memory.missing)[[0, -1]].tolist() == np.flatnonzero(unseen)[[0, -1]].tolist()
    assert "no samples" in words.marks(rows, LIGHT)
    [told] = [line for line in words.in_words(rows) if line.startswith("Memory")]
    assert f"no samples in {rows.memory.missing.mean():.0%} of the time" in told
