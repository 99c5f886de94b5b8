"""The interface of a collector, and of the handler that turns its values into columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from jumper.monitor.metrics.context import CollectionContext

__all__ = ["CollectionContext", "CollectorBackend", "StorageHandler", "Value"]

#: What a column holds. None is a missing value, never 0.
Value = int | float | None


class CollectorBackend(ABC):
    """Base of all collectors: one group of metrics, read once a tick and level.

    A pipeline calls :meth:`setup` once, then in every tick :meth:`snapshot` of
    all collectors, in the order of the configuration, and after that
    :meth:`collect` for each level. One that raises is switched off with its
    reason; the others go on.

    Examples
    --------
    >>> class Answer(CollectorBackend):
    ...     name = "answer"
    ...     def collect(self, level, context):
    ...         return 42.0
    >>> Answer().setup() is None
    True
    """

    name: str = ""

    def setup(self) -> Mapping[str, Any] | None:
        """Acquire what is needed, once, before the first tick.

        Returns
        -------
        mapping or None
            Facts about the hardware, such as ``num_gpus``, ``gpu_memory`` (GiB) and
            ``gpu_name``; :meth:`jumper.monitor.pipeline.Pipeline.setup` hands them on.
        """
        return None

    def snapshot(self, context: CollectionContext) -> None:  # noqa: B027  (optional, as in the documents)
        """Read once a tick what serves all levels, and share it in ``context``."""

    @abstractmethod
    def collect(self, level: str, context: CollectionContext) -> Any:
        """Return the value of this tick at ``level``, in the form that the handler expects.

        None means: nothing at this level in this tick.
        """

    def close(self) -> None:  # noqa: B027  (optional)
        """Release what :meth:`setup` acquired."""


class StorageHandler(Protocol):
    """What turns the value of a collector into columns.

    A handler may also have ``at(time_s)``, called before each transform with the
    monotonic time of the sample in seconds, and ``columns``, the names that it
    will write (``#`` stands for the number of a device); both are optional.
    """

    def transform(self, raw: Any, level: str) -> Mapping[str, Value]:
        """Return column -> value of one sample of one level."""
        ...
