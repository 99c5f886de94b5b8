"""The code of docs/dask.md runs as it stands, and a collector of one's own travels with the plugin."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import jumper_dask
from jumper.schema.errors import CollectorConfigError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dask.md"
WHOLE, REGION, _ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_s_first_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(WHOLE, space)
    assert len(space["run"].tasks) == 8
    assert (space["run"].path / "report.html").stat().st_size > 10_000
    assert [path.name for path in (tmp_path / "jumper-runs").iterdir()] == [space["run"].info["run"]]


def test_the_page_s_region(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kit.cluster(plugin=False) as client:
        space = {"client": client, "jumper_dask": jumper_dask}
        exec(REGION, space)
    assert len(space["m"].run.tasks) == 1


def test_a_collector_s_yaml_travels_as_text(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.py").write_text(
        textwrap.dedent("""
        class Answer:
            def setup(self):
                pass
            def snapshot(self, ctx):
                pass
            def collect(self, level, ctx):
                return {"answer": 42.0} if level == "process" else {}
        """)
    )
    yaml = tmp_path / "mine.yaml"
    yaml.write_text("collectors:\n  answer:\n    _target_: answer.Answer\n    inject: []\n    handler:\n"
                    "      _target_: jumper.monitor.metrics.handlers.CountersHandler\n")  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    with kit.cluster(plugin=False) as client:
        plugin = jumper_dask.JumperPlugin(interval=0.2, collectors=yaml)
        yaml.unlink()
        client.register_plugin(plugin)
        client.submit(kit.burn, 0.5).result()
        run = jumper_dask.collect(client, tmp_path / "run")
    assert set(run.samples("process")["answer"].dropna()) == {42.0}


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "soon"])
def test_an_interval_that_is_none_is_refused_at_once(interval: Any) -> None:
    with pytest.raises(ValueError, match="interval"):
        jumper_dask.JumperPlugin(interval=interval)


def test_a_yaml_that_is_wrong_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("collectors: {x: {inject: [nothing]}}")
    with pytest.raises(CollectorConfigError, match=r"bad\.yaml"):
        jumper_dask.JumperPlugin(collectors=tmp_path / "bad.yaml")
