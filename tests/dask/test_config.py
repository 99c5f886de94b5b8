"""Dask's settings under `jumper:`: the schema, the defaults and the document agree, and each is obeyed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import jsonschema
import pytest
import yaml

import jumper_dask
from jumper.schema.errors import SettingError
from jumper_dask import settings

PACKAGE = Path(jumper_dask.__file__).parent
SCHEMA = yaml.safe_load((PACKAGE / "jumper-schema.yaml").read_text())
KEYS = SCHEMA["properties"]["jumper"]["properties"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "dask.md"


def test_the_defaults_are_as_the_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(settings.DEFAULTS, SCHEMA)
    assert set(settings.DEFAULTS["jumper"]) == set(KEYS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"jumper": {**settings.DEFAULTS["jumper"], "intervall": 1}}, SCHEMA)


def test_the_page_lists_each_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `jumper\.([\w-]+)` \| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE))
    assert {key: yaml.safe_load(value) for key, value in rows.items()} == settings.DEFAULTS["jumper"]


def test_the_page_s_environment_of_a_pod_is_what_dask_reads() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    given = {entry["name"]: entry["value"] for entry in yaml.safe_load(text)["env"]}
    found = dask.config.collect_env(given)
    assert found["distributed"]["worker"]["preload"] == ["jumper_dask.preload"]
    with dask.config.set(found):
        assert settings.interval() == 0.5


def test_the_plugin_s_defaults_are_the_settings_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("collectors: {}\n")
    chosen = {"interval": "250ms", "reset-peak": False, "collectors": str(tmp_path / "mine.yaml")}
    with dask.config.set({f"jumper.{key}": value for key, value in chosen.items()}):
        config = jumper_dask.JumperPlugin().config
        assert (config["interval"], config["reset_peak"]) == (0.25, False)
        assert config["collectors"] is not None
        assert jumper_dask.JumperPlugin(2.0, reset_peak=True).config["interval"] == 2.0
    assert jumper_dask.JumperPlugin().config == {"interval": 1.0, "collectors": None, "reset_peak": True}


def test_the_environment_sets_them() -> None:
    code = "import jumper_dask, json; print(json.dumps(jumper_dask.JumperPlugin().config))"
    environment = {**os.environ, "DASK_JUMPER__INTERVAL": "100ms", "DASK_JUMPER__RESET_PEAK": "False"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"interval": 0.1, "collectors": None, "reset_peak": False}


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("interval", "soon", settings.interval),
        ("interval", "10us", settings.interval),
        ("interval", True, settings.interval),
        ("interval", None, settings.interval),
        ("collectors", 3, settings.collectors),
        ("reset-peak", "no", settings.reset_peak),
        ("dashboard", 1, settings.dashboard),
        ("directory", 5, settings.directory),
        ("spool-size", "much", settings.spool_bytes),
        ("run-size", -1, settings.run_bytes),
    ],
)
def test_a_value_that_is_none_is_told_with_its_key_and_its_places(key: str, value: Any, read: Any) -> None:
    variable = "DASK_JUMPER__" + key.upper().replace("-", "_")
    with dask.config.set({f"jumper.{key}": value}), pytest.raises(SettingError, match=f"jumper.{key} .*{variable}"):
        read()


def test_runs_lie_where_the_settings_say(tmp_path: Path) -> None:
    with dask.config.set({"jumper.directory": None, "temporary-directory": None}):
        assert settings.directory() is None
    with dask.config.set({"jumper.directory": None, "temporary-directory": str(tmp_path)}):
        assert settings.directory() == tmp_path
    with dask.config.set({"jumper.directory": "~/runs", "temporary-directory": str(tmp_path)}):
        assert settings.directory() == Path.home() / "runs"


def test_a_scheduler_keeps_the_run_there_and_takes_no_more_than_it_may(kit: Any, tmp_path: Path) -> None:
    with dask.config.set({"jumper.directory": str(tmp_path), "jumper.run-size": 1}), kit.cluster() as client:
        client.submit(kit.burn, 0.1, key="one").result()
        (folder,) = (tmp_path / "jumper").iterdir()
        run = jumper_dask.collect(client, tmp_path / "here")
        assert run.info["run"] == folder.name
    # what the scheduler itself saw is there, what the worker measured is not, and the run says why
    assert kit.by_key(run).state["one"] == "done"
    assert kit.by_key(run).cpu_s.isna().all()
    assert "jumper.run-size" in " ".join(run.events.text)
