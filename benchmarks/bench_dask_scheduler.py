"""What the collector costs a Dask scheduler: each task that it notes, a thousand workers that push, memory.

Tasks are driven through the plugin as Dask's scheduler does, without a cluster. The workers are senders in two
processes, each with a connection of its own to a real scheduler, on the schedule that the scheduler gives them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask
import distributed
from distributed.scheduler import TaskGroup, TaskPrefix, TaskState

from benchmarks.measuring import Row, Size, program
from jumper_dask import _boot, live
from jumper_dask.scheduler import SHARDS

TASKS = 1000
LIMIT_US = 10
WORKERS = 1000
SENDERS = 2
LIMIT_PERCENT = 3
TOTAL = 100_000
LIMIT_MIB = 32
#: What a worker of four threads writes in a second at 1 Hz, in bytes.
BYTES_A_SECOND = 1000
CONFIG = {"interval": 1.0, "dashboard": False}
ADDRESS = "tcp://127.0.0.1:12345"


def stand_in() -> Any:
    """A scheduler as far as the collector looks at it."""
    return SimpleNamespace(
        address="tcp://127.0.0.1:8786", workers={ADDRESS: SimpleNamespace(name="w")}, tasks={}, handlers={}, plugins={}
    )


async def begun(scheduler: Any) -> Any:
    """The collector's plugin on a scheduler, with one measured worker."""
    boot = _boot.SchedulerBoot(CONFIG)
    boot.start(scheduler)
    if boot.side is None:
        raise RuntimeError(str(boot.status))
    await boot.side._hello(ADDRESS, "w", "n1", 1, 1.0)
    return boot


async def noted(rounds: int) -> list[float]:
    """Return, for each round, the CPU in us that a trivial task takes: five transitions, a note, writing it."""
    found = []
    for _ in range(rounds):
        scheduler = stand_in()
        boot = await begun(scheduler)
        group = TaskGroup("inc", TaskPrefix("inc"))
        for index in range(TASKS):
            key = f"inc-{index:032x}"
            scheduler.tasks[key] = task = TaskState(key, None, "released", group, False)
            task.run_id = index
        now = time.time()
        facts = {"worker": ADDRESS, "thread": 1, "nbytes": 28, "type": b"", "typename": "int", "metadata": {},
                 "startstops": [{"action": "compute", "start": now, "stop": now}], "stimulus_id": "s"}  # fmt: skip
        gc.freeze()
        begin = time.thread_time_ns()
        for key in scheduler.tasks:
            boot.transition(key, "released", "waiting", stimulus_id="s")
            boot.transition(key, "waiting", "processing", stimulus_id="s")
            boot.transition(key, "processing", "memory", **facts)
            boot.transition(key, "memory", "released", stimulus_id="s")
            boot.transition(key, "released", "forgotten", stimulus_id="s")
        side = boot.side
        side.folder.write([side._notes.popleft() for _ in range(len(side._notes))], side.info())
        found.append((time.thread_time_ns() - begin) / TASKS / 1e3)
        side.collected = True
        await boot.close()
    return found


def message(number: int) -> tuple[str, bytes]:
    """What a worker says of itself: ten groups."""
    groups = {f"group-{index}": live.Group(done=number, cpu_ns=number * 10**9) for index in range(10)}
    return f"{os.getpid()}-{number}", live._ENCODER.encode(live.Process(time.monotonic_ns(), 1, 1, 1, 0, groups))


async def serve() -> None:
    """Be a scheduler with the collector; answer each line with the CPU that this process has used."""
    allow_files()
    where = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with distributed.Scheduler(**where) as scheduler:
        boot = _boot.SchedulerBoot(CONFIG)
        await scheduler.register_scheduler_plugin(boot, name=boot.name, idempotent=True)
        print(scheduler.address, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)
        boot.side.collected = True


async def send(address: str, workers: int) -> None:
    """Be so many workers: greet, wait for a line, then push for ever on the scheduler's schedule."""
    allow_files()
    ends = [distributed.rpc(address) for _ in range(workers)]
    greetings = [await end.jumper_hello(worker=f"tcp://{os.getpid()}:{i}", name=str(i), node="n", pid=i, interval=1.0)
                 for i, end in enumerate(ends)]  # fmt: skip
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    period = float((await ends[0].jumper_hello(worker=f"tcp://{os.getpid()}:0", name="0", node="n", pid=0,
                                               interval=1.0))["period_s"])  # fmt: skip
    shard = os.urandom(round(period * BYTES_A_SECOND / SHARDS))

    async def pushing(number: int) -> None:
        offsets = [0] * SHARDS
        await asyncio.sleep(random.uniform(0, period))
        while True:
            begin = time.monotonic()
            for which, offset in enumerate(offsets):
                answer = await ends[number].jumper_push(
                    run=greetings[number]["run"],
                    segment=f"n.{os.getpid()}.{number}.{which}",
                    offset=offset,
                    data=shard,
                    worker=f"tcp://{os.getpid()}:{number}",
                    live=message(number),
                )
                offsets[which] = answer["ack"]
            await asyncio.sleep(max(0.0, period - (time.monotonic() - begin)))

    tasks = [asyncio.create_task(pushing(number)) for number in range(workers)]
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    for end in ends:
        end.close_comms()


async def kept(shards: int) -> None:
    """Take so many shards, of senders in this process, and print the resident memory at a tenth and at the end."""
    boot = await begun(stand_in())
    side = boot.side
    sent = 0

    async def sender(number: int) -> None:
        nonlocal sent
        offset = 0
        while sent < shards:
            sent += 1
            shard = b"x" * 512
            answer = await side._push(side.run, f"n.1.{number}", offset, shard, f"tcp://w:{number}", message(number))
            offset = answer["ack"]
            if sent in (shards // 10, shards):
                print(resident(), flush=True)

    await asyncio.gather(*(sender(number) for number in range(WORKERS // 10)))
    side.collected = True
    await boot.close()


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allow_files() -> None:
    """A connection is a descriptor, and there are more than the usual limit."""
    with contextlib.suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.bench_dask_scheduler", *map(str, words)]


def pushed(workers: int, seconds: float, windows: int) -> tuple[float, float]:
    """Return the CPU of a scheduler in per cent of a core while workers push, and while they only are there.

    Each is the least of some windows: what else a machine does adds to CPU time, and never takes from it.
    """
    with contextlib.ExitStack() as stack:
        into, out, _ = stack.enter_context(program(command("serve")))
        address = out.readline().decode().strip()

        def used() -> float:
            into.write(b"\n")
            into.flush()
            return float(out.readline())

        def over() -> float:
            before, begin = used(), time.monotonic()
            time.sleep(seconds)
            return 100 * (used() - before) / (time.monotonic() - begin)

        ends = [stack.enter_context(program(command("send", address, workers // SENDERS))) for _ in range(SENDERS)]
        for _, said, _ in ends:
            said.readline()
        quiet = min(over() for _ in range(windows))
        for told, _, _ in ends:
            told.write(b"\n")
            told.flush()
        time.sleep(min(seconds, 2.0))
        return min(over() for _ in range(windows)), quiet


def at_the_scheduler(size: Size) -> Iterator[Row]:
    """Yield what a task, workers that push, and shards cost the scheduler."""
    tiny = size.work < 1
    with tempfile.TemporaryDirectory(prefix="jumper-bench-") as folder:
        os.environ.update(DASK_JUMPER__DIRECTORY=folder, DASK_LOGGING__DISTRIBUTED="error")
        with dask.config.set({"jumper.directory": folder}):
            us = asyncio.run(noted(3 if tiny else 40))
        yield Row(
            "Dask, a trivial task, at the scheduler: five transitions, a note, writing it; least of repeats",
            f"{min(us):.1f} us", "", "", f"under {LIMIT_US} us", min(us) < LIMIT_US,
        )  # fmt: skip
        workers, seconds, windows = (20, 1.5, 1) if tiny else (WORKERS, 12.0, 5)
        ours, quiet = pushed(workers, seconds, windows)
        yield Row(
            f"Dask, {workers} workers push {BYTES_A_SECOND} B/s each: scheduler, least of windows; silent ones",
            f"{ours:.2f} %", f"{quiet:.2f} %", "", f"{LIMIT_PERCENT} % of a core more", ours - quiet <= LIMIT_PERCENT,
        )  # fmt: skip
        shards = 2000 if tiny else TOTAL
        with program(command("memory", shards)) as (_, out, _):
            first, last = int(out.readline()), int(out.readline())
        grown = (last - first) / 2**20
        yield Row(
            f"Dask, {shards} shards: the scheduler's memory grows from the first tenth to the last",
            f"{grown:.1f} MiB", f"{first / 2**20:.0f} MiB", "", f"under {LIMIT_MIB} MiB", grown < LIMIT_MIB,
        )  # fmt: skip
        del os.environ["DASK_JUMPER__DIRECTORY"], os.environ["DASK_LOGGING__DISTRIBUTED"]


if __name__ == "__main__":
    mode, *given = sys.argv[1:]
    if mode == "serve":
        asyncio.run(serve())
    elif mode == "send":
        asyncio.run(send(given[0], int(given[1])))
    else:
        asyncio.run(kept(int(given[0])))
