"""Workers on separate hosts die in every way; each row that was spooled comes home once, each lost attempt is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import jumper
from jumper.analysis.findings import findings
from jumper.core.run import Run
from jumper.store.segments import read_segment
from tests.cluster.beds import hosts
from tests.dask.farm import Farm, until

__all__ = ["hosts"]

MIB = 1 << 20
LIMIT = 400


@pytest.fixture
def memory_group() -> Iterator[Path | None]:
    """A control group of 400 MiB below our own; None where this machine allows none."""
    with control_group(LIMIT * MIB) as group:
        yield group


@contextmanager
def control_group(limit: int) -> Iterator[Path | None]:
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in own:
        group, file = Path(f"/sys/fs/cgroup/memory{own['memory']}/jumper-{os.getpid()}"), "memory.limit_in_bytes"
    else:
        group, file = Path(f"/sys/fs/cgroup{own.get('', '')}/jumper-{os.getpid()}"), "memory.max"
    try:
        group.mkdir()
        (group / file).write_text(str(limit))
    except OSError:
        yield None
        return
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), what="the end of what the control group held")
    group.rmdir()


class Deaths:
    """One cluster, and every death in it. Worker `w1` and `w2` live on host one, the others each on a host."""

    def __init__(self, farm: Farm, group: Path | None) -> None:
        self.farm, self.group, self.lost = farm, group, dict[str, str]()

    def start(self) -> None:
        farm = self.farm
        farm.worker("one", "w1")
        farm.worker("one", "w2", nanny=False)
        farm.worker("two", "w3", "--memory-limit", f"{LIMIT}MiB")
        farm.worker("three", "w4", "--memory-limit", 0)
        farm.wait(4)
        farm.client("client.register_plugin(jumper_dask.JumperPlugin(interval=0.2)); None")

    def hold(self, name: str) -> tuple[Path, int]:
        """Let a worker run a task; return its gate, and the process as its host counts."""
        gate = self.farm.folder / f"{name}-{len(self.lost)}"
        self.farm.submit(name, "hold", gate)
        return gate, int(until(lambda: Path(f"{gate}.runs").read_text(), what=f"a task on {name}"))

    def confine(self, name: str, host: str) -> None:
        """Put a worker, not its nanny, into the control group; what it grows by from now on counts there."""
        pid = self.farm.client(
            "client.submit(os.getpid, resources={name: 1}, pure=False).result(timeout=60)", name=name
        )
        self.farm.bed.run(host, "bash", "-c", f"echo {pid} > {self.group}/cgroup.procs", check=True)

    def kill(self, name: str, host: str, why: str = "left while it ran") -> Path:
        gate, pid = self.hold(name)
        Path(f"{gate}.runs").unlink()
        self.farm.bed.run(host, "kill", "-KILL", pid, check=True)
        self.lost[name] = why
        return gate

    def replaced(self, name: str, gate: Path) -> None:
        """Let the attempt that replaces a lost one end."""
        until(lambda: Path(f"{gate}.runs").read_text(), what=f"another attempt of {name}")
        gate.touch()
        self.farm.client(f"{name}.result(timeout=60)")

    def grow(self, name: str, mebibytes: int, why: str) -> None:
        self.farm.submit(name, "grow", str(self.farm.folder / f"{name}-grows"), mebibytes)
        assert self.farm.client(f"{name}.result(timeout=90)") == "replaced"
        self.lost[name] = why

    def check(self, run: Run) -> None:
        """Hold the run against what the spools held."""
        for key, why in self.lost.items():
            attempts = run.tasks[run.tasks.key == key].to_dict("records")
            assert [row["state"] for row in attempts][:1] == ["lost"], (key, attempts)
            assert why in attempts[0]["reason"]
            assert [row["state"] for row in attempts][1:] == ["done"]
            assert [row["attempt"] for row in attempts] == list(range(1, len(attempts) + 1))
        spooled = self.farm.kept.bytes()
        arrived = {path.stem: path.read_bytes() for path in (run.path / "spool").glob("*.seg")}
        assert len(spooled) >= 2 * len(self.lost)
        for name, data in spooled.items():
            came = arrived.get(name, b"")
            assert came == data, f"{name}: {len(came)} of {len(data)} bytes came"
        for path in run.path.glob("spool/*.seg"):
            segment = read_segment(path)
            assert (segment.missing, segment.torn) == (0, 0), path
        samples = run.samples("process")
        assert not samples.duplicated(["segment", "mono_ns", "pid"]).any()


@contextmanager
def deaths(bed: Any, folder: Path, group: Path | None) -> Iterator[Deaths]:
    folder.mkdir()
    farm = Farm(bed, folder)
    try:
        made = Deaths(farm, group)
        made.start()
        yield made
    finally:
        farm.close()


def every_death(bed: Any, folder: Path, group: Path | None) -> None:
    with deaths(bed, folder, group) as cluster:
        gates = {"w1": cluster.kill("w1", "one"), "w2": cluster.kill("w2", "one")}
        cluster.replaced("w1", gates["w1"])  # by its nanny's next worker
        cluster.farm.worker("one", "w2", nanny=False)
        cluster.replaced("w2", gates["w2"])
        cluster.grow("w3", 2 * LIMIT, "its nanny ended it when it held")
        if group is not None:
            cluster.confine("w4", "three")
            cluster.grow("w4", 2 * LIMIT, "OOM killer")
        cluster.farm.collect()  # adopts what the dead have left
        cluster.farm.client("client.unregister_worker_plugin('jumper'); None")
        run = jumper.open_run(cluster.farm.collect())
        cluster.check(run)
        assert run.info["coverage"]["missing"] == []
        for key in ("w3", "w4")[: 2 if group else 1]:
            row = run.tasks[run.tasks.key == key].iloc[0]
            assert row["memory_peak_bytes"] > 0.6 * LIMIT * MIB
            assert row["rss_start_bytes"] < 0.6 * LIMIT * MIB
        said = [finding for finding in findings(run) if finding.subject == "w3"]
        assert any(f"{LIMIT} MiB" in finding.text and "had grown" in finding.text for finding in said), said


def test_every_death_on_separate_hosts_leaves_each_row_once(
    memory_group: Path | None, hosts: Any, tmp_path: Path
) -> None:
    every_death(hosts("hub", "one", "two", "three"), tmp_path / "farm", memory_group)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_death_twenty_times(
    memory_group: Path | None, hosts: Any, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for number in range(20):
        bed = hosts("hub", "one", "two", "three")
        every_death(bed, tmp_path / f"farm{number}", memory_group)
        bed.down()
        record_property("rounds", number + 1)


@pytest.mark.slow
def test_a_host_that_loses_its_power_is_named_and_its_spool_comes_home_after_its_boot(
    hosts: Any, tmp_path: Path
) -> None:
    bed = hosts("hub", "one", "two")
    farm = Farm(bed, tmp_path)
    try:
        cluster = Deaths(farm, None)
        farm.worker("one", "w1", nanny=False)
        farm.worker("two", "w2")
        farm.wait(2)
        farm.client("client.register_plugin(jumper_dask.JumperPlugin(interval=0.2)); None")
        gate, _ = cluster.hold("w1")
        until(lambda: len(farm.kept.names()) >= 4)
        bed.command("kill", "one")
        Path(f"{gate}.runs").unlink()
        until(lambda: farm.client("len(client.scheduler_info(n_workers=-1)['workers'])") == 1, what="one worker less")
        (missing,) = jumper.open_run(farm.collect()).info["coverage"]["missing"]
        assert missing["name"] == "w1"
        assert missing["reason"].endswith("no worker on one is left to carry its spool home")
        bed.command("boot", "one")
        farm.worker("one", "w1", nanny=False)  # with the process id of the dead one, as in a container
        cluster.lost["w1"] = "left while it ran"
        cluster.replaced("w1", gate)
        farm.collect()
        farm.client("client.unregister_worker_plugin('jumper'); None")
        run = jumper.open_run(farm.collect())
        cluster.check(run)
        assert run.info["coverage"]["missing"] == []
        lost = run.tasks[run.tasks.state == "lost"].iloc[0]
        assert lost["wall_s"] < 10, "until its last sign of life, not until the scheduler missed it"
    finally:
        farm.close()
