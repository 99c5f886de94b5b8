"""Which devices a process may use, by the environment variable that it was started with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from jumper.monitor.metrics.gpu.common import Device


def visible(devices: Sequence[Device], value: str | None) -> list[Device]:
    """Return the devices that a value of ``CUDA_VISIBLE_DEVICES`` allows, in its order.

    As CUDA does: a number, a UUID or the beginning of one, or the name of an instance (``MIG-<uuid>``,
    or ``MIG-GPU-<uuid>/<gpu instance>/<compute instance>``, of which the device is told); what follows an
    entry that names nothing does not count; a device named twice leaves none. Numbers are those of the PCI
    bus (``CUDA_DEVICE_ORDER=PCI_BUS_ID``). A device that is split stands for its instances.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; MIG User Guide, "CUDA Device Enumeration".

    Examples
    --------
    >>> two = [Device(0, "GPU-8932f937", "A", None), Device(1, "GPU-45cbf7b3", "A", None)]
    >>> [d.number for d in visible(two, None)], [d.number for d in visible(two, "1,0")], visible(two, "")
    ([0, 1], [1, 0], [])
    >>> [d.number for d in visible(two, "GPU-45,7,0")]
    [1]
    """
    split = {device.parent for device in devices}
    if value is None:
        return [device for device in devices if device.number not in split]
    found: list[Device] = []
    for word in value.split(","):
        named = _named(devices, word.strip())
        if not named:
            break
        if any(device in found for device in named):
            return []
        found += named
    return found


def _named(devices: Sequence[Device], word: str) -> list[Device]:
    """Return the device, or the instances of the split one, that an entry names; empty where it is not one alone."""
    if word.isdigit():
        own = [device for device in devices if device.parent is None and device.number == int(word)]
    elif word.startswith("MIG-GPU-"):
        own = [device for device in devices if device.uuid == word[4:].partition("/")[0]]
    else:
        own = [device for device in devices if word and device.uuid.startswith(word)]
    if len(own) != 1:
        return []
    return [device for device in devices if device.parent == own[0].number] or own


def setting(pid: int, names: Sequence[str]) -> str | None:
    """Return what the first of these variables that is set says for a process; None where none is.

    Another process's environment is the one that it was started with (proc_pid_environ(5)); where it may not
    be read, this process's stands for it.
    """
    environment: Mapping[str, str] = os.environ
    if pid != os.getpid():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                lines = file.read().decode("utf-8", "replace").split("\0")
        except OSError:
            lines = []
        if any(lines):
            environment = {name: value for name, _, value in (line.partition("=") for line in lines)}
    return next((environment[name] for name in names if name in environment), None)
