"""Workflows that nobody here wrote, those that Snakemake's own package ships: the same with us and without."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import jumper
from tests.snakemake.conftest import PLAIN, Workflow

SHIPPED = Path(str(pytest.importorskip("snakemake").__file__)).parent / "common/tests/testcases"
#: Snakemake's own tests that are compared at most; each is two starts, some of them several seconds
MOST = 40


def files(folder: Path) -> dict[str, str]:
    """Return a digest of every file but of what Snakemake keeps for itself."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".snakemake" not in path.relative_to(folder).parts
    }


@pytest.mark.parametrize("name", ["simple", pytest.param("groups", marks=pytest.mark.slow)])
def test_outputs_are_the_same_and_nothing_is_to_be_done_again(name: str, tmp_path: Path) -> None:
    made = {}
    for way, logger in (("without", ()), ("with", PLAIN)):
        shutil.copytree(SHIPPED / name, tmp_path / way)
        made[way] = Workflow(tmp_path / way)
        made[way].done(logger=logger)
    assert files(tmp_path / "with") == files(tmp_path / "without")
    assert len(files(tmp_path / "with")) > len(files(SHIPPED / name))
    again = made["with"].call("-n", logger=())
    assert "Nothing to be done" in again.stdout + again.stderr
    tasks = made["with"].run().tasks
    assert set(tasks["group"]) == {"simple": {"a", "b", "c", "d"}, "groups": {"a", "b", "c"}}[name]
    assert tasks["cpu_s"].notna().all()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_snakemakes_own_tests_end_the_same_and_leave_the_same(tmp_path: Path) -> None:
    from snakemake import __version__ as version

    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    got = subprocess.run([*pip, "-d", str(tmp_path), f"snakemake=={version}"], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"the sources cannot be had: {got.stderr[-200:]}")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.glob("snakemake-*/tests")
    cases = sorted(
        path.parent for path in sources.glob("test*/Snakefile") if (path.parent / "expected-results").is_dir()
    )
    differing, same = {}, []
    for case in cases:
        if len(same) == MOST:
            break
        ended = {}
        for way, logger in (("without", ()), ("with", PLAIN)):
            folder = tmp_path / way / case.name
            shutil.copytree(case, folder)
            try:
                ended[way] = Workflow(folder).call("--verbose", logger=logger).returncode
            except subprocess.TimeoutExpired:
                ended[way] = None
            if ended["without"] != 0:  # it wants arguments, a container, a network
                break
        else:
            said = {way: files(tmp_path / way / case.name) for way in ended}
            differences = [name for name in said["with"] if said["with"][name] != said["without"].get(name)]
            lacking = sorted(set(said["without"]) - set(said["with"]))
            if ended["with"] == 0 and not lacking and not differences:
                same.append(case.name)
            else:
                differing[case.name] = (ended, lacking, differences)
            runs = Workflow(tmp_path / "with" / case.name).runs()
            assert all(jumper.open_run(run).info["coverage"]["missing"] == [] for run in runs), case.name
    assert len(same) > 20
    assert differing == {}
