"""What ended a worker, and what its task had grown to: records in, rows and findings out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from jumper.analysis.deaths import NO_END, ends_of, explain
from jumper.analysis.findings.failures import failed, killed
from jumper.analysis.findings.view import View

MIB = 1 << 20


def event(kind: str, at: int, **more: Any) -> dict[str, Any]:
    return {"type": "event", "kind": kind, "worker": "tcp://w", "mono_ns": at, **more}


JOINED, LEFT = event("worker-joined", 1), event("worker-left", 9)


@pytest.mark.parametrize(
    ("events", "state", "reason", "flags"),
    [
        ([], "lost", NO_END, []),
        ([JOINED], None, "it ran when the run was collected", []),
        ([JOINED, LEFT], "lost", "its worker tcp://w left while it ran", []),
        ([LEFT, event("worker-joined", 10)], None, "it ran when the run was collected", []),
        (
            [JOINED, LEFT, event("worker-memory", 8, rss_bytes=388 * MIB)],
            "lost",
            "its worker tcp://w left while it ran; its nanny ended it when it held 388 MiB",
            [],
        ),
        (
            [JOINED, LEFT, event("adopted", 3, oom_kills=1), event("adopted", 4, oom_kills=None)],
            "lost",
            "its worker tcp://w left while it ran; the kernel's OOM killer struck on its node meanwhile",
            ["oom"],
        ),
        ([JOINED, LEFT, event("adopted", 3, oom_kills=0)], "lost", "its worker tcp://w left while it ran", []),
    ],
)
def test_what_is_known_of_a_worker_s_end_is_in_the_row(events: Any, state: Any, reason: str, flags: list[str]) -> None:
    row: dict[str, Any] = {"worker": "tcp://w", "state": "lost", "reason": NO_END, "flags": []}
    explain(row, ends_of(events))
    assert row == {"worker": "tcp://w", "state": state, "reason": reason, "flags": flags}


def test_a_worker_is_named_as_its_scheduler_names_it() -> None:
    row: dict[str, Any] = {"worker": "tcp://w", "state": "lost", "reason": NO_END, "flags": []}
    explain(row, ends_of([event("worker-joined", 1, name="0"), LEFT]))
    assert row["reason"] == "its worker 0 (tcp://w) left while it ran"


def test_an_attempt_that_ended_is_left_alone() -> None:
    row: dict[str, Any] = {"worker": "tcp://w", "state": "done", "reason": None, "flags": []}
    explain(row, ends_of([JOINED, LEFT]))
    assert (row["state"], row["reason"]) == ("done", None)


def found(count: int = 1, **more: Any) -> list[Any]:
    row = {"key": "k", "group": "g", "worker": "tcp://w", "node": "n1", "state": "lost", "flags": [], "reason": "left"}
    row |= {"rss_start_bytes": 67 * MIB, "memory_peak_bytes": 390 * MIB, "memory_limit_bytes": 400 * MIB}
    each = {name: values for name, values in more.items() if isinstance(values, list) and name != "flags"}
    rows = [{**row, **more, **{name: values[n] for name, values in each.items()}} for n in range(count)]
    run: Any = SimpleNamespace(tasks=pd.DataFrame(rows), info={}, nodes={})
    return list(killed(View(run)))


def test_a_finding_says_what_a_task_had_grown_to_when_its_worker_died() -> None:
    (finding,) = found()
    assert finding.severity == "high"
    assert finding.text == (
        "had grown from 67.0 MiB to 390 MiB, 98% of the 400 MiB allowed, when worker tcp://w on n1 died; it was k."
    )
    assert finding.action == (
        "Give it 800 MiB, twice what it was allowed, or work in smaller pieces: what it needs is not known."
    )


def test_growth_that_the_figures_do_not_show_is_none_and_a_name_is_said_once() -> None:
    (finding,) = found(key="g", rss_start_bytes=73.78 * MIB, memory_peak_bytes=73.82 * MIB, memory_limit_bytes=None)
    assert finding.text == "had reached 73.8 MiB when worker tcp://w on n1 died."
    (finding,) = found(key="g", rss_start_bytes=73 * MIB, memory_peak_bytes=73.3 * MIB, memory_limit_bytes=None)
    assert finding.text == "had reached 73.3 MiB when worker tcp://w on n1 died."


def test_deaths_that_are_alike_are_one_finding() -> None:
    (finding,) = found(count=4, memory_peak_bytes=[70 * MIB, 73 * MIB, 71 * MIB, 72 * MIB])
    assert finding.severity == "info"
    assert finding.text == (
        "had grown from 67.0 MiB to 73.0 MiB, 18% of the 400 MiB allowed, when worker tcp://w on n1 died; it was k, "
        "the largest of 4 attempts that ended so."
    )
    assert finding.action == "Memory is not what ended them, as far as was seen."
    both = found(count=2, memory_peak_bytes=[70 * MIB, 399 * MIB])
    assert sorted(one.severity for one in both) == ["high", "info"]


def test_of_a_command_without_an_end_only_what_is_known_is_said() -> None:
    (finding,) = found(key="sleep 3", group="sleep", worker=None, rss_start_bytes=None, memory_peak_bytes=2 * MIB)
    assert finding.text == "had reached 2.00 MiB, <1% of the 400 MiB allowed, when its record ended; it was sleep 3."
    row = {"key": "sleep 3", "group": "sleep", "worker": None, "node": "n1", "state": "lost", "flags": []}
    run: Any = SimpleNamespace(tasks=pd.DataFrame([{**row, "reason": NO_END}]), info={}, nodes={})
    (said,) = failed(View(run))
    assert said.text == f"was lost in 1 of 1 attempt: {NO_END}."
    assert "what watched it" in NO_END  # `jumper run` itself may have been ended, and the node be sound


def test_a_small_task_s_memory_is_not_blamed_unless_the_kernel_or_a_nanny_did() -> None:
    small = {"memory_peak_bytes": 90 * MIB}
    assert [f.severity for f in found(**small)] == ["info"]
    assert [f.severity for f in found(**small, flags=["oom"])] == ["high"]
    assert [f.severity for f in found(**small, reason="left; its nanny ended it when it held 1 GiB")] == ["high"]
    assert "all of theirs" in found(flags=["shared"])[0].text
    (unbound,) = found(**small, flags=["oom"], memory_limit_bytes=None)
    assert unbound.action.startswith("Give it 180 MiB, twice what it had reached, ")


def test_nothing_is_said_of_what_was_done_or_never_measured() -> None:
    assert found(state="done") == found(memory_peak_bytes=None) == []
