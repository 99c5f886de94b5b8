"""Make the pictures of the report that the documents show, from a real run, in both themes.

    python docs/pictures/shoot.py RUN

RUN is a run directory, as ``jumper demo snakemake -o RUN`` leaves it. Needs Chromium and playwright.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jumper

HERE = Path(__file__).resolve().parent
WIDTH = 1280
#: until all rows are drawn
DRAWN = "() => window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle)"


def shoot(run: str | Path, folder: str | Path = HERE) -> list[Path]:
    """Write ``report-<theme>.png``, down to the end of the timeline, and ``report-<theme>-rest.png``, to the tasks."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("no Chromium on this machine; install it to make pictures")
    opened, made = jumper.open_run(run), []
    with sync_playwright() as play, tempfile.TemporaryDirectory() as apart:
        browser = play.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": 900})
            page.goto(opened.report(Path(apart) / f"{theme}.html", theme=theme).as_uri())
            page.wait_for_function(DRAWN, timeout=120_000)
            page.wait_for_timeout(500)
            made += _parts(page, Path(folder), theme)
        browser.close()
    return made


def _parts(page: Any, folder: Path, theme: str) -> list[Path]:
    place = "([name, edge]) => document.getElementById(name).getBoundingClientRect()[edge] + scrollY"
    cut, end = page.evaluate(place, ["timeline", "bottom"]) + 16, page.evaluate(place, ["nodes", "top"]) - 10
    paths = []
    for name, top, bottom in ((f"report-{theme}.png", 0, cut), (f"report-{theme}-rest.png", cut, end)):
        paths.append(folder / name)
        clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
        page.screenshot(path=paths[-1], full_page=True, clip=clip)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    for path in shoot(sys.argv[1]):
        sys.stdout.write(f"{path}\n")
