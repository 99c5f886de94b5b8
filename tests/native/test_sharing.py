"""Memory of a crowd of forks as the engine tells it."""

from __future__ import annotations

from pathlib import Path

from tests.native.test_safety import host, whole


def test_forks_that_are_gone_at_the_next_tick_have_the_memory_that_was_read_between(tmp_path: Path) -> None:
    """Ten forks of 20 MiB each, seen at one tick and gone at the next: the sum of their PSS is no other's word."""
    host(
        tmp_path,
        """
def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10

engine = made(interval=60, queue=True)
came, come = os.pipe()
gate, open_gate = os.pipe()
pids = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        os.close(open_gate)
        held = bytearray(b"x") * (20 << 20)
        os.write(come, b"x")
        os.read(gate, 1)
        os._exit(0)
    pids.append(pid)
for _ in pids:
    os.read(came, 1)
engine.tick()
truth = sum(map(pss, [os.getpid(), *pids]))
assert truth > 200 << 20
engines = [t for t in os.listdir("/proc/self/task") if open(f"/proc/self/task/{t}/comm").read().startswith("jumper")]
reader = max(engines, key=int)
before, now, end = 0, 0, time.monotonic() + 60
while now - before > 500_000 or now < 1_000_000:  # it reads all in a second, and rests for two
    assert time.monotonic() < end, now
    time.sleep(0.5)
    before, now = now, int(open(f"/proc/self/task/{reader}/schedstat").read().split()[0])
os.close(open_gate)
for pid in pids:
    os.waitpid(pid, 0)
engine.tick()
row = last(engine)
assert row["processes"] == 1, row
assert abs(row["memory_peak_bytes"] - truth) < 0.02 * truth, (row, truth)
engine.stop()
""",
    )
    whole(tmp_path / "a.seg")
