"""The page `/jumper` of the scheduler's dashboard: what it shows is what the run's tasks table says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest

import jumper_dask
from jumper_dask import live
from jumper_dask.dashboard import PAGE, PLOT

CELLS = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"


class Page:
    """One page of a dashboard, open; what went wrong in it."""

    def __init__(self, browser: Any, url: str) -> None:
        self.page = page = browser.new_page(viewport={"width": 1300, "height": 800})
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.goto(url)

    def table(self, caption: str) -> list[dict[str, str]]:
        """The rows of a table by the names of its columns, once it is there; empty before."""
        rows: list[list[str]] = self.page.locator(f"table:has(caption:text-is('{caption}')) tr").evaluate_all(CELLS)
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]

    def shows(self, text: str) -> bool:
        return bool(self.page.get_by_text(text).count())

    def wait(self, reached: Callable[[], Any], seconds: float = 60) -> Any:
        """Poll until something is there; give it."""
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            assert time.monotonic() < deadline, (self.errors, self.page.locator("table, p").all_inner_texts())
            self.page.wait_for_timeout(100)
        return found


def seconds_of(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


def server(client: Any) -> str:
    """Where the dashboard listens."""
    url: str = client.dashboard_link
    return url.removesuffix("/status")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.browser
def test_a_browser_shows_what_groups_cost_while_they_run_and_the_run_says_the_same(
    browser: Any, kit: Any, tmp_path: Path
) -> None:
    with kit.cluster(workers=2, threads=1, dashboard_address="127.0.0.1:0") as client:
        page = Page(browser, server(client) + PAGE)
        futures = client.map(kit.burn, [0.05] * 30, key="burn", pure=False)
        futures += client.map(kit.children, [1] * 4, [0.1] * 4, key="a<b>spawn</b>", pure=False)
        futures.append(client.submit(kit.boom, key="boom"))
        first = page.wait(lambda: [row for row in page.table("tasks by group") if row["done"] not in ("", "0")])
        assert first
        distributed.wait(futures)
        run = jumper_dask.collect(client, tmp_path / "run")
        groups = run.tasks.groupby("group").agg({"cpu_s": "sum", "memory_peak_bytes": "max", "key": "count"})
        assert set(groups.index) == {"burn", "a<b>spawn</b>", "boom"}

        def settled() -> dict[str, dict[str, str]]:
            rows = {row["task group"]: row for row in page.table("tasks by group")}
            counted = sum(int(row["done"]) + int(row["failed"]) for row in rows.values())
            return rows if counted == len(run.tasks) else {}

        rows = page.wait(settled)
        for name, said in groups.iterrows():
            # the page shows three digits
            assert seconds_of(rows[name]["CPU"]) == pytest.approx(said.cpu_s, rel=0.006, abs=2e-3)
            assert int(rows[name]["done"]) + int(rows[name]["failed"]) == said.key
        assert rows["boom"]["failed"] == "1"
        (node,) = page.table("nodes")
        assert node["node"] == run.tasks.node[0]
        assert (node["workers"], node["measured"], node["threads"]) == ("2", "2", "2")
        assert page.shows(run.info["run"])
        lines = page.page.evaluate("() => Bokeh.documents[0].get_model_by_name('jumper-history').data")
        assert len(lines["time"]) >= 2 and max(lines["rss_gib"]) > 0.05

        # on all pages' navigation, and a pane for JupyterLab
        assert f'href="{PAGE.strip("/")}"' in get(server(client) + "/status")
        assert PLOT in json.loads(get(server(client) + "/individual-plots.json")).values()
        pane = Page(browser, server(client) + PLOT)
        pane.wait(lambda: len(pane.table("tasks by group")) == 3)

        client.unregister_worker_plugin("jumper")
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin("jumper-collector"))
        page.wait(lambda: page.shows("Nothing is measured now"))
        assert page.errors == pane.errors == []
        page.page.close()
        pane.page.close()


@pytest.mark.browser
def test_a_worker_that_is_not_measured_is_named_and_panel_is_no_hindrance(browser: Any, kit: Any) -> None:
    pytest.importorskip("panel.io.server")  # replaces the handlers of bokeh's server in this process
    with kit.cluster(workers=1, dashboard_address="127.0.0.1:0") as client:
        status = {"ok": False, "address": "tcp://127.0.0.1:1", "error": "No module named '<i>jumper</i>'"}
        client.run_on_scheduler(_expect, "tcp://127.0.0.1:1")
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.log_event("jumper-status", status))
        page = Page(browser, server(client) + PAGE)
        page.wait(lambda: page.shows("No module named '<i>jumper</i>'"))
        pane = Page(browser, server(client) + PLOT)
        pane.wait(lambda: pane.shows("tasks by group"))
        assert page.errors == pane.errors == []
        page.page.close()
        pane.page.close()


def _expect(address: str, dask_scheduler: Any) -> None:
    dask_scheduler.plugins["jumper-collector"].side.add_worker(address)


@pytest.mark.parametrize("off", ["no dashboard", "setting"])
def test_where_it_is_off_there_is_no_page_and_no_word_about_it(kit: Any, tmp_path: Path, off: str) -> None:
    address = None if off == "no dashboard" else "127.0.0.1:0"
    with (
        dask.config.set({"jumper.dashboard": off != "setting"}),
        kit.cluster(workers=1, dashboard_address=address) as client,
    ):
        client.submit(sum, [1, 2]).result()
        run = jumper_dask.collect(client, tmp_path / "run")
        assert len(run.tasks) == 1
        assert "collector-trouble" not in set(run.events.kind)
        if address is not None:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(server(client) + PAGE)


WITHOUT_BOKEH = """
import sys
sys.modules["bokeh"] = None
import distributed, jumper_dask
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
                                  silence_logs=50) as cluster, distributed.Client(cluster) as client:
        client.register_plugin(jumper_dask.JumperPlugin(interval=0.2))
        client.submit(sum, [1, 2]).result()
        run = jumper_dask.collect(client, sys.argv[1])
        print(len(run.tasks), [kind for kind in run.events.kind if kind == "collector-trouble"])
"""


def test_without_bokeh_all_else_works(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_BOKEH, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split("\n")[0] == "1 []", done.stderr


# the totals


def process(mono_s: float, cpu_s: float, **groups: live.Group) -> bytes:
    said = live.Process(int(mono_s * 1e9), int(cpu_s * 1e9), 1 << 20, int(mono_s * 1e7), 0, groups)
    return live._ENCODER.encode(said)


def group(done: int, cpu_ns: int, peak: int = 0) -> live.Group:
    return live.Group(done=done, cpu_ns=cpu_ns, peak_bytes=peak)


def test_messages_that_are_lost_repeated_or_damaged_change_no_total() -> None:
    seen = live.Live({"w1", "w2"})
    seen.take("w1", "a", process(1, 1, inc=group(1, 10, 5)))
    seen.take("w2", "b", process(1, 1, inc=group(2, 20), dec=group(1, 7)))
    assert seen.look()["inc"] == group(3, 30, 5)
    for _ in range(2):
        seen.take("w1", "a", process(9, 5, inc=group(10, 100, 4)))
    seen.take("w2", "b", b"of another version")
    seen.take("w2", "c", b"x" * (live.MESSAGE_BYTES + 1))
    assert seen.look() == {"inc": group(12, 120, 5), "dec": group(1, 7)}
    assert seen.look() == {"inc": group(12, 120, 5), "dec": group(1, 7)}


def test_cores_are_of_the_last_two_messages_of_workers_that_live() -> None:
    living = {"w1"}
    seen = live.Live(living)
    seen.take("w1", "a", process(1, 1))
    seen.take("w2", "b", process(1, 1))
    seen.look()
    (only,) = seen.processes()
    assert (only.worker, only.cores, only.rss_bytes) == ("w1", None, 1 << 20)
    seen.take("w1", "a", process(3, 2))
    seen.look()
    (only,) = seen.processes()
    assert only.cores == pytest.approx(0.5)
    assert only.own == pytest.approx(0.01)


def test_what_processes_that_are_gone_cost_stays_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PROCESSES", 10)
    living = {"w0"}
    seen = live.Live(living)
    seen.take("w0", "0", process(1, 1, inc=group(1, 1)))
    for number in range(1, 100):
        seen.take(f"w{number}", str(number), process(1, 1, inc=group(1, 1)))
    assert len(seen._senders) == 11
    seen.take("w0", "0", process(2, 2, inc=group(3, 3)))
    assert seen.look()["inc"] == group(102, 102)


def test_groups_beyond_the_bound_are_added_up_in_one() -> None:
    totals = live.Totals()
    for number in range(live.GROUPS + 50):
        totals._new(f"group-{number}").done += 1
    identity, data = totals.message(0, 0, 0)
    seen = live.Live({"w"})
    seen.take("w", identity, data)
    found = seen.look()
    assert len(found) == live.GROUPS + 1
    assert found[live.OTHERS].done == 50
    assert sum(each.done for each in found.values()) == live.GROUPS + 50
