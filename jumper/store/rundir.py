"""The run directory: its names, run.json, and files that appear by rename. docs/run.md describes it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jumper.schema import RUN_SCHEMA, VERSION
from jumper.schema.errors import RunError
from jumper.utilities import plain_json

_SECRET = re.compile(r"^--?[\w-]*(token|password|passwd|secret|key|credential|auth)[\w-]*$", re.IGNORECASE)
_SECRET_EQUALS = re.compile(
    r"^((?:--?)?[\w-]*(?:token|password|passwd|secret|key|credential|auth)[\w-]*=).+$", re.IGNORECASE
)


def new_run_id(start_ns: int | None = None) -> str:
    """Return a run id: UTC start and random digits; ids sort by start.

    Examples
    --------
    >>> new_run_id(0)[:16]
    '19700101T000000-'
    """
    start = datetime.fromtimestamp((time.time_ns() if start_ns is None else start_ns) / 1e9, UTC)
    return f"{start:%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"


def free_place(base: Path) -> Path:
    """Return the folder, or where something lies in it a neighbour, ``<base>-2`` and so on.

    Raises
    ------
    RunError
        Where all of them are taken.

    Examples
    --------
    >>> free_place(Path("/nonexistent/run"))
    PosixPath('/nonexistent/run')
    """
    for number in range(1, 1000):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        if not path.exists() or not any(path.iterdir()):
            return path
    raise RunError(f"{base} and its neighbours are taken; give another folder with -o")


def mask_secrets(command: Sequence[str]) -> list[str]:
    """Return a command line with the values after ``--token``, ``--password``, ``--key`` and the like masked.

    Examples
    --------
    >>> mask_secrets(["up", "--api-token", "abc", "--key=k", "x"])
    ['up', '--api-token', '***', '--key=***', 'x']
    """
    masked: list[str] = []
    hide = False
    for word in command:
        if hide and not word.startswith("-"):
            masked.append("***")
            hide = False
            continue
        hide = bool(_SECRET.match(word))
        masked.append(_SECRET_EQUALS.sub(r"\1***", word))
    return masked


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name beside a file's; what lies there at the end of the block takes the file's place, by rename.

    A reader sees the old file or the whole new one. After an error the old one is left as it was.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(file) as partial:
    ...     _ = partial.write_text("whole")
    >>> file.read_text(), [each.name for each in file.parent.iterdir()]
    ('whole', ['a.txt'])
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(3).hex()}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def writing(place: Path, what: str = "") -> Iterator[None]:
    """Say in one line that a place cannot be written, where the system says so to this block.

    Raises
    ------
    RunError

    Examples
    --------
    >>> with writing(Path("/dev/null/a.csv"), "the table to "):
    ...     Path("/dev/null/a.csv").write_text("")
    Traceback (most recent call last):
        ...
    jumper.schema.errors.RunError: cannot write the table to /dev/null/a.csv: Not a directory; choose another place
    """
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {what}{place}: {error.strerror or error}; choose another place") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file, and its folder where there is none, so that a reader sees the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_bytes(data)


def _checked(info: Any) -> Any:
    """Return run.json as it was read, its parts of the shape that docs/run.md gives them; else ValueError."""
    if isinstance(info, dict) and info.get("schema") == RUN_SCHEMA:
        for name, inner in _MAPPINGS.items():
            part = info.get(name, {})
            if not isinstance(part, dict) or not all(isinstance(value, inner) for value in part.values()):
                raise ValueError(f"`{name}` has another shape than expected")
    return info


_MAPPINGS: dict[str, type] = {"segments": dict, "files": int, "nodes": dict, "clocks": dict, "coverage": object}


class RunDirectory:
    """One run on disk.

    Parameters
    ----------
    path : path
        The directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def spool(self) -> Path:
        """Folder of the segments."""
        return self.path / "spool"

    def segments(self) -> list[Path]:
        """Return the segment files, by name."""
        # no segment of ours has a name that is not UTF-8 (os.fsdecode: half a surrogate pair, not printable)
        return sorted(p for p in self.spool.glob("*.seg") if p.is_file() and p.name.isprintable())

    def create(
        self, kind: str, *, command: Sequence[str] = (), run: str | None = None, option: str = "-o", **more: Any
    ) -> dict[str, Any]:
        """Make the directory and its run.json; return what was written.

        Parameters
        ----------
        kind : str
        command : sequence of str, optional
            What is measured.
        run : str, optional
            Its id; default: a new one.
        option : str
            By which the user names another place.
        **more
            Further keys of run.json.

        Raises
        ------
        RunError
            Where something else is there already, or the place cannot be written.
        """
        info = {
            "schema": RUN_SCHEMA,
            "run": run or new_run_id(),
            "kind": kind,
            "command": shlex.join(mask_secrets(command)) or None,
            "created_ns": time.time_ns(),
            "finished_ns": None,
            "versions": {"jumper": VERSION, "python": ".".join(map(str, sys.version_info[:3]))},
            **more,
        }
        try:
            self.spool.mkdir(parents=True, exist_ok=True)
            self.write_info(info)
        except OSError as error:
            hint = f"choose another place with {option}"
            raise RunError(f"cannot make the run {self.path}: {error.strerror}; {hint}") from error
        return info

    def read_info(self) -> dict[str, Any]:
        """Return run.json; a run that lost it but has segments gives a minimal one.

        Raises
        ------
        RunError
            Where this is no run, or one of a newer schema.
        """
        if not self.path.is_dir():
            if self.path.exists():
                raise RunError(
                    f"{self.path} is not a run: it is a file, and a run is a directory that holds a run.json; "
                    "name the directory that `jumper run`, Snakemake or Dask said it wrote"
                )
            raise RunError(f"{self.path} is not a run: there is no such directory")
        file = self.path / "run.json"
        try:
            info = _checked(plain_json(file.read_bytes()))
        except FileNotFoundError:
            info = None
        except (OSError, ValueError) as error:
            if not self.segments():
                raise RunError(f"{file} cannot be read: {error}") from error
            info = None
        if info is None and self.segments():
            return {
                "schema": RUN_SCHEMA,
                "run": self.path.name,
                "kind": "unknown",
                "created_ns": None,
                "recovered": True,
            }
        if not isinstance(info, dict) or "schema" not in info:
            raise RunError(f"{self.path} is not a run: it has no run.json and no spool/*.seg; a run is what `-o` named")
        if not isinstance(info["schema"], int) or info["schema"] > RUN_SCHEMA:
            raise RunError(
                f"{self.path} is of a newer jumper (schema {info['schema']}, this one reads up to {RUN_SCHEMA}); "
                "upgrade jumper-workflows"
            )
        return info

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace run.json."""
        write_atomically(self.path / "run.json", (json.dumps(info, indent=1, default=str) + "\n").encode())

    def update_info(self, **changes: Any) -> dict[str, Any]:
        """Change keys of run.json and return it."""
        info = {**self.read_info(), **changes}
        self.write_info(info)
        return info

    def sample_files(self, stream: str, files: Iterable[str]) -> list[Path]:
        """Return the valid sample files of a stream."""
        prefix = f"samples/{stream}/"
        return [self.path / name for name in files if name.startswith(prefix)]
