"""The demo: a real Dask computation over the Python sources that every machine has, measured.

Sources are tokenised in threads, compressed in sub-processes, counted with dask.dataframe and written as Parquet.
"""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import sysconfig
import tokenize
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import distributed as _distributed

from jumper.schema.errors import MissingExtraError
from jumper.store.rundir import free_place, writing
from jumper_dask.client import collect
from jumper_dask.plugin import JumperPlugin

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

WORKERS, THREADS = 3, 2
#: Sources up to this much in all, in bytes: about half a minute on two cores.
SOURCE_BYTES = 7 << 20
#: A batch of sources is one task, in bytes.
BATCH_BYTES = 256 << 10

Batch = list[tuple[str, int]]
# distributed types some of its names and not others
distributed: Any = _distributed
_COMPRESS = "import sys, lzma; sys.stdout.write(str(len(lzma.compress(sys.stdin.buffer.read(), preset=4))))"


def run_demo(output: Path | None, console: Console) -> Path:
    """Run the demo and return the run's folder, with ``report.html`` in it.

    Parameters
    ----------
    output : path or None
        Where the run goes; default ``./jumper-demo``. A run that is there already gets a neighbour.
    console : rich.console.Console
        Where progress and the summary are shown.

    Raises
    ------
    MissingExtraError
        Where dask.dataframe or pyarrow is missing.
    RunError
        Where the folder cannot be used.
    """
    _check()
    place = free_place(Path(output) if output is not None else Path("jumper-demo"))
    with writing(place):  # before all that it takes
        place.mkdir(parents=True, exist_ok=True)
    batches = batches_of(sources())
    console.print(f"{sum(len(b) for b in batches)} Python sources, {WORKERS} workers of {THREADS} threads")
    with (
        TemporaryDirectory(prefix="jumper-demo-") as scratch,
        distributed.LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=THREADS,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            local_directory=scratch,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(JumperPlugin(interval=0.5))
        with console.status("starting") as status:
            compute(client, batches, Path(scratch), status.update)
            status.update("collecting the run")
            run = collect(client, place)
    report = run.report()
    _show(run, report, console)
    return Path(run.path)


def compute(client: Any, batches: list[Batch], scratch: Path, say: Any) -> int:
    """Run the computation; return how many kinds of tokens were found."""
    import dask.dataframe as dd

    say(f"tokenising {len(batches)} batches")
    tokens = client.map(tokens_of, batches, key="tokenise")
    say("tokenising and compressing")
    sizes = client.map(compressed_size, batches, key="compress")
    distributed.wait(tokens)
    say("compressing")
    distributed.wait(sizes)
    say("aggregating with dask.dataframe")
    frame = dd.from_delayed(tokens, meta=_empty())
    totals = frame.groupby(["package", "kind"])["count"].sum().reset_index()
    say("writing Parquet")
    frame.to_parquet(str(scratch / "tokens"))
    return len(totals.compute())


def sources() -> list[tuple[str, int]]:
    """Return (path, size in bytes) of sources of the standard library and site-packages, evenly chosen."""
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")}
    found = sorted({path for root in roots for path in Path(root).rglob("*.py") if path.is_file()})
    files = [(str(path), path.stat().st_size) for path in found]
    total = sum(size for _, size in files)
    step = max(1, round(total / SOURCE_BYTES))
    return [(path, size) for path, size in files[::step] if size]


def batches_of(files: list[tuple[str, int]]) -> list[Batch]:
    """Return the files in batches of about the same size."""
    batches: list[Batch] = [[]]
    for path, size in files:
        if batches[-1] and sum(s for _, s in batches[-1]) + size > BATCH_BYTES:
            batches.append([])
        batches[-1].append((path, size))
    return batches


def tokens_of(batch: Batch) -> pd.DataFrame:
    """Return how often each kind of token stands in the sources of a batch, by package."""
    import pandas as pd

    counts: Counter[tuple[str, str]] = Counter()
    for path, _ in batch:
        package = Path(path).parent.name
        try:
            for token in tokenize.tokenize(io.BytesIO(Path(path).read_bytes()).readline):
                counts[package, tokenize.tok_name[token.type]] += 1
        except (OSError, SyntaxError, tokenize.TokenError):  # tests of parsers are meant to be broken
            continue
    rows = [(package, kind, count) for (package, kind), count in counts.items()]
    return pd.DataFrame(rows, columns=["package", "kind", "count"]).astype(_empty().dtypes)


def compressed_size(batch: Batch) -> int:
    """Return the size of a batch after compression, which a sub-process does."""
    data = b"".join(Path(path).read_bytes() for path, _ in batch)
    done = subprocess.run([sys.executable, "-S", "-E", "-c", _COMPRESS], input=data, capture_output=True, check=True)
    return int(done.stdout)


def _empty() -> pd.DataFrame:
    import pandas as pd

    types = {"package": "string", "kind": "string", "count": "int64"}
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})


def _check() -> None:
    try:
        import dask.dataframe  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"the demo needs {error.name or 'dask.dataframe'}: pip install 'jumper-workflows[dask,report]'"
        ) from error


def _show(run: Any, report: Path, console: Console) -> None:
    from jumper.report.terminal import summary_table

    console.print(summary_table(run))
    console.print(f"report: {report}")
