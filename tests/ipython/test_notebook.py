"""examples/ipython/cells.ipynb from top to bottom in a real kernel, as a notebook's front end runs it."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

REPOSITORY = Path(__file__).resolve().parents[2]


class FrontEnd(nbclient.NotebookClient):  # type: ignore[misc, name-defined]
    """One that does what the scripts of a picture do in a browser: open its channel, and take what comes."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.sent: list[dict[str, Any]] = []
        self.on_cell_executed = self._open_channels

    async def async_start_new_kernel_client(self) -> Any:
        client = await super().async_start_new_kernel_client()
        take = client.iopub_channel.get_msg

        async def get_msg(*arguments: Any, **keywords: Any) -> Any:
            message = await take(*arguments, **keywords)
            if message["msg_type"] == "comm_msg":
                self.sent.append(message)
            return message

        client.iopub_channel.get_msg = get_msg
        return client

    def _open_channels(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        for output in cell.get("outputs", []):
            for target in re.findall(r'"client_comm_id":"(\w+)"', output.get("data", {}).get("text/html", "")):
                content = {"comm_id": uuid.uuid4().hex, "target_name": target, "data": {}}
                self.kc.shell_channel.send(self.kc.session.msg("comm_open", content))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> FrontEnd:
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(REPOSITORY / "examples" / "ipython" / "cells.ipynb", as_version=4)
    client = FrontEnd(notebook, timeout=200, resources={"metadata": {"path": str(folder)}})
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "IPYTHONDIR": str(folder)}
    client.execute(env=environment)
    client.folder = folder
    return client


def shown(client: FrontEnd, source: str, which: int = 0) -> dict[str, str]:
    """What a cell whose code begins so showed, by type."""
    cell = [cell for cell in client.nb.cells if cell.cell_type == "code" and cell.source.startswith(source)][which]
    found: dict[str, str] = {}
    for output in cell.outputs:
        found |= {"text": output.text} if output.output_type == "stream" else dict(output.get("data", {}))
    return found


def test_the_report_has_each_cell_with_its_number_and_its_cost(ran: FrontEnd) -> None:
    html = shown(ran, "%perfmonitor_perfreport")["text/html"]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    cells = {row[0].split("[")[1].rstrip("]"): row for row in rows if row and "In [" in row[0]}
    assert list(cells)[:5] == ["2", "3", "4", "5", "6"], "from the start of the monitor on"
    assert cells["3"][7] == "import time"
    cpu = {number: float(row[2].split()[0]) * (1e-3 if "ms" in row[2] else 1) for number, row in cells.items()}
    assert cpu["3"] == pytest.approx(0.5, abs=0.06)
    assert 0.28 < cpu["5"] < 0.6, "of the program that the cell has run"
    peak = {number: float(row[4].split()[0]) for number, row in cells.items()}
    assert peak["4"] - peak["3"] == pytest.approx(200, abs=20)


def test_pictures_are_shown_and_the_live_one_is_fed(ran: FrontEnd) -> None:
    for which in (0, 1):
        assert {"text/html", "application/vnd.holoviews_exec.v0+json"} <= set(shown(ran, "%perfmonitor_plot", which))
    updates = [message for message in ran.sent if "seconds" in str(message["content"])]
    assert updates, "no new samples were sent to the picture"


def test_tables_and_sessions_come_back(ran: FrontEnd) -> None:
    assert "samples in the variable perfdata_df" in shown(ran, "%perfmonitor_export_perfdata")["text"]
    assert (ran.folder / "session.zip").stat().st_size > 1000
    text = shown(ran, "%perfmonitor_perfreport --text")["text"]
    assert text.count("In [") == 3 and "import subprocess" in text


def test_one_cell_alone(ran: FrontEnd) -> None:
    found = shown(ran, "%%perfmonitor")
    assert "1 cell," in found["text/html"]
    cell = ran.nb.cells[-1]
    assert "sum(range(2_000_000))" in cell.outputs[0]["data"]["text/html"]
    assert cell.outputs[-1]["data"]["text/plain"] == "1999999000000"


def test_the_example_is_kept_without_what_it_showed() -> None:
    notebook = nbformat.read(REPOSITORY / "examples" / "ipython" / "cells.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)
