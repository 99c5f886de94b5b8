"""The settings of `--logger jumper`: what means nothing is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from jumper_snakemake.boot import checked
from jumper_snakemake.settings import Settings, decode, encode
from snakemake_logger_plugin_jumper import LogHandlerSettings

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("interval", 0.0, "--logger-jumper-interval: the interval must be at least 0.001 s"),
        ("backend", "fast", "--logger-jumper-backend: expected default or native or python, found 'fast'"),
        ("levels", "system+disk", "--logger-jumper-levels: expected system, user, slurm, joined by +, found 'disk'"),
        ("benchmark", "none", "--logger-jumper-benchmark: expected replace or keep, found 'none'"),
        ("report", "pdf", "--logger-jumper-report: expected html or none, found 'pdf'"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_name(name: str, value: object, said: str) -> None:
    with pytest.raises(WorkflowError) as raised:
        checked(LogHandlerSettings(**{name: value}))
    assert str(raised.value).startswith(said)


def test_levels_may_be_none() -> None:
    assert checked(LogHandlerSettings(levels="none")).levels == ""


@pytest.mark.parametrize("run", ["/a b/c,d=e", "/\U0001f40d/%41", "/quo'te\"/$HOME;&|"])
def test_settings_travel_in_an_environment_as_they_are(run: str) -> None:
    settings = Settings(run, interval=0.25, levels="system+user", benchmark="keep", jobs_only=False)
    text = encode(settings)
    assert decode(text) == settings
    told = subprocess.run(["sh", "-c", f'X={text}; printf %s "$X"'], capture_output=True, text=True, check=True).stdout
    assert told == text  # no shell looks at it, quoted or not


@pytest.mark.parametrize("text", ["", "1", "run=relative,interval=1", "interval=0.5", "run=/a,interval=soon"])
def test_a_variable_of_somebody_else_is_one_line_and_no_more(text: str) -> None:
    code = "import snakemake_logger_plugin_jumper, os, sys; print('jumper_snakemake.hook' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY,
        env={"PATH": "/usr/bin", "JUMPER_SNAKEMAKE": text},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert len(done.stderr.splitlines()) == (1 if text else 0), done.stderr


def jumper_snakemake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumper_snakemake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


def test_a_place_that_cannot_be_written_names_the_option_that_there_is() -> None:
    done = jumper_snakemake("run", "--dir", "/dev/null", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    told = "Not a directory; choose another place with --dir; the command runs all the same\n"
    assert done.stderr.startswith("jumper: not measured: cannot make the run /dev/null/runs/")
    assert done.stderr.endswith(told)


def test_a_misspelt_option_is_no_command() -> None:
    done = jumper_snakemake("run", "--intervall", "1", "--", "true")
    assert done.returncode == 2
    assert "No such option" in done.stderr and "--interval" in done.stderr
    shown = jumper_snakemake("run", "-h")
    assert shown.returncode == 0 and "COMMAND" in shown.stdout
    assert jumper_snakemake("run", "sh", "-c", "exit 3").returncode == 3  # what follows a command is its own


@pytest.mark.parametrize("replace", [True, False])
def test_benchmark_files_can_be_left_to_snakemake(replace: bool) -> None:
    code = f"""
from jumper_snakemake import hook
from jumper_snakemake.site import Site
import snakemake.benchmark
hook.install(Site(lambda: None), replace_benchmark={replace})
print(snakemake.benchmark.benchmarked.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.split()[-1] == ("jumper_snakemake.benchmark" if replace else "snakemake.benchmark")
