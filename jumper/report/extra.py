"""The optional dependencies of reports, asked for where they are needed, with one clear line if missing."""

from __future__ import annotations

import importlib
from typing import Any

from jumper.schema.errors import MissingExtraError


def need(*modules: str) -> Any:
    """Import modules of the extra ``report``; return the last one.

    Raises
    ------
    MissingExtraError
        Where one is not installed; names the extra.

    Examples
    --------
    >>> need("json").__name__
    'json'
    """
    found: Any = None
    for name in modules:
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or (name != error.name and not name.startswith(error.name + ".")):
                raise
            package = name.partition(".")[0]
            raise MissingExtraError(
                f"this needs {package}, which is not installed; pip install 'jumper-workflows[report]'"
            ) from error
    return found
