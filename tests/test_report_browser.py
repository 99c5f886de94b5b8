"""The report in a real browser: no error, no request, ink on every canvas, and everything that can be clicked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jumper.report.page import write_report
from tests import made
from tests.test_report import hostile

pytestmark = pytest.mark.browser

READY = "() => window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle)"
#: Number of colours on each canvas of the page, through the shadow roots that Bokeh draws in.
INK = """() => { const out = [];
  const walk = root => { for (const e of root.querySelectorAll('*')) {
    if (e.shadowRoot) walk(e.shadowRoot);
    if (e.tagName === 'CANVAS' && e.width > 200) {
      const d = e.getContext('2d').getImageData(0, 0, e.width, e.height).data, seen = new Set();
      for (let i = 0; i < d.length; i += 388) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
      out.push(seen.size) } } };
  walk(document); return out }"""
#: Texts of all boxes that hover, without their style.
TOOLTIPS = """() => { let out = '';
  const walk = root => { for (const e of root.querySelectorAll('*')) if (e.shadowRoot) {
    if (String(e.className).includes('bk-Tooltip')) {
      for (const part of e.shadowRoot.children) if (part.tagName !== 'STYLE') out += part.textContent + ' ';
    }
    walk(e.shadowRoot) } };
  walk(document); return out }"""
RANGE = "() => { const r = Bokeh.documents[0].get_model_by_name('jumper-time'); return [r.start, r.end] }"


class Page:
    """One report, open; what it asked for and what went wrong."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: self.requests.append(r.url) if not r.url.startswith(("data:", "blob:")) else None)
        page.goto(file.as_uri())
        page.wait_for_function(READY, timeout=120_000)
        page.wait_for_timeout(300)

    def clean(self) -> bool:
        return not self.errors and len(self.requests) == 1


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    file = write_report(made.make(60), tmp_path_factory.mktemp("page") / "r.html")
    return Page(browser.new_page(viewport={"width": 1300, "height": 900}), file)


def test_the_page_draws_all_rows_and_asks_for_nothing(opened: Page) -> None:
    ink = opened.page.evaluate(INK)
    assert opened.clean(), (opened.errors, opened.requests)
    assert sum(colours > 3 for colours in ink) >= 9, ink


def test_a_row_fills_the_detail_and_marks_its_bar(opened: Page) -> None:
    page = opened.page
    row = page.locator("#tasks tbody tr").nth(2)
    name = row.locator("td").first.inner_text()
    row.click()
    assert page.locator("#detail b").inner_text() == name and "chosen" in (row.get_attribute("class") or "")
    assert page.locator("#detail svg").count() == 2
    [index] = page.evaluate("() => Bokeh.documents[0].get_model_by_name('jumper-tasks').selected.indices")
    assert page.evaluate("i => Bokeh.documents[0].get_model_by_name('jumper-tasks').data.task[i]", index) == name
    assert opened.clean()


def test_a_bar_shows_its_row(opened: Page) -> None:
    page = opened.page
    page.evaluate("() => { Bokeh.documents[0].get_model_by_name('jumper-tasks').selected.indices = [7] }")
    assert page.locator("#detail b").inner_text() == page.locator("#tasks tr.chosen td").first.inner_text()
    assert page.evaluate("() => Bokeh.documents[0].get_model_by_name('jumper-tasks').data.task[7]") == \
        page.locator("#detail b").inner_text()  # fmt: skip


def test_filter_and_sort(opened: Page) -> None:
    page = opened.page
    page.fill("#filter", "compress n1")
    texts = page.locator("#tasks tbody tr").all_inner_texts()
    assert texts and all("compress" in text and "n1" in text for text in texts)
    assert page.locator("#count").inner_text() == f"{len(texts)} tasks"
    page.fill("#filter", "")
    page.select_option("#group", "write")
    assert page.locator("#tasks tbody tr").count() == 12
    page.locator("#tasks th", has_text="CPU time").click()
    column = page.locator("#tasks th").all_inner_texts().index("CPU time")
    values = [float(t.split()[0]) for t in page.locator(f"#tasks tbody td:nth-child({column + 1})").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    page.select_option("#group", "")


@pytest.mark.parametrize("width", [1280, 1920])
def test_long_names_are_shortened_at_their_end_and_no_column_is_cut(browser: Any, tmp_path: Path, width: int) -> None:
    run = made.make(6)
    run.tasks["key"] = [f"compress-{'0123456789abcdef' * 4}-{number}" for number in range(6)]
    run.tasks["flags"] = [["memory-estimated", "shared"]] * 6
    page = Page(browser.new_page(viewport={"width": width, "height": 900}), write_report(run, tmp_path / "r.html")).page
    beyond, shown, room, needed = page.evaluate("""() => {
        const table = document.getElementById('tasks'), cell = table.tBodies[0].rows[0].cells[0];
        const button = cell.querySelector('button'), end = e => e.getBoundingClientRect().right;
        return [end(button) - end(cell), button.clientWidth, table.parentElement.clientWidth, table.scrollWidth] }""")
    assert beyond <= 0 and shown > 100  # a button that reaches out of its cell is replaced by "…", whole
    assert needed <= room


#: Of each row of the timeline: its title, how wide its widest line is, how wide it may be, how high its picture is.
TITLES = """() => { const pen = document.createElement('canvas').getContext('2d');
  const room = document.getElementById('pictures').clientWidth;
  return Bokeh.documents[0].roots()[0].children.map(({title, min_border_left, inner_height}) => {
    pen.font = `${title.text_font_style} ${title.text_font_size} ${title.text_font}`;
    const widest = Math.max(...title.text.split('\\n').map(line => pen.measureText(line).width));
    return [title.text, widest, room - min_border_left, inner_height] }) }"""


def test_titles_of_rows_can_be_read_on_a_narrow_page(opened: Page, browser: Any, tmp_path: Path) -> None:
    run = made.make(60)
    run.tasks["key"] = [f"compress[sample={number:04d}]" for number in range(60)]
    page = Page(browser.new_page(viewport={"width": 420, "height": 900}), write_report(run, tmp_path / "r.html")).page
    narrow, wide = page.evaluate(TITLES), opened.page.evaluate(TITLES)
    assert not any("\n" in title for title, *_ in wide)
    assert [title.replace("\n", " ") for title, *_ in narrow] == [title for title, *_ in wide]
    assert sum("\n" in title for title, *_ in narrow) >= 5  # they are longer than the page is wide
    assert all(widest <= room for _, widest, room, _ in narrow), narrow
    for (_, _, _, height), (_, _, _, usual) in zip(narrow, wide, strict=True):
        assert height == pytest.approx(usual, abs=2)
    cut = page.evaluate("""() => [...document.querySelectorAll('#tasks td button, #groups th[scope=row]')]
        .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)""")
    assert cut == []


def in_view(page: Any) -> Any:
    """Scroll to the timeline and return its box."""
    page.evaluate("() => document.getElementById('pictures').scrollIntoView({behavior: 'instant'})")
    return page.locator("#pictures").bounding_box()


def test_a_drag_zooms_all_rows_and_the_button_goes_back(opened: Page) -> None:
    page = opened.page
    before = page.evaluate(RANGE)
    box = in_view(page)
    x, y = box["x"] + box["width"] * 0.3, box["y"] + 330
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 150, y, steps=6)
    page.mouse.move(x + 300, y, steps=6)
    page.mouse.up()
    page.wait_for_function(f"() => Bokeh.documents[0].get_model_by_name('jumper-time').start > {before[0]}")
    after = page.evaluate(RANGE)
    assert before[0] < after[0] < after[1] < before[1]
    page.click("#reset")
    assert page.evaluate(RANGE) == before and page.locator("#reset").is_hidden() and opened.clean()


def _focus(page: Any) -> str:
    return str(page.evaluate("() => document.activeElement.textContent || document.activeElement.id"))


def test_tasks_are_searched_sorted_and_opened_by_keyboard_alone(opened: Page) -> None:
    page = opened.page
    page.focus("#filter")
    page.keyboard.type("compress")
    assert "12 tasks" in page.locator("#count").inner_text()
    head = page.locator("#tasks th", has_text="memory peak")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator("#tasks th[aria-sort=none]").count() == page.locator("#tasks th").count() - 1
    stops = page.locator("#tasks tbody [tabindex='0']")
    assert stops.count() == 1  # of many rows, one is in the order of the Tab key
    stops.focus()
    page.keyboard.press("Home")
    first = _focus(page)
    page.keyboard.press("ArrowDown")
    second = _focus(page)
    assert first != second == page.locator("#detail b").inner_text()
    assert page.locator("#tasks tr[aria-current=true] button").inner_text() == second
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#detail b").inner_text() == _focus(page) == page.locator("#tasks tbody tr").last.locator(
        "button").inner_text()  # fmt: skip
    page.fill("#filter", "")
    assert opened.clean(), opened.errors


def test_the_timeline_is_steered_by_keys_and_buttons_and_says_what_it_shows(opened: Page) -> None:
    page = opened.page
    start, end = page.evaluate(RANGE)
    page.focus("#pictures")
    page.keyboard.press("+")
    near = page.evaluate(RANGE)
    assert near[1] - near[0] == pytest.approx((end - start) / 2)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(RANGE)[0] > near[0]
    assert re.fullmatch(r"09:4\d:\d\d to 09:4\d:\d\d", page.locator("#shown").inner_text())
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(RANGE)[1] == pytest.approx(end)  # never past the run
    page.keyboard.press("0")
    assert page.evaluate(RANGE) == [start, end]
    page.locator("[data-steer=in]").click()
    assert page.evaluate(RANGE) == near
    page.click("#reset")
    assert page.evaluate(RANGE) == [start, end] and opened.clean()


def test_a_row_that_is_pointed_at_says_its_numbers(opened: Page) -> None:
    page = opened.page
    box = in_view(page)
    found: dict[str, int] = {}
    for word, heights in (("memory peak", range(100, 200, 15)), ("asked by tasks", range(230, 330, 15)),
                          ("CPU busy", range(-40, -140, -10))):  # fmt: skip
        if heights[0] < 0:  # the last row
            page.evaluate(
                "() => document.getElementById('pictures').scrollIntoView({behavior: 'instant', block: 'end'})"
            )
            box = page.locator("#pictures").bounding_box()
        for height in heights:
            top = box["y"] + (box["height"] if height < 0 else 0)
            page.mouse.move(box["x"] + box["width"] / 2, top + height)
            page.wait_for_timeout(150)
            if word in page.evaluate(TOOLTIPS):
                found[word] = height
                break
    assert set(found) == {"memory peak", "asked by tasks", "CPU busy"}, found
    assert opened.clean()


def test_a_screen_reader_finds_its_way(opened: Page) -> None:
    page = opened.page
    tree = page.locator("body").aria_snapshot()
    for role in ("banner:", "navigation", "main:", "complementary", "toolbar", 'region "What stands out"',
                 'region "Tasks"', "rowheader"):  # fmt: skip
        assert role in tree, role
    nameless = page.evaluate("""() => {
        const named = e => e.textContent.trim() || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby');
        return [...document.querySelectorAll('button, input, select, a, svg[role=img], [role=region]')]
          .filter(e => !named(e)).map(e => e.outerHTML.slice(0, 80)) }""")
    assert nameless == []
    headings = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(e => e.tagName).join(' ')")
    assert headings.startswith("H1 H2") and headings.count("H1") == 1
    assert page.locator("#in-words li").count() >= 5 and page.locator("svg.chart[aria-label]").count() >= 3


def test_a_low_row_keeps_the_ends_of_its_scale_below_labels_of_three_lines(browser: Any, tmp_path: Path) -> None:
    run = made.make(3, nodes=1)
    run.tasks["stop_ns"] = run.tasks["start_ns"] + made.SECOND // 2
    run.streams = {name: frame[frame["time_ns"] <= made.START_NS + made.SECOND] for name, frame in run.streams.items()}
    page = Page(browser.new_page(), write_report(run, tmp_path / "r.html")).page
    inner = page.evaluate("() => Bokeh.documents[0].roots()[0].children.map(plot => plot.inner_height)")
    assert inner[-1] >= 30, inner  # 0 % and 100 %, 10 px high each


def test_the_tables_say_what_read_and_written_mean(opened: Page) -> None:
    page = opened.page
    heads = page.evaluate("() => [...document.querySelectorAll('#tasks th')].map(th => [th.textContent, th.title])")
    assert {title for name, title in heads if name in ("read", "written")} == {"through system calls"}
    assert "read and written in the tables: through system calls" in page.locator("#groups").inner_text()


def test_print_shows_all_and_no_controls(opened: Page) -> None:
    page = opened.page
    page.emulate_media(media="print")
    hidden = [page.locator(name).first.is_hidden() for name in (".tools", "nav", ".steer", "#more")]
    assert all(hidden) and page.locator("#findings").is_visible()
    page.emulate_media(media="screen")


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    opened = Page(page, write_report(hostile(), tmp_path / "r.html"))
    page.locator("#tasks tbody tr").nth(1).click()
    box = page.locator("#timeline .card").bounding_box()
    for step in range(60):  # hover texts of every row hold the names too
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * step / 60)
    page.wait_for_timeout(200)
    assert page.evaluate("() => window.pwned") is None and page.locator("img").count() == 0
    assert opened.clean(), (opened.errors, opened.requests)


@pytest.mark.parametrize("run", [made.make_command(), made.make(0), made.make(30, state="failed")],
                         ids=["command", "no tasks", "all failed"])  # fmt: skip
def test_runs_of_all_kinds_open_without_an_error(browser: Any, tmp_path: Path, run: made.Made) -> None:
    opened = Page(browser.new_page(), write_report(run, tmp_path / "r.html", "dark"))
    assert opened.clean(), (opened.errors, opened.requests)
