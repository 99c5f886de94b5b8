"""Start and stop a monitor, and get out what it measured: the documents' service."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jumper.adapters.cells import CellHistory, parse_cells
from jumper.adapters.frames import write_frame
from jumper.monitor.backends import backend_name, create_monitor
from jumper.monitor.backends.offline import all_hardware, joined_stores, nodes_of
from jumper.monitor.common import MonitorProtocol, missing_attributes
from jumper.schema.errors import JumperError
from jumper.utilities import parse_interval

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import pandas as pd

    from jumper.monitor.sanity import SanityReport
    from jumper.report.perfreport import PerfReport

__all__ = ["PerfmonitorService", "build_perfmonitor_service"]

Cells = str | int | tuple[int, int]


class PerfmonitorService:
    """One monitor at a time; reports, plots, exports and sessions of it, while it runs and after.

    What an earlier monitor of the service measured stays: tables go on where they ended.

    Attributes
    ----------
    monitor : MonitorProtocol or None
        The one that runs or ran last.
    cells : CellHistory
        What :meth:`monitored` and notebooks have marked.
    """

    def __init__(self) -> None:
        self.monitor: MonitorProtocol | None = None
        self.cells = CellHistory()
        self._earlier: list[Any] = []  # what monitors before this one measured
        self._first_start: float | None = None

    def start_monitoring(
        self,
        interval: float = 1.0,
        monitor_type: str = "default",
        monitor: Any = None,
        check_sanity: bool = False,
    ) -> SanityReport | None:
        """Start a monitor.

        Parameters
        ----------
        interval : float, optional
            Seconds between two samples.
        monitor_type : str, optional
            Which of ours; see :func:`jumper.monitor.backends.create_monitor`.
        monitor : MonitorProtocol, optional
            One of your own; it goes before ``monitor_type``.
        check_sanity : bool, optional
            Try such a monitor first, for about half a second; see :func:`jumper.monitor.sanity.check_sanity`.
            Skipped, with a warning, for a monitor of your own and for those of several nodes.

        Returns
        -------
        SanityReport or None
            What the check found; there is a warning, too, where that is a problem.

        Raises
        ------
        ValueError
            Where the interval is no finite number of at least 1 ms.
        JumperError
            Where a monitor runs already, the type is unknown, or the object is no monitor.
        """
        interval = parse_interval(interval)
        if self.monitor is not None and self.monitor.running:
            raise JumperError("a monitor is running already; call stop_monitoring() first")
        checked = _checked(monitor_type, monitor) if check_sanity else None
        if monitor is None:
            monitor = create_monitor(monitor_type)
        missing = missing_attributes(monitor)
        if missing:
            raise JumperError(
                f"{type(monitor).__name__} is no monitor: it lacks {', '.join(missing)} "
                "(jumper.monitor.common.MonitorProtocol lists what one has)"
            )
        imported = self.monitor is not None and self.monitor.is_imported
        earlier = [] if imported else self._stores()
        monitor.start(interval)
        if monitor.data is not None:
            monitor.data.start_time = monitor.start_time
        if imported:
            self.cells = CellHistory()
        if not earlier:
            self._first_start = monitor.start_time
        self._earlier, self.monitor = earlier, monitor
        return checked

    def stop_monitoring(self) -> None:
        """Stop the monitor; what it measured stays readable. Nothing happens where none runs."""
        if self.monitor is not None and self.monitor.running:
            self.monitor.stop()

    @contextmanager
    def monitored(
        self,
        name: str = "",
        interval: float = 1.0,
        monitor_type: str = "default",
        execution_count: int | None = None,
    ) -> Iterator[PerfmonitorService]:
        """Mark a block as a cell, and measure it where no monitor runs yet.

        Parameters
        ----------
        name : str, optional
            What the report calls it.
        interval, monitor_type
            As in :meth:`start_monitoring`, for the monitor of this block only.
        execution_count : int, optional
            The notebook's ``In [n]``.

        Examples
        --------
        >>> service = build_perfmonitor_service()
        >>> with service.monitored("sum", interval=0.05):
        ...     total = sum(range(100_000))
        >>> service.perfreport().cells["code"].tolist()
        ['sum']
        """
        own = self.monitor is None or not self.monitor.running
        if own:
            self.start_monitoring(interval, monitor_type)
        cell = self.start_cell(name, execution_count)
        try:
            yield self
        finally:
            self.end_cell(cell)
            if own:
                self.stop_monitoring()

    def start_cell(self, raw_cell: str, execution_count: int | None = None) -> Any:
        """Mark that a cell begins, with a sample there where the monitor can; :meth:`end_cell` takes the result."""
        cell = self.cells.start(raw_cell, execution_count)
        self._sample()
        return cell

    def end_cell(self, cell: Any) -> None:
        """Mark that a cell ends."""
        self._sample()
        self.cells.end(cell)

    @property
    def nodes(self) -> Any:
        """What was measured, by node: a :class:`jumper.adapters.data.NodeDataStore`.

        Raises
        ------
        JumperError
            Where nothing was measured yet.
        """
        self._some()
        stores = self._stores()
        return stores[0] if len(stores) == 1 else joined_stores(stores)

    def perfreport(
        self, cell_range: Cells | None = None, level: str = "process", node: str | None = None
    ) -> PerfReport:
        """Return the report of what was measured so far: ``print`` it, or let a notebook show it.

        Parameters
        ----------
        cell_range : str, int or (int, int), optional
            Cells that it is about; see :func:`jumper.adapters.cells.parse_cells`. Default: all of the time.
        level, node : str, optional
            Default: all nodes.

        Raises
        ------
        JumperError
            Where nothing was measured, or there are no such cells or no such node.
        ValueError
            Where there is no such level.
        """
        from jumper.report.perfreport import perfreport

        nodes, monitor = self.nodes, self._some()
        frame, cells = self._chosen(nodes, cell_range, level, node)
        hardware = all_hardware(nodes) if node is None else nodes.hardware[node]
        if cell_range is None:
            ends = [frame["time"].iloc[-1] if len(frame) else None, getattr(monitor, "stop_time", None)]
            duration = max((end for end in ends if end is not None), default=self._start()) - self._start()
        else:
            duration = float(cells["duration"].sum())
        return perfreport(frame, cells, hardware, level, monitor.interval, duration)

    def plot_performance(
        self,
        metrics: Sequence[str] | None = None,
        cell_range: Cells | None = None,
        level: str = "process",
        node: str | None = None,
        file: str | os.PathLike[str] | None = None,
        live: bool | tuple[float, float] = False,
    ) -> Any:
        """Return a picture of what was measured, a HoloViews layout.

        Parameters
        ----------
        metrics : sequence of str, optional
            ``cpu``, ``cpu_all``, ``memory``, ``io``, ``io_count``, ``gpu``, ``gpu_all``, ``gpu_band``, ``gpu_mem``,
            ``gpu_mem_all``, or any column, a custom collector's too. Default: what there is.
        cell_range, level, node
            As in :meth:`perfreport`.
        file : path, optional
            Write it there, too: ``.html``, ``.png``, ``.jpg``, ``.svg``, ``.pdf``.
        live : bool or (float, float), optional
            Draw it anew while the monitor runs, every so many seconds (2), over so many of them (120);
            the result is a :class:`jumper.report.liveplot.LivePlot`.

        Raises
        ------
        JumperError
            As :meth:`perfreport`; where a metric has no values here; where it shall be live and nothing runs.
        MissingExtraError
            Where the extra ``report`` is not installed.
        """
        if live is not False:
            return self._live(metrics, level, node, (2.0, 120.0) if live is True else live)
        from jumper.report.levelplot import level_plot, save_plot

        frame, cells = self._chosen(self.nodes, cell_range, level, node)
        frame = self._even(frame)
        if file is not None:
            save_plot(file, frame, metrics, self._start(), cells)
        return level_plot(frame, metrics, self._start(), cells)

    def export_perfdata(
        self, file: str | os.PathLike[str] | None = None, level: str = "process", node: str | None = None
    ) -> pd.DataFrame:
        """Return what was measured so far, or until the monitor was stopped, and write it.

        Parameters
        ----------
        file : path, optional
            Its suffix says the format: ``.csv``, ``.json`` or ``.parquet``.
        level, node : str, optional

        Returns
        -------
        DataFrame
            Columns as in :meth:`jumper.adapters.data.PerformanceData.view`, with ``cell_index`` where there are cells.

        Raises
        ------
        JumperError
            Where nothing was measured yet, or the suffix is another one.
        ValueError
            Where there is no such level.
        """
        history = self.cells if self.cells.finished else None
        frame: pd.DataFrame = self.nodes.view(level, node=node, cell_history=history)
        if file is not None:
            write_frame(frame, file)
        return frame

    def export_session(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write everything that was measured, and return where; see :func:`jumper.adapters.session.export_session`."""
        from jumper.adapters.session import export_session

        return export_session(path, self._some(), self.nodes, self.cells, self._first_start)

    def import_session(self, path: str | os.PathLike[str]) -> None:
        """Show a session that was written: reports, plots and exports are of it from now on.

        Raises
        ------
        JumperError
            Where a monitor runs, or it is no session.
        """
        from jumper.adapters.session import import_session

        if self.monitor is not None and self.monitor.running:
            raise JumperError("a monitor is running; call stop_monitoring() before a session is imported")
        monitor, self.cells = import_session(path)
        self.monitor, self._earlier, self._first_start = monitor, [], monitor.start_time

    def resources(self) -> str:
        """Return what there is on each node that is measured; before that, on this one."""
        if self.monitor is None or self.monitor.data is None:
            nodes = nodes_of(create_monitor("thread", levels=[]))
        else:
            nodes = self.nodes
        lines = []
        for name, info in nodes.hardware.items():
            limit = info.memory_limits.get("process") or 0.0
            lines.append(
                f"{name}: {info.num_cpus} of {info.num_system_cpus} CPUs, memory up to {limit:.1f} GiB, "
                + (f"{info.num_gpus} GPUs ({info.gpu_name}, {info.gpu_memory:.1f} GiB)" if info.num_gpus else "no GPU")
            )
        return "\n".join(lines)

    def close(self) -> None:
        """Stop the monitor, if one runs."""
        self.stop_monitoring()

    def _some(self) -> Any:
        if self.monitor is None or self.monitor.data is None:
            raise JumperError("nothing was measured yet; call start_monitoring() first")
        return self.monitor

    def _stores(self) -> list[Any]:
        if self.monitor is None or self.monitor.data is None:
            return self._earlier
        store = nodes_of(self.monitor)
        return [*(each for each in self._earlier if each is not store), store]

    def _start(self) -> float:
        return self._first_start or 0.0

    def _sample(self) -> None:
        take = getattr(self.monitor, "sample", None)
        if take is not None:
            try:
                take()
            except Exception as error:  # whatever it is, the user's block goes on
                warnings.warn(f"no sample at the end of a cell: {type(error).__name__}: {error}", stacklevel=4)

    def _chosen(
        self, nodes: Any, cell_range: Cells | None, level: str, node: str | None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the samples of the cells that are asked for, and those cells."""
        frame, cells = nodes.view(level, node=node), self.cells.data
        if cell_range is None:
            return frame, cells
        first, last = parse_cells(cell_range, int(cells["cell_index"].max()) + 1 if len(cells) else 0)
        cells = cells[cells["cell_index"].between(first, last)]
        inside = frame["time"].between(cells["start_time"].min(), cells["end_time"].max())
        return frame[inside].reset_index(drop=True), cells

    def _even(self, frame: pd.DataFrame) -> pd.DataFrame:
        from jumper.analysis.level import even

        return even(frame, self._some().interval)

    def _live(self, metrics: Sequence[str] | None, level: str, node: str | None, pace: tuple[float, float]) -> Any:
        from jumper.report.liveplot import LivePlot

        monitor = self._some()
        if not monitor.running:
            raise JumperError("a live plot needs a monitor that runs; call start_monitoring() first")
        update_s, window_s = pace

        def read() -> pd.DataFrame:
            frame: pd.DataFrame = nodes_of(monitor).view(level, node=node)
            return self._even(frame[frame["time"] >= frame["time"].max() - window_s])

        return LivePlot(read, lambda: bool(monitor.running), metrics, self._start(), update_s)


def _checked(monitor_type: str, monitor: Any) -> SanityReport | None:
    from jumper.monitor.sanity import CHECKED, check_sanity

    if monitor is not None or backend_name(monitor_type) not in CHECKED:
        what = backend_name(monitor_type) if monitor is None else type(monitor).__name__
        warnings.warn(
            f"the sanity check is made for {', '.join(CHECKED)}; it is skipped for {what}, which is no fault of it",
            stacklevel=3,
        )
        return None
    report = check_sanity(create_monitor(monitor_type))
    if not report.ok:
        warnings.warn(str(report), stacklevel=3)
    return report


def build_perfmonitor_service() -> PerfmonitorService:
    """Return a new service, without a monitor.

    Examples
    --------
    >>> build_perfmonitor_service().monitor is None
    True
    """
    return PerfmonitorService()
