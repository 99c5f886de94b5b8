"""All nodes of a job: one thread starts their agents, hears when one is lost or comes back, and ends them.

What is called from outside sets a flag and waits, so that a signal handler may call
it while the same thread is in it already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from jumper.monitor.backends.slurm_multinode.node import Node
from jumper.monitor.nodefacts import process_table
from jumper.schema.errors import MonitorUnavailableError

#: how often the nodes are looked at, while they start and then
SOON_S, LOOK_S = 0.01, 0.1
#: how long agents have for their last sample
STOP_S = 5.0


class Fleet:
    """The agents of all nodes, as one source of rows.

    Parameters
    ----------
    nodes : sequence of Node
    ready_s : float
        How long all nodes together have to answer.
    every_look : callable
        Called every 0.1 s.
    joined : callable
        Called whenever a node was reached for the first time.

    Attributes
    ----------
    on_end : callable or None
        Called with the reason when no node is left.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        ready_s: float,
        every_look: Callable[[], None],
        joined: Callable[[Node], None],
    ) -> None:
        self.on_end: Callable[[str | None], None] | None = None
        self._nodes = list(nodes)
        self._ready_s = ready_s
        self._every_look = every_look
        self._joined = joined
        self._known: set[str] = set()
        self._reason: str | None = None
        self._settled = False
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jumper-nodes", daemon=True)

    def start(self) -> None:
        """Start all agents; return when each node has answered or failed, or when the time is up.

        Raises
        ------
        MonitorUnavailableError
            Where no node answered.
        """
        self._thread.start()
        while not self._settled and self._thread.is_alive():
            time.sleep(0.005)
        if not self._known and not self._stopping:
            raise MonitorUnavailableError(f"no node of the job answered: {self._reason or self._reasons}")

    def set_levels(self, levels: Collection[str]) -> None:
        """Take these levels from the next sample on."""
        for node in self._nodes:
            node.set_levels(levels)

    def flush(self) -> int:
        """Take a sample now, on all nodes that answer."""
        return sum(node.flush() for node in self._nodes)

    def stop(self) -> None:
        """Take the last samples and end all agents."""
        if not self._stopping:
            self._stopping = True
            self._wake.set()
        if self._thread is not threading.current_thread():
            until = time.monotonic() + 2 * STOP_S
            while self._thread.is_alive() and time.monotonic() < until:
                time.sleep(0.005)

    @property
    def _reasons(self) -> str:
        return "; ".join(f"{node.name}: {node.reason}" for node in self._nodes)

    def _run(self) -> None:
        try:
            if not self._stopping:
                self._launch(self._nodes)
            self._watch()
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
        finally:
            for node in self._nodes:
                node.ask_stop()
            until = time.monotonic() + STOP_S
            for node in self._nodes:
                node.stop(max(0.0, until - time.monotonic()))
            if self._reason is not None and self._settled and self.on_end is not None:
                self.on_end(self._reason)

    def _watch(self) -> None:
        """Look after the nodes until stopped, or until none is left."""
        last = time.monotonic()
        deadline = last + self._ready_s
        while not self._stopping:
            now = time.monotonic()
            # where we ourselves were held up, the nodes are not to blame
            elapsed, last = min(now - last, 2 * LOOK_S), now
            wanted = [node for node in self._nodes if node.look(elapsed)]
            if not self._settled and now > deadline:
                for node in self._nodes:
                    node.miss(f"no answer within {self._ready_s:g} s")
            if all(node.state != "starting" for node in self._nodes):
                for node in self._nodes:  # in the job's order
                    if node.info is not None and node.name not in self._known:
                        self._known.add(node.name)
                        self._joined(node)
                if not self._known:
                    return
                self._settled = True
            if self._settled and all(node.gone for node in self._nodes):
                self._reason = f"no node answers any more: {self._reasons}"
                return
            self._launch(wanted)
            self._every_look()
            self._wake.wait(LOOK_S if self._settled else SOON_S)

    def _launch(self, nodes: Sequence[Node]) -> None:
        """Start agents on nodes; none counts what carries the words of the others."""
        for node in nodes:
            node.launch()
        pids = [pid for node in self._nodes for pid in node.pids]
        for node in self._nodes if nodes else ():
            node.configure(pids, process_table())
