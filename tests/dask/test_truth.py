"""What tasks cost, against what their own clocks, the files they wrote and the kernel's ledger say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jumper_dask

MIB = 1 << 20


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


def near(value: float, truth: float) -> bool:
    return abs(value - truth) <= max(0.02, 0.02 * truth)


def test_two_tasks_at_once_in_one_process_have_their_own_cpu_and_writing(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client:
        burning, _ = client.gather(
            [client.submit(kit.burn, 2.0, key="burn"), client.submit(kit.time.sleep, 1.5, key="sleep")]
        )
        client.gather(
            [
                client.submit(kit.write, str(tmp_path / "x"), 15_000_000, key="write"),
                client.submit(kit.time.sleep, 0.5, key="wait"),
            ]
        )
        tasks = kit.by_key(jumper_dask.collect(client, tmp_path / "run"))
    assert near(tasks.cpu_s["burn"], burning)
    assert near(tasks.cpu_s["sleep"], 0.0)
    assert tasks.wall_s["sleep"] == pytest.approx(1.5, abs=0.2)
    assert tasks.write_chars["write"] == 15_000_000
    assert tasks.write_chars["wait"] == 0
    assert "shared" in tasks["flags"]["burn"]
    assert (tasks.state == "done").all()


def test_children_of_two_tasks_at_once_are_shared_out_and_nothing_is_lost(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client:
        before = next(iter(client.run(kit.rusage_children).values()))
        threads = client.gather(
            [client.submit(kit.children, 40, 0.05, key="forty"), client.submit(kit.children, 10, 0.05, key="ten")]
        )
        truth = next(iter(client.run(kit.rusage_children).values())) - before
        run = jumper_dask.collect(client, tmp_path / "run")
    assert threads == [None, None]
    tasks = kit.by_key(run)
    shares = {r["key"]: r["children"] for r in records(run.path) if r.get("children")}
    assert sum(share["cpu_ns"] for share in shares.values()) / 1e9 == pytest.approx(truth, rel=0.01)
    assert {key: share["spawned"] for key, share in shares.items()} == {"forty": 40, "ten": 10}
    for key, number in (("forty", 40), ("ten", 10)):
        right = abs(shares[key]["cpu_ns"] / 1e9 - truth * number / 50) <= 0.1 * truth * number / 50
        assert right or "estimated" in tasks["flags"][key]


def test_children_of_one_task_are_exactly_its_own(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client:
        before = next(iter(client.run(kit.rusage_children).values()))
        client.gather(
            [
                client.submit(kit.child_writes, str(tmp_path / "y"), 15_000_000, key="parent"),
                client.submit(kit.write, str(tmp_path / "x"), 3_000_000, key="writer"),
            ]
        )
        truth = next(iter(client.run(kit.rusage_children).values())) - before
        run = jumper_dask.collect(client, tmp_path / "run")
    tasks = kit.by_key(run)
    (share,) = [r["children"] for r in records(run.path) if r.get("children")]
    assert share["cpu_ns"] / 1e9 == pytest.approx(truth, abs=1e-6)
    assert share["write_chars"] == 15_000_000
    assert not share["estimated"]
    assert tasks.write_chars["writer"] == 3_000_000


def test_a_peak_of_a_millisecond_is_seen_and_not_the_next_task_s(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=1) as client:
        for size in (300, 10, 150):
            client.submit(kit.allocate, size, key=f"a{size}").result()
        tasks = kit.by_key(jumper_dask.collect(client, tmp_path / "run"))
    base = tasks.memory_peak_bytes["a10"] - 10 * MIB
    assert tasks.memory_peak_bytes["a300"] - base == pytest.approx(300 * MIB, rel=0.03)
    assert tasks.memory_peak_bytes["a150"] - base == pytest.approx(150 * MIB, rel=0.05)
    assert set(tasks.memory_peak_source) <= {"hwm", "rss"}
    assert not any("shared" in flags for flags in tasks["flags"])


def test_failed_and_retried_tasks_have_their_attempts(kit: Any, tmp_path: Path) -> None:
    with kit.cluster() as client:
        with pytest.raises(ValueError, match="on purpose"):
            client.submit(kit.boom, key="boom", retries=1).result()
        tasks = jumper_dask.collect(client, tmp_path / "run").tasks
    assert list(tasks.key) == ["boom", "boom"]
    assert list(tasks.attempt) == [1, 2]
    assert list(tasks.state) == ["failed", "failed"]
    assert all("on purpose" in reason for reason in tasks.reason)
    assert tasks.attempt_id.nunique() == 2


def test_what_a_result_reads_when_dask_asks_for_its_size_is_not_the_next_task_s(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=1, plugin=False) as client:
        client.register_plugin(jumper_dask.JumperPlugin(reset_peak=False))
        client.gather([client.submit(kit.ReadsItself, key="reads"), client.submit(kit.time.sleep, 0, key="next")])
        tasks = kit.by_key(jumper_dask.collect(client, tmp_path / "run"))
    assert tasks.start_ns["reads"] < tasks.start_ns["next"]
    assert tasks.read_chars.to_dict() == {"reads": 0, "next": 0}


@pytest.mark.parametrize("busy_s", [0.1, 0.8], ids=["between two samples", "over several"])
def test_a_task_that_reschedules_itself_does_not_leave_its_cost_to_the_next(
    kit: Any, tmp_path: Path, busy_s: float
) -> None:
    with kit.cluster(threads=1, interval=0.5) as client:
        client.submit(kit.burn, 0.01, key="before").result()
        client.submit(kit.burn_again, busy_s, str(tmp_path / "mark"), key="again").result()
        client.submit(kit.burn, 0.01, key="after").result()
        run = jumper_dask.collect(client, tmp_path / "run")
    rows = run.tasks[run.tasks.key == "again"].sort_values("start_ns")
    assert list(rows.state) == ["cancelled", "done"]
    first, second = rows.cpu_s
    assert busy_s - 0.02 <= first <= busy_s + 0.3  # the thread also makes the exception ready to be sent
    assert near(second, busy_s)
    assert near(kit.by_key(run).cpu_s["after"], 0.01)


def test_tasks_that_reschedule_themselves_at_once_have_each_its_own_cost(kit: Any, tmp_path: Path) -> None:
    with kit.cluster(threads=2, interval=5) as client:
        client.gather([client.submit(kit.burn, 0.01, key=f"warm{n}") for n in range(2)])
        cost = {"much": 0.4, "little": 0.1}
        client.gather([client.submit(kit.burn_again, s, str(tmp_path / name), key=name) for name, s in cost.items()])
        tasks = jumper_dask.collect(client, tmp_path / "run").tasks
    for name, seconds in cost.items():
        first, second = tasks[tasks.key == name].sort_values("start_ns").cpu_s
        assert seconds - 0.02 <= first <= seconds + 0.3 and near(second, seconds), (name, first, second)


def records(folder: Path) -> list[dict[str, Any]]:
    from jumper.store.segments import read_segment

    return [record for path in (folder / "spool").glob("*.seg") for record in read_segment(path).records]
