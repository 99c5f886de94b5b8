"""What `jumper doctor` says of Snakemake: which way measures it, whether it finds us, what the hook misses."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from jumper import doctor
from jumper.doctor import packages
from tests.snakemake.conftest import REPOSITORY


def test_the_snakemake_that_is_installed_is_measured_by_the_logger() -> None:
    found = {check.name: check for check in doctor.examine() if check.area == "snakemake"}
    assert {name: check.status for name, check in found.items()} == {"way": "ok", "plugins": "ok", "hook": "ok"}
    assert "run_wrapper" in found["hook"].found


@pytest.mark.parametrize(
    ("version", "status", "way"),
    [
        ("9.27.1", "ok", "snakemake --logger jumper"),
        ("9.0.0", "ok", "snakemake --logger jumper"),
        ("10.1.dev3+gabc", "ok", "snakemake --logger jumper"),
        ("8.30.0", "ok", "jumper-snakemake run -- snakemake"),
        ("8.29.3", "missing", "older"),
        ("7.32.4", "missing", "older"),
    ],
)
def test_the_way_depends_on_the_version(version: str, status: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"snakemake": version}.__getitem__)
    check = packages.snakemake_way()
    assert (check.status, way in check.found) == (status, True)


def test_without_snakemake_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    checks = [packages.snakemake_way(), packages.snakemake_plugins(), packages.snakemake_hook()]
    assert [check.status for check in checks] == ["none"] * 3


def test_plugins_that_only_an_import_hook_serves_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [entry for entry in sys.path if not (Path(entry or ".") / "snakemake_logger_plugin_jumper").is_dir()]
    monkeypatch.setattr(importlib.metadata, "version", {"snakemake": "9.27.1"}.__getitem__)
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.chdir(REPOSITORY.parent)
    check = packages.snakemake_plugins()
    assert check.status == "missing"
    assert "snakemake_logger_plugin_jumper, snakemake_report_plugin_jumper" in check.found
    assert "editable_mode=compat" in check.next_step


def test_what_a_release_has_moved_is_named_with_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.snakemake_hook().status == "ok"
    monkeypatch.delattr("snakemake.executors.local.run_wrapper")
    check = packages.snakemake_hook()
    assert check.status == "limited"
    assert check.found == "there is no snakemake.executors.local.run_wrapper: no job is measured"
