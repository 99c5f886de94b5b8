"""Each internal of Snakemake that the hook touches, by name; and a Snakemake that has moved one of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jumper_snakemake import hook
from jumper_snakemake.hook import PATCHES, Patch, fault_of
from tests.snakemake.conftest import REPOSITORY, Workflow, row

#: a Snakemake in which a name has moved, everywhere where it is used
MOVED = """
import importlib.machinery, os, re, sys

old = re.compile(os.environ["TEST_MOVED"].encode())
only = os.environ["TEST_MOVED_IN"]

class Source(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        return self.source_to_code(old.sub(rb"moved_\\g<0>", self.get_data(self.path)), self.path)

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if not name.startswith(only):
            return None
        spec = super().find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Source(spec.loader.name, spec.loader.path)
        return spec

sys.meta_path.insert(0, Finder)
"""
ONE = """
rule one:
    output: "one.txt"
    benchmark: "one.tsv"
    retries: 1
    shell: "test -e tried || {{ touch tried; exit 1; }}; python -S -c 'sum(range(9000000))'; touch {output}"
"""


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_this_snakemake_has_what_the_hook_stands_in_for(patch: Patch) -> None:
    assert fault_of(patch) is None


def members(kind: Any) -> set[str]:
    """Return the names that a class has, or gives itself in its methods."""
    bases = [base for base in kind.__mro__ if base is not object]
    return set(dir(kind)) | {name for base in bases for name in re.findall(r"self\.(\w+)", inspect.getsource(base))}


def test_this_snakemake_has_what_the_hook_reads() -> None:
    importlib.import_module("snakemake.cli")  # its modules import each other in a circle
    from snakemake.benchmark import BenchmarkRecord
    from snakemake.jobs import Job
    from snakemake.rules import Rule
    from snakemake.workflow import Workflow as Snakefile

    record = {"running_time", "cpu_time", "cpu_usage", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out"}
    assert record | {"data_collected"} <= members(BenchmarkRecord)
    assert {"name", "norun", "shellcmd", "script", "notebook", "wrapper", "cwl"} <= members(Rule)
    assert {"attempt", "is_service"} <= members(Job)
    assert {"attempt", "is_main_process"} <= members(Snakefile)


def test_this_snakemake_tells_the_events_that_a_run_is_made_of() -> None:
    logging = pytest.importorskip("snakemake_interface_logger_plugins.common")
    assert {"job_info", "job_started", "job_finished", "job_error"} <= {str(event.value) for event in logging.LogEvent}


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (None, "there is no m.name"),
        (lambda job: None, "m.name has no parameter job_rule"),
        (7, "m.name is no function"),
    ],
)
def test_what_is_not_as_expected_is_said(found: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type("m", (), {} if found is None else {"name": found if isinstance(found, int) else staticmethod(found)})
    monkeypatch.setattr(hook, "holder_of", lambda patch: module)
    assert fault_of(Patch("m", "", "name", ("job_rule",), "")) == fault


@pytest.fixture
def moved(workflow: Callable[[str], Workflow], tmp_path: Path) -> Callable[[Patch], tuple[Workflow, str]]:
    """Run a workflow where a name has moved."""

    def run(patch: Patch) -> tuple[Workflow, str]:
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(MOVED)
        made = workflow(ONE)
        # `sp` and `envvars` have other meanings elsewhere
        only = patch.module if patch in (hook.SHELL_SP, hook.ENVVARS) else "snakemake"
        name = rf"\b{patch.name}" + (r"(?=\()" if patch is hook.ENVVARS else r"\b")
        said = made.done(PYTHONPATH=f"{site}:{REPOSITORY}", TEST_MOVED=name, TEST_MOVED_IN=only)
        where = ".".join(filter(None, (patch.module, patch.holder, patch.name)))
        expected = f"jumper: this Snakemake is not as expected (there is no {where}): {patch.without}"
        assert said.count("jumper: this Snakemake") == said.count(expected) == 1, said
        assert (made.folder / "one.txt").exists()
        assert len((made.folder / "one.tsv").read_text().splitlines()) == 2
        return made, said

    return run


Moved = Callable[[Patch], tuple[Workflow, str]]


def test_without_the_begin_and_end_of_jobs_nothing_is_measured(moved: Moved) -> None:
    made, _ = moved(hook.RUN_WRAPPER)
    assert made.runs() == []


@pytest.mark.slow
def test_without_attempts_all_are_the_first(moved: Moved) -> None:
    made, _ = moved(hook.CACHED_OR_RUN)
    tasks = made.run().tasks
    assert set(tasks.loc[tasks["cpu_s"].notna(), "attempt_id"]) == {"1.1.1"}


def test_without_its_processes_a_job_is_known_and_unmeasured(moved: Moved) -> None:
    made, said = moved(hook.SHELL_SP)
    assert "0 of 1 job measured, 0 of 2 attempts" in said
    assert row(made.run(), "one", "2.1.1")["state"] == "done"


def test_without_the_benchmark_its_file_is_snakemakes(moved: Moved) -> None:
    made, _ = moved(hook.BENCHMARKED)
    assert row(made.run(), "one", "2.1.1")["cpu_s"] > 0.05


@pytest.mark.slow
def test_without_the_environment_of_jobs_local_ones_are_measured(moved: Moved) -> None:
    made, _ = moved(hook.ENVVARS)
    assert row(made.run(), "one", "2.1.1")["cpu_s"] > 0.05
