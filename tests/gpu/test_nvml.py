"""NVIDIA devices by the real bindings on a stand-in of the library: known answers of every figure and level."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jumper.monitor.metrics.gpu.common import Device
from jumper.monitor.metrics.gpu.visible import visible
from tests.gpu.standin import A100, GIB, OTHER, SLICES, Node, device, process, sample

Nodes = Callable[..., Node]


@pytest.mark.parametrize("abi", [1, 2, 3])
def test_three_processes_of_two_gib_are_six(node: Nodes, abi: int) -> None:
    """Fault 16: a list read with another structure than the driver's gave 2 GiB."""
    state = device(used=9 * GIB) + "".join(process(pid, 2 * GIB) for pid in (11, 12, 13)) + process(99, 3 * GIB)
    rows = node(state, abi).ask("print(json.dumps(Looks().at(0, process=[11, 12, 13], user=[11, 12, 13, 99])))")
    assert rows["process"]["gpu_memory_bytes"] == rows["process"]["gpu_0_memory_bytes"] == 6 * GIB
    assert rows["process"]["gpu_mem_avg"] == rows["process"]["gpu_mem_0"] == 6.0
    assert rows["user"]["gpu_memory_bytes"] == 9 * GIB
    # a driver that has no second version of this figure counts what it keeps for itself, too
    assert rows["system"]["gpu_memory_bytes"] == 9 * GIB + (1 << 20) * (abi == 1)


@pytest.mark.parametrize("abi", [1, 3])
def test_a_device_of_many_processes(node: Nodes, abi: int) -> None:
    state = device() + "".join(process(1000 + pid, 1 << 20) for pid in range(300))
    rows = node(state, abi).ask("print(json.dumps(Looks().at(0, process=range(1000, 1200))))")
    assert rows["process"]["gpu_memory_bytes"] == 200 << 20


def test_one_that_computes_and_draws_counts_once(node: Nodes) -> None:
    state = device() + process(11, GIB) + process(11, GIB, kind="G") + process(12, GIB, kind="G")
    rows = node(state).ask("print(json.dumps(Looks().at(0, process=[11, 12])))")
    assert rows["process"]["gpu_memory_bytes"] == 2 * GIB


def test_utilisation_and_bandwidth_of_the_device_and_of_processes(node: Nodes) -> None:
    begin = device(busy=90, band=37, mw=250_000, mj=1_000_000, celsius=61)
    later = device(busy=90, band=37, mw=250_000, mj=1_500_000, celsius=61)
    used = sample(11, 50, 20, 2_000_000) + sample(12, 25, 10, 2_000_000) + sample(13, 777, 0, 2_000_000)
    used += "rest 0 900000 13 80 80\n"
    rows = node(begin + sample(11, 99, 99, 1_000_000)).ask(f"""
looks = Looks()
first = looks.at(0, process=[11])
import time; time.sleep(1.1)
state({later + used!r})
print(json.dumps([first, looks.at(2, process=[11], user=[11, 12, 13])]))
""")
    first, second = rows
    assert first["process"]["gpu_busy_ns"] == 0 and first["process"]["gpu_util_avg"] is None
    system = second["system"]
    assert (system["gpu_util_avg"], system["gpu_util_0"], system["gpu_band_max"]) == (90.0, 90.0, 37.0)
    assert (system["gpu_power_uw"], system["gpu_temperature_c"]) == (250_000_000, 61)
    assert system["gpu_energy_uj"] - first["system"]["gpu_energy_uj"] == 500_000_000
    # a second of samples, of which process 11 computed half and moved memory a fifth
    mine = second["process"]
    assert (mine["gpu_busy_ns"], mine["gpu_band_ns"]) == (500_000_000, 200_000_000)
    assert (mine["gpu_util_0"], mine["gpu_band_0"]) == (25.0, 10.0)  # of the two seconds between the ticks
    assert mine["gpu_energy_uj"] == 333_333_333  # two thirds of the busy time
    assert second["user"]["gpu_busy_ns"] == 750_000_000  # without one that says 777 %, and one of before


def test_percent_are_of_a_second_where_ticks_are_faster(node: Nodes) -> None:
    """A driver that tells once a second of half a second would else look as five times busy, or idle."""
    rows = node(device() + sample(11, 50, 0, 1_000_000)).ask(f"""
looks, found = Looks(), []
looks.at(0, process=[11])
for tick in range(1, 31):
    if tick % 10 == 0:
        stamp = 1_000_000 + 100_000 * tick
        state({device()!r} + f"sample 0 {{stamp}} 11 50 0\\n")
    found.append(looks.at(tick / 10, process=[11])["process"]["gpu_util_0"])
print(json.dumps(found))
""")
    assert rows[19:] == pytest.approx([50.0] * 11)


def test_time_in_which_somebody_else_took_the_devices_does_not_count(node: Nodes) -> None:
    rows = node(device(busy=50)).ask("""
looks = Looks()
def busy(second, level):
    context = new_context(second * 10**9, 0)
    return looks.counters.collect(level, context).get("gpu_busy_ns")
print(json.dumps([busy(0, "system"), busy(1, "system"), busy(2, "user"), busy(3, "system"), busy(4, "system")]))
""")
    assert rows == [0, 500_000_000, 0, 500_000_000, 1_000_000_000]


def test_what_a_process_did_last_counts_after_its_end(node: Nodes) -> None:
    rows = node(device() + sample(11, 50, 0, 1_000_000)).ask(f"""
looks = Looks()
looks.at(0, process=[11])
state({device() + sample(11, 50, 0, 1_500_000)!r})
print(json.dumps([looks.at(second, process=[])["process"]["gpu_busy_ns"] for second in (1, 2)]))
""")
    assert rows == [250_000_000] * 2


def test_samples_older_than_the_look_before_do_not_count_twice(node: Nodes) -> None:
    rows = node(device() + sample(11, 50, 0, 1_000_000)).ask(f"""
looks = Looks()
looks.at(0, process=[11])
state({device() + sample(11, 50, 0, 1_100_000)!r})
print(json.dumps([looks.at(second, process=[11])["process"]["gpu_busy_ns"] for second in (1, 2, 3)]))
""")
    assert rows == [50_000_000] * 3


def test_what_a_device_does_not_support_is_null(node: Nodes) -> None:
    state = device(used=-1, busy=-1, mw=-1, mj=-1, celsius=-1) + process(11, -1)
    rows = node(state).ask("looks = Looks(); looks.at(0); print(json.dumps(looks.at(1, process=[11], user=[12])))")
    system = rows["system"]
    assert [system[f"gpu_0_{name}"] for name in ("busy_ns", "memory_bytes", "energy_uj", "power_uw")] == [None] * 4
    assert "gpu_busy_ns" not in system and "gpu_temperature_c" not in system
    assert rows["process"]["gpu_0_memory_bytes"] is None and rows["process"]["gpu_0_busy_ns"] is None
    assert rows["user"]["gpu_0_memory_bytes"] == 0  # it has no process there


def test_each_device_has_its_columns(node: Nodes) -> None:
    state = device(used=GIB) + device(OTHER, used=3 * GIB) + process(11, GIB) + process(11, 2 * GIB, "d1")
    rows = node(state).ask("print(json.dumps(Looks().at(0, process=[11])))")
    assert (rows["system"]["gpu_mem_0"], rows["system"]["gpu_mem_1"], rows["system"]["gpu_mem_avg"]) == (1.0, 3.0, 2.0)
    assert (rows["process"]["gpu_0_memory_bytes"], rows["process"]["gpu_1_memory_bytes"]) == (GIB, 2 * GIB)


TWO = [Device(0, A100, "A100", None), Device(1, OTHER, "A100", None)]
PARTS = [*TWO, Device(2, SLICES[0], "3g.40gb", None, 0), Device(3, SLICES[1], "3g.40gb", None, 0)]


@pytest.mark.parametrize(
    ("devices", "value", "seen"),
    [
        (TWO, None, [0, 1]), (TWO, "0", [0]), (TWO, "1,0", [1, 0]), (TWO, "", []), (TWO, "-1", []),
        (TWO, "NoDevFiles", []), (TWO, "1,7,0", [1]), (TWO, OTHER, [1]), (TWO, "GPU-45", [1]), (TWO, "GPU-", []),
        (TWO, f"{A100},{OTHER}", [0, 1]), (TWO, "0,0", []), (TWO, " 1 ", [1]),
        (PARTS, None, [1, 2, 3]), (PARTS, SLICES[0], [2]), (PARTS, SLICES[1], [3]), (PARTS, "0", [2, 3]),
        (PARTS, f"MIG-{A100}/1/0", [2, 3]), (PARTS, f"{OTHER},{SLICES[0]}", [1, 2]), (PARTS, "1", [1]),
    ],
)  # fmt: skip
def test_which_devices_a_setting_allows(devices: list[Device], value: str | None, seen: list[int]) -> None:
    assert [device.number for device in visible(devices, value)] == seen


def test_a_target_has_the_devices_that_it_may_use(node: Nodes) -> None:
    state = device() + device(OTHER) + process(11, GIB) + process(11, GIB, "d1")
    rows = node(state).ask("print(json.dumps(Looks().at(0, process=[11], user=[11])))", CUDA_VISIBLE_DEVICES=OTHER)
    assert rows["process"]["gpu_memory_bytes"] == GIB and "gpu_0_memory_bytes" not in rows["process"]
    assert rows["user"]["gpu_memory_bytes"] == 2 * GIB
    assert {"gpu_0_memory_bytes", "gpu_1_memory_bytes"} < set(rows["system"])


def test_the_setting_is_that_of_the_target(node: Nodes) -> None:
    state = device() + device(OTHER) + process(11, GIB, "d1")
    rows = node(state).ask("""
import subprocess
with subprocess.Popen(["sleep", "60"], env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"}) as child:
    found = Looks(child.pid).at(0, process=[11])["process"]
    child.kill()
print(json.dumps(found))
""")
    assert rows["gpu_1_memory_bytes"] == GIB and "gpu_0_memory_bytes" not in rows and rows["gpu_mem_0"] is None


def split() -> str:
    """A node of a device in two instances, and a whole one."""
    whole = device(used=12 * GIB, mig=1, mw=300_000) + device(OTHER, used=GIB, busy=50)
    parts = "".join(
        f"instance 0 {uuid} 3g.40gb {40 * GIB} {used * GIB}\n" for uuid, used in zip(SLICES, (4, 8), strict=True)
    )
    return whole + parts + process(11, 4 * GIB, "i0") + process(12, 8 * GIB, "i1") + process(11, GIB, "d1")


def test_instances_of_a_device(node: Nodes) -> None:
    rows = node(split()).ask(
        "looks = Looks(); looks.at(0); print(json.dumps(looks.at(1, process=[11], user=[11, 12])))"
    )
    system = rows["system"]
    assert system["gpu_memory_bytes"] == 13 * GIB  # the instances are in what their device says
    assert [system[f"gpu_{n}_memory_bytes"] // GIB for n in range(4)] == [12, 1, 4, 8]
    assert system["gpu_power_uw"] == 300_000_000 and "gpu_2_power_uw" not in system
    assert [system[f"gpu_{n}_busy_ns"] for n in range(4)] == [None, 500_000_000, None, None]
    assert [rows["process"].get(f"gpu_{n}_memory_bytes") for n in range(4)] == [None, GIB, 4 * GIB, 0]
    assert rows["process"]["gpu_memory_bytes"] == 5 * GIB and rows["user"]["gpu_memory_bytes"] == 13 * GIB


def test_a_device_that_is_lost_is_null_and_the_others_go_on(node: Nodes) -> None:
    state = device(used=GIB) + device(OTHER, used=2 * GIB) + process(11, GIB)
    rows = node(state).ask(f"""
looks = Looks()
looks.at(0)
state({"lost 1" + chr(10) + state!r})
print(json.dumps(looks.at(1, process=[11])))
""")
    assert rows["system"]["gpu_1_memory_bytes"] is None and rows["system"]["gpu_0_memory_bytes"] == GIB
    assert rows["process"]["gpu_memory_bytes"] == GIB


def test_devices_that_a_batch_system_keeps_from_us_are_not_counted(node: Nodes) -> None:
    state = device(used=GIB) + device(OTHER, used=2 * GIB) + "denied 0\n"
    rows = node(state).ask("print(json.dumps(Looks().at(0, process=[])))", CUDA_VISIBLE_DEVICES="0")
    assert rows["system"]["gpu_memory_bytes"] == rows["system"]["gpu_0_memory_bytes"] == 2 * GIB
    assert rows["process"]["gpu_0_memory_bytes"] == 0 and "gpu_1_memory_bytes" not in rows["system"]


def test_numbers_of_another_pid_namespace_are_nobodys(node: Nodes) -> None:
    """In a container the driver may call processes by the host's numbers: unknown, not 0."""
    code = f"""
import jumper.monitor.metrics.gpu.collector as collector
collector._FIRST_NAMESPACE = "pid:[1]"  # as if this were not the first
looks = Looks()
rows = [looks.at(0, process=[os.getpid()])]
state({device(used=GIB)!r})
rows.append(looks.at(1, process=[os.getpid()]))  # it has just ended, that may be
state({device(used=GIB) + process(1 << 22, GIB)!r})
rows += [looks.at(second, process=[os.getpid()]) for second in (2, 3)]
state({device(used=GIB)!r})
rows.append(looks.at(4, process=[os.getpid()]))
print(json.dumps(rows))
"""
    rows = node(device(used=GIB) + process(1 << 22, GIB)).ask(code)
    assert [row["process"]["gpu_0_memory_bytes"] for row in rows] == [None, 0, None, None, None]
    assert rows[0]["system"]["gpu_0_memory_bytes"] == GIB
