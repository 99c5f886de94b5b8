"""What the main process decides and every job process must know: one environment variable.

This module is imported by every Snakemake process, so it needs next to nothing.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

#: of every process of a run: the settings, in characters that no shell looks at
VARIABLE = "JUMPER_SNAKEMAKE"
#: nobody said which resources a job asks for
ANY = "any"
#: of every process of a job: which one it is
TAG = "JUMPER_SNAKEMAKE_JOB"


class Settings(NamedTuple):
    """How a run is measured.

    Attributes
    ----------
    run : str
        The run directory, absolute.
    interval : float
        Seconds between samples.
    backend : str
        ``default``, ``native`` or ``python``.
    levels : str
        What is sampled beside the jobs, as ``system+user``.
    benchmark : str
        ``replace``: the values in `benchmark:` files are ours; ``keep``: Snakemake's.
    multinode : str
        ``auto`` or ``off``.
    inode : int
        Of the run directory: a copy of it, which nobody reads, has another one.
    jobs_only : bool
        Only Snakemake's own job processes are measured, not a workflow that one of them starts.
    asked : str
        Resources that the job of this process asks for, by name, joined by +; :data:`ANY`: those that it finds.
    """

    run: str
    interval: float = 0.5
    backend: str = "default"
    levels: str = "system"
    benchmark: str = "replace"
    multinode: str = "auto"
    inode: int = 0
    jobs_only: bool = True
    asked: str = ANY


def encode(settings: Settings) -> str:
    """Return settings as the value of :data:`VARIABLE`.

    Examples
    --------
    >>> text = encode(Settings("/a b/run", interval=1.0))
    >>> text.startswith("run=/a%20b/run,interval=1.0,"), decode(text) == Settings("/a b/run", interval=1.0)
    (True, True)
    """
    return ",".join(f"{name}={quote(str(value), safe='/.+-')}" for name, value in settings._asdict().items())


def decode(text: str) -> Settings:
    """Return the settings that :func:`encode` wrote.

    Raises
    ------
    ValueError
        Where the text is no such value.
    """
    given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    values = {name: unquote(given[name]) for name in Settings._fields if name in given}
    if not os.path.isabs(values.get("run", "")):
        raise ValueError(f"{VARIABLE}: expected run=<absolute path>,..., found {text[:80]!r}; unset it")
    more: dict[str, Any] = dict(values)
    if "interval" in values:
        more["interval"] = float(values["interval"])
    if "inode" in values:
        more["inode"] = int(values["inode"])
    if "jobs_only" in values:
        more["jobs_only"] = values["jobs_only"] == "True"
    return Settings(**more)
