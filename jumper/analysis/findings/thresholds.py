"""Every threshold of the findings, declared once; the table in docs/findings.md is made from here."""

from __future__ import annotations

from jumper.analysis import advice, needs, nodetime


class Threshold(float):
    """A number that a finding depends on, with what it means.

    Attributes
    ----------
    finding : str
        Name of the finding that reads it; empty where all do.
    unit : str
    meaning : str

    Examples
    --------
    >>> Threshold(0.5, "x", "part", "half of it").meaning, Threshold(0.5, "x", "part", "half of it") * 3
    ('half of it', 1.5)
    """

    finding: str
    unit: str
    meaning: str

    def __new__(cls, value: float, finding: str, unit: str, meaning: str) -> Threshold:
        """Return the number that knows what it means."""
        self = super().__new__(cls, value)
        self.finding, self.unit, self.meaning = finding, unit, meaning
        return self


ENOUGH = Threshold(
    needs.ENOUGH, "", "attempts", "fewest of a group before anything is said of what it asks for or does"
)
LONG_S = Threshold(1, "", "s", "shorter attempts say more about starting than about working: their CPU is not judged")
WORTH = Threshold(
    0.02, "", "of the run", "waste below this part of what all attempts (of a slow node: its own) asked for is not told"
)
MOST = Threshold(10, "", "findings", "most of one name that are told one by one; the rest is one line")

NEAR = Threshold(
    needs.AT_LIMIT, "memory-near, killed", "of what was asked or allowed", "a peak from here on is near it"
)
RISK = Threshold(
    0.01, "memory-near", "of the attempts", "and, of a group of five or more, more are expected to pass it"
)
PAUSED = Threshold(0.8, "memory-near", "of a Dask worker's limit", "from here on Dask pauses a worker")
FAR = Threshold(0.5, "memory-far", "of what was asked", "what is needed, with its margin, is at most this")
LEAK_BYTES = Threshold(1 << 20, "leak", "B an attempt", "a group leaves memory behind from here on")
LEAK_PART = Threshold(0.1, "leak", "of its worker's memory before the first", "and so much in all from here on")
KEPT = Threshold(0.5, "leak", "of what was left", "so much of it is still there in the end")
SWAP_BYTES = Threshold(64 << 20, "swapping", "B", "an attempt swapped from here on")
SWAP_PART = Threshold(0.05, "swapping", "of the memory peak", "and from here on")

MEMORY_PRESSED = Threshold(
    0.2, "memory-pressure", "of the time", "some thread of a node, or of a control group, waits for memory for so long"
)
MEMORY_PART = Threshold(0.1, "memory-pressure", "of the samples", "that holds for so long")

UNUSED = Threshold(
    advice.BUSY, "threads-unused", "of the threads asked for", "the busiest attempt kept at most this busy"
)
OVERUSED = Threshold(
    1.5, "threads-exceeded", "times the threads asked for", "the median attempt keeps at least this busy"
)
FULL = Threshold(
    nodetime.FULL, "cores-crowded, threads-unused", "of a node's CPUs", "so many of them are busy: it is full"
)
PRESSED = Threshold(0.8, "cores-crowded", "of the time", "and some thread waits for a CPU for so long of it")
CROWDED_PART = Threshold(0.2, "cores-crowded", "of the samples", "both hold for so long")
OURS = Threshold(0.5, "cores-crowded", "of the CPU time used on a node", "below it others than this run crowd it")
GPU_IDLE = Threshold(0.05, "gpu-idle", "of the time", "a device that is busy for less is idle")
GPU_STARVED = Threshold(0.5, "gpu-starved", "of the time", "a group keeps the device that it uses busy for less")

WAITS = Threshold(0.3, "io-bound, network-bound", "cores an attempt", "a group keeps at most this busy")
IO_RATE = Threshold(10 << 20, "io-bound", "B/s an attempt", "and moves at least this through system calls")
IO_PRESSED = Threshold(0.3, "io-bound", "of the time", "or some thread on its nodes waits for I/O for so long, and")
IO_LEAST = Threshold(1 << 20, "io-bound", "B/s an attempt", "it moves at least this")
NET_RATE = Threshold(
    10 << 20, "network-bound", "B/s an attempt", "a group that keeps as few cores busy moves this over the network"
)
SLOWER = Threshold(1.3, "straggler", "times the median elsewhere", "the median on a node is at least this")
SURE = Threshold(
    0.01, "straggler", "probability", "and chance alone (Mann-Whitney, times the comparisons made) makes it less often"
)
SPAN_S = Threshold(
    60, "long-tail, waiting, cores-crowded, gpu-idle, memory-pressure", "s", "what lasts shorter is not told"
)
SPREAD = Threshold(4, "long-tail", "threads", "a run that never had so many at once has no tail")
TAIL_LEVEL = Threshold(0.25, "long-tail", "of the run's usual threads", "at most so many are busy with tasks")
TAIL_PART = Threshold(0.15, "long-tail", "of the run", "for at least so long at its end")
WAIT_LEVEL = Threshold(0.5, "waiting", "of the run's usual threads", "tasks are ready while at most so many are busy")
WAIT_PART = Threshold(0.1, "waiting", "of the run", "for at least so long")

GAP_PART = Threshold(0.01, "gap", "of the attempts' time", "so much of it has no samples")
OWN_PART = Threshold(0.02, "own-cost", "of a core", "a monitor uses at least this on average")
OWN_S = Threshold(30, "own-cost", "s", "a shorter run says nothing of it")

#: All of them by name, in this order.
THRESHOLDS: dict[str, Threshold] = {
    name: value for name, value in list(globals().items()) if isinstance(value, Threshold)
}
