"""What a source of GPU figures gives: devices, their state, and who uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

#: longest time between two samples that a driver takes of a device's processes
SAMPLE_NS = 1_000_000_000


class Device(NamedTuple):
    """A GPU, or an instance that a part of one was made into (MIG).

    Attributes
    ----------
    number : int
        Number on this node: physical devices first, in the order of the PCI bus, then instances.
    uuid : str
        Its identity, here and on every other day; for an instance, ``MIG-…``.
    name : str
    memory_bytes : int or None
    parent : int or None
        ``number`` of the device that an instance is a part of.
    """

    number: int
    uuid: str
    name: str
    memory_bytes: int | None
    parent: int | None = None


class State(NamedTuple):
    """What a device does now; None where it does not say.

    Attributes
    ----------
    busy, band : float or None
        Part of the last moment in which a kernel ran, in which its memory was read or written; 0 to 1.
    memory_bytes, energy_uj, power_uw, temperature_c : int or None
        Memory in use, energy since the driver was loaded, power, temperature.
    """

    busy: float | None = None
    band: float | None = None
    memory_bytes: int | None = None
    energy_uj: int | None = None
    power_uw: int | None = None
    temperature_c: int | None = None


class Use(NamedTuple):
    """What one process uses of a device; None where that is not known.

    Attributes
    ----------
    memory_bytes : int or None
        Device memory that it holds.
    busy_ns, band_ns : int or None
        As :class:`State`, as time since the look before.
    """

    memory_bytes: int | None = None
    busy_ns: int | None = None
    band_ns: int | None = None


class GpuSource(Protocol):
    """A vendor's library."""

    @property
    def devices(self) -> Sequence[Device]:
        """All devices of the node, in the order of their numbers."""
        ...

    @property
    def variables(self) -> Sequence[str]:
        """Environment variables that say which devices a process may use; the first that is set counts."""
        ...

    def state(self, device: Device) -> State:
        """Return what a device does now.

        Raises
        ------
        Exception
            Of the library, where the driver is gone; what a device does not know is None.
        """
        ...

    def uses(self, device: Device) -> Mapping[int, Use] | None:
        """Return process id -> what it uses; None where the device does not say."""
        ...

    def close(self) -> None:
        """Let go of the library."""
        ...
