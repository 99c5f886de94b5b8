"""Energy by RAPL, on trees of powercap whose counters are known: packages, memory, wrap-around, a tree's part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jumper.monitor.metrics import here
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.energy import EnergyCollector
from jumper.monitor.metrics.energy.rapl import zones

RANGE = 262_143_328_850


class Powercap:
    """A folder like /sys/class/powercap: two packages with cores and memory in them, and the whole platform."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "powercap"
        names = {
            "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
            "intel-rapl:1": "package-1", "intel-rapl:1:0": "dram", "intel-rapl:2": "psys",
            "intel-rapl-mmio:0": "package-0", "dtpm": "dtpm",
        }  # fmt: skip
        for zone, name in names.items():
            (self.path / zone).mkdir(parents=True)
            (self.path / zone / "name").write_text(f"{name}\n")
            (self.path / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
            self.set(**{zone: 7_000_000})

    def set(self, **counters: int) -> None:
        for zone, value in counters.items():
            (self.path / zone / "energy_uj").write_text(f"{value}\n")


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    return Powercap(tmp_path)


def look(collector: EnergyCollector, second: float, node_s: float, tree_s: float | None) -> dict[str, dict[str, int]]:
    context = new_context(round(second * 1e9), 0)
    context["counters"]["system"] = {"cpu_ns": round(node_s * 1e9)}
    context["counters"]["process"] = {"cpu_ns": None if tree_s is None else round(tree_s * 1e9)}
    return {level: collector.collect(level, context) for level in ("process", "system")}


def test_packages_and_memory_count_and_their_parts_do_not(powercap: Powercap) -> None:
    collector = EnergyCollector(str(powercap.path))
    assert look(collector, 0, 0, 0)["system"] == {
        "energy_uj": 0, "energy_0_uj": 0, "energy_1_uj": 0, "energy_dram_uj": 0
    }  # fmt: skip
    powercap.set(**{"intel-rapl:0": 57_000_000, "intel-rapl:0:0": 9**9, "intel-rapl:0:1": 9_000_000})
    powercap.set(**{"intel-rapl:1": 37_000_000, "intel-rapl:1:0": 8_000_000, "intel-rapl:2": 9**9})
    powercap.set(**{"intel-rapl-mmio:0": 57_000_000})
    assert look(collector, 1, 1, 0)["system"] == {
        "energy_uj": 83_000_000, "energy_0_uj": 50_000_000, "energy_1_uj": 30_000_000, "energy_dram_uj": 3_000_000
    }  # fmt: skip


def test_a_counter_that_starts_anew_goes_on(powercap: Powercap) -> None:
    powercap.set(**{"intel-rapl:0": RANGE - 1_000_000})
    collector = EnergyCollector(str(powercap.path))
    look(collector, 0, 0, 0)
    seen = []
    for second, value in ((1, RANGE - 400_000), (2, 600_000), (3, 900_000)):
        powercap.set(**{"intel-rapl:0": value})
        seen.append(look(collector, second, second, 0)["system"]["energy_0_uj"])
    assert seen == [600_000, 1_600_000, 1_900_000]


def test_a_tree_has_its_part_of_the_cpu_time(powercap: Powercap) -> None:
    collector = EnergyCollector(str(powercap.path))
    parts = []
    for second, joule, node_s, tree_s in ((0, 0, 10, 3), (1, 100, 14, 4), (2, 200, 14, 4), (3, 300, 16, 6.1)):
        powercap.set(**{"intel-rapl:0": 7_000_000 + joule * 10**6})
        parts.append(look(collector, second, node_s, tree_s)["process"]["energy_uj"])
    # a quarter of 100 J; nobody used the CPUs; all of the 200 J since, though clocks say a little more than all
    assert parts == [0, 25_000_000, 25_000_000, 225_000_000]


def test_without_the_cpu_time_of_a_tree_its_part_is_null(powercap: Powercap) -> None:
    assert look(EnergyCollector(str(powercap.path)), 0, 1, None)["process"] == {"energy_uj": None}


def test_the_nodes_cpu_time_is_read_where_nobody_else_did(powercap: Powercap, tmp_path: Path) -> None:
    collector = EnergyCollector(str(powercap.path), str(tmp_path))
    tick = 10_000_000 * os.sysconf("SC_CLK_TCK") // 100
    for second, busy in ((0, 0), (1, 400)):
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 900 0 0 0 0 0 0\ncpu0 {busy} 0 0 900 0 0 0 0 0 0\n")
        powercap.set(**{"intel-rapl:1": 7_000_000 + second * 1000})
        context = new_context(second, 0)
        context["counters"]["process"] = {"cpu_ns": second * 100 * tick}
        found = collector.collect("process", context)
    assert found == {"energy_uj": 250}


def test_a_counter_that_goes_away_is_null(powercap: Powercap) -> None:
    collector = EnergyCollector(str(powercap.path))
    look(collector, 0, 0, 0)
    (powercap.path / "intel-rapl:1" / "energy_uj").unlink()
    assert look(collector, 1, 1, 1) == {"process": None, "system": None}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: it becomes another user, who may not read the counters")
def test_counters_of_root_alone_are_absent(powercap: Powercap) -> None:
    for path in powercap.path.glob("*/energy_uj"):
        path.chmod(0o400)
    for folder in (powercap.path, *powercap.path.parents):
        if folder.stat().st_uid == 0 and str(folder) != "/tmp":
            folder.chmod(folder.stat().st_mode | 0o111)
    code = f"""
import json, os
from jumper.monitor.metrics import here
from jumper.monitor.metrics.energy.rapl import zones
os.setgroups([]); os.setgid(65534); os.setuid(65534)
here._POWERCAP = {str(powercap.path)!r}
print(json.dumps([here.energy(1), len(zones(here._POWERCAP))]))
"""
    said, count = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert "may read" in said and count == 0


def test_a_machine_without_counters_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(here, "_POWERCAP", str(tmp_path / "none"))
    assert "no " in str(here.energy(1)) and zones(str(tmp_path / "none")) == []
