"""What did each task of a workflow really cost, on every node, and what should change?

The package namespace stays light: nothing heavy is imported until it is used.

Examples
--------
>>> import jumper
>>> jumper.__version__.count(".") >= 1
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jumper.schema import VERSION as __version__

if TYPE_CHECKING:
    from jumper.core.run import Run, open_run

__all__ = ["Run", "__version__", "load_ipython_extension", "open_run", "unload_ipython_extension"]


def load_ipython_extension(ipython: Any) -> None:
    """Do what ``%load_ext jumper`` says: register the magics; see docs/ipython.md."""
    from jumper.ipython.magics import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Do what ``%unload_ext jumper`` says: stop to measure, take the magics away."""
    from jumper.ipython.magics import unload

    unload(ipython)


def __getattr__(name: str) -> Any:
    if name in ("open_run", "Run"):
        from jumper.core import run

        return getattr(run, name)
    raise AttributeError(f"module 'jumper' has no attribute {name!r}")
