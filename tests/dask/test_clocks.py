"""A worker's wall clock runs ahead, its monotonic clock is another: times are right, within the bound that is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import jumper
from tests.cluster.beds import hosts, without
from tests.dask.farm import Farm, until

__all__ = ["hosts"]

# clock 11 is International Atomic Time, which neither a wrong wall clock nor a time namespace moves
CODE = """
def tell(number):
    import time
    tai, wall, mono = time.clock_gettime_ns(11), time.time_ns(), time.monotonic_ns()
    time.sleep(0.02)
    return tai, wall, mono
client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
futures = client.map(tell, range(20), key="tell", pure=False, resources={"w1": 1})
{future.key: told for future, told in zip(futures, client.gather(futures))}
"""


def test_starts_are_right_on_a_host_whose_wall_clock_is_37_s_ahead(hosts: Any, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        without("a wrong wall clock needs a C compiler")
    bed = hosts("hub", "ahead")
    bed.command("clock", "ahead", 37)
    farm = Farm(bed, tmp_path)
    try:
        farm.worker("ahead", "w1")
        farm.wait(1)
        told = farm.client(CODE)
        here = farm.client("time.time_ns() - time.clock_gettime_ns(11), time.monotonic_ns() - time.time_ns()")
        gate = tmp_path / "gate"
        farm.submit("w1", "hold", gate)
        until(lambda: Path(f"{gate}.runs").read_text())
        bed.command("clock", "ahead", -3600)
        gate.touch()
        farm.client("w1.result(timeout=60)")
        run = jumper.open_run(farm.collect())
    finally:
        farm.close()
    (offset, hub), tasks = here, run.tasks.set_index("key")
    assert tasks.state.eq("done").all()
    late, monotonic, wall = [], [], []
    for key, (tai, its_wall, its_mono) in told.items():
        truth = tai + offset  # by the scheduler's clock; read just after the start
        late.append(truth - int(tasks.start_ns[key]))
        wall.append(its_wall - truth)
        monotonic.append(its_mono - (truth + hub))
    assert abs(np.median(wall) / 1e9 - 37) < 0.01
    assert abs(np.median(monotonic) / 1e9 - 100_000) < 1
    assert abs(np.median(late)) < 10_000_000
    bounds = {name: clock["error_ns"] for name, clock in run.info["clocks"].items() if name.startswith("ahead.")}
    assert len(bounds) >= 2
    bound = max(bounds.values())
    assert 0 < bound < 50_000_000
    # what a task tells was read after its start, so it is late by that: the least late one shows the clock
    assert -bound <= min(late) <= bound + 1_000_000, (min(late), bound)
    # one task ran while the wall clock was set back by more than an hour
    assert abs(tasks.stop_ns["w1"] - tasks.start_ns["w1"] - tasks.wall_s["w1"] * 1e9) < 2 * bound
    assert 0 < tasks.wall_s["w1"] < 60
    samples = run.samples("process", node="ahead")
    assert samples.time_ns.between(tasks.start_ns.min() - 10**10, tasks.stop_ns.max() + 10**10).all()
    assert samples.time_ns.diff().dropna().between(0, 60 * 10**9).all()
