"""The example notebooks run from top to bottom in a real kernel, and show what their text says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = REPOSITORY / "examples" / "notebooks"


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run a notebook in an empty folder; return its code cells with what they showed."""
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    for variable in [name for name in os.environ if name.startswith("JUMPER_")]:
        monkeypatch.delenv(variable)
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells: list[Any], source: str) -> dict[str, str]:
    """What the cell that holds this text showed, by type."""
    (cell,) = (cell for cell in cells if source in cell.source)
    found: dict[str, str] = {}
    for output in cell.outputs:
        found |= {"text": output.text} if output.output_type == "stream" else dict(output.get("data", {}))
    return found


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_what_they_showed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


def test_the_dask_notebook_shows_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    cells = executed("dask.ipynb", tmp_path, monkeypatch)
    (asked,) = [cell for cell in cells if cell.source == "run"]
    assert [output.output_type for output in asked.outputs] == ["execute_result"]  # the card and its text are one
    card = shown([asked], "run")
    assert "compress" in card["text/html"] and card["text/plain"].startswith("<jumper run")
    for picture in ("timeline()", "distribution()", "hv.HLine"):
        assert {"text/html", "application/vnd.holoviews_exec.v0+json"} <= set(shown(cells, picture)), picture
    scripts = [len(output.data.get("application/javascript", "")) for cell in cells for output in cell.outputs
               if output.output_type == "display_data"]  # fmt: skip
    assert max(scripts) > 1_000_000  # BokehJS itself: a browser without a network draws too
    assert (tmp_path / "run.png").stat().st_size > 10_000
    assert list(tmp_path.glob("jumper-runs/*/report.html"))


def test_the_snakemake_notebook_applies_its_own_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snakemake_interface_logger_plugins")
    import jumper

    cells = executed("snakemake.ipynb", tmp_path, monkeypatch)
    before, after = (jumper.open_run(path).tasks for path in sorted((tmp_path / ".snakemake/jumper/runs").iterdir()))
    assert set(before["state"]) == set(after["state"]) == {"done"} and len(before) == len(after) == 11
    for tasks, asked in ((before, 2_000_000_000), (after, None)):
        of_sort = tasks[tasks["group"] == "sort"]["memory_asked_bytes"]
        assert of_sort.nunique() == 1 and (of_sort.iloc[0] == asked if asked else of_sort.iloc[0] < 1_000_000_000)
    assert "mem_mb" in shown(cells, "print(profile)")["text"]
    assert "sort memory_asked_bytes 0." in shown(cells, "before.compare(after")["text"]
    assert "text/html" in shown(cells, "before.plot.timeline()")
