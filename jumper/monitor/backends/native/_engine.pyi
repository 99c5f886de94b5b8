from collections.abc import Collection

#: Changes with what this module offers.
INTERFACE: int
#: Bytes that `Engine.drain` returns at most.
DRAIN_BYTES: int
#: Collectors in C that an engine asks at most.
MOST_LIBRARIES: int

def columns(stream: int) -> list[str]:
    """Return the columns of a stream (1 process, 2 user, 3 slurm, 4 system, 5 thread, 6 monitor), in storage order.

    The counters of the cores follow those of `system`.

    Raises
    ------
    ValueError
        Where there is no such stream.
    """

class Engine:
    """One POSIX thread that samples without taking the GIL; see ext/native/engine.h.

    Parameters
    ----------
    interval : float
        Seconds.
    schema, segment, node_lock : bytes
        Payload of the schema block; paths of the segment and of the node's lock; empty: none.
    in_target : bool
        This process is what is watched: the engine's own CPU is left out of it.
    node, queue : bool
        Take the level `system`; keep rows for :meth:`drain`.
    thread_pid : int
        Whose threads are read; 0: nobody's.
    flush_s : float
        Write at most so often; 0: at every tick.
    cap : int
        Of what the disk holds of the segment, in bytes; holes do not count; 0: none.

    Raises
    ------
    ValueError
        Where a path is too long.
    """

    def __init__(
        self,
        interval: float,
        *,
        schema: bytes = b"",
        segment: bytes = b"",
        node_lock: bytes = b"",
        in_target: bool = False,
        node: bool = False,
        queue: bool = False,
        thread_pid: int = 0,
        flush_s: float = 0.0,
        cap: int = 0,
    ) -> None: ...
    def add_collector(self, path: bytes, config: bytes, name: bytes, origin: bytes, levels: int, columns: int) -> None:
        """Ask a collector in C at every tick, too; before :meth:`start`.

        ``name`` and ``origin`` are as they stand in JSON text; ``levels`` is a mask by stream, ``columns`` a number.

        Raises
        ------
        ValueError
            Where there are too many.
        """
    def collector_reason(self, index: int) -> str:
        """Return why the collector that was added as that one is off; empty while it is not."""
    def start(self) -> None:
        """Start the thread; nothing is sampled before :meth:`go`.

        Raises
        ------
        OSError
            Where the thread or the segment cannot be made.
        """
    def add_tree(self, pid: int, parents: Collection[int] = (), tag: bytes = b"", soon: bool = False) -> int:
        """Watch the tree of a process; return its number, -1 where there is no room. Also while it runs.

        It is read before this returns; ``soon``: within 5 ms, or when it is finished, and :meth:`alive` says yes
        until then.
        """
    def add_owner(self, stream: int, uid: int, tag: bytes = b"") -> int:
        """Watch what a user owns, as stream 2, or what of it has ``tag`` in its environment, as 3."""
    def remove(self, number: int) -> None:
        """Watch a set no more."""
    def finish(self, number: int) -> tuple[int | None, ...] | None:
        """Take a last row of a set and watch it no more; return the most that it had.

        CPU in ns; RSS, memory, PSS and the largest high-water mark of one process in bytes;
        None where nothing was seen, and as a whole where it was not watched (any more).
        """
    def exclude(self, pid: int) -> None:
        """Never let a process into a set."""
    def node(self, wanted: bool) -> None:
        """Take the level `system` or not, from the next tick on; without it the node's lock is let go of."""
    def go(self) -> None:
        """Begin the schedule; the first tick is taken before this returns."""
    def tick(self, everything: bool = False) -> None:
        """Take a tick now; ``everything``: read processes too that did not run since the last one."""
    def text(self, lines: bytes) -> bool:
        """Append records (JSON lines) to the segment at the next tick; False where there is no room."""
    def flush(self) -> int:
        """Take a tick, write everything, return the segment's size in bytes."""
    def stop(self) -> None:
        """Take the last tick, write everything, end the thread; safe to call twice, nothing in a fork."""
    def alive(self, number: int) -> bool:
        """Return whether a set has any process left."""
    def members(self, number: int) -> list[tuple[int, int, int, int, int, int, int, int, int]]:
        """Return pid, CPU ns with dead children, RSS bytes and the six of /proc/PID/io of each member."""
    def drain(self, timeout_s: float = 0.0) -> bytes:
        """Return queued rows as int64: stream, count, values (-2**63: null); waits up to the timeout for some."""
    def statistics(self) -> dict[str, int]:
        """Return ticks, missed, late_ns, cpu_ns, pss_cpu_ns, dropped, size, error (errno) and more."""
