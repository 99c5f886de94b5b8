"""What commands print with: a console, a bar for long work, one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Return where tables go: standard output, as wide as it is."""
    from rich.console import Console

    return Console()


@contextmanager
def progress(words: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a long work is, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task(words, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))
