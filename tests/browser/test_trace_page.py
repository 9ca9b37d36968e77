"""The page of a trace: rows, spans, who woke whom, search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from ebpfprof.export.timelines import page
from ebpfprof.profile.model import Frame
from ebpfprof.timeline.model import TimelineGoroutine
from tests.unit.timeline.test_critical import A, B, C, timeline
from tests.unit.timeline.test_tasks import order
from tests.unit.timeline.test_threads import timeline as threads

HOSTILE = "main.<script>alert(1)</script>"


class TracePage:
    """What a user sees and does."""

    def __init__(self, browser: Chrome, path: Path) -> None:
        self.browser = browser
        browser.get(path.as_uri())

    def rows(self) -> list[str]:
        found: list[str] = self.run("return tracePage.canvas.rows.map((row) => row.title)")
        return found

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - of JavaScript
        return self.browser.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return self.browser.find_element(By.CSS_SELECTOR, selector).text

    def point(self, goid: int, time_ns: int) -> tuple[int, int]:
        """Where a goroutine's time is drawn, from the middle of the canvas."""
        x, y, width, height = self.run(
            "const canvas = tracePage.canvas, goid = arguments[0];"
            "const index = canvas.rows.findIndex((row) => row.goroutine?.goid === goid);"
            "const box = canvas.canvas.getBoundingClientRect();"
            "return [canvas.xOf(arguments[1]), canvas.middleOf(index), box.width, box.height]",
            *(goid, time_ns),
        )
        return round(x - width / 2), round(y - height / 2)

    def click(self, goid: int, time_ns: int) -> None:
        canvas = self.browser.find_element(By.CSS_SELECTOR, ".trace-canvas")
        x, y = self.point(goid, time_ns)
        ActionChains(self.browser).move_to_element_with_offset(canvas, x, y).click().perform()

    def press(self, key: str) -> None:
        self.browser.find_element(By.CSS_SELECTOR, ".trace-scroller").send_keys(key)


@pytest.fixture
def shown(browser: Chrome, tmp_path: Path) -> TracePage:
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(replace(timeline(), comments=("slices: 3",))))
    return TracePage(browser, path)


def test_it_shows_goroutines_and_how_it_was_recorded(shown: TracePage) -> None:
    assert shown.text("h1") == "Trace of t (1)"
    assert "1.20 us" in shown.text("#when")
    assert "slices: 3" in shown.text("#notes")
    assert set(shown.rows()) == {"G1 main.asks", "G2 main.holds", "G3 main.reads"}


def test_a_click_shows_a_wait_its_stack_and_who_ended_it(shown: TracePage) -> None:
    shown.click(A, 500)
    assert shown.text("#span h2") == "G1 main.asks: sync.Mutex.Lock for 900 ns"
    assert "main.lock" in shown.text("#span pre")
    button = shown.browser.find_element(By.XPATH, "//button[text()='Woken by G2 main.holds']")
    button.click()
    assert shown.text("#span h2").startswith("G2 main.holds: running")


def test_it_shows_what_a_goroutine_waits_for(shown: TracePage) -> None:
    shown.click(A, 500)
    assert shown.text("#thing") == "waits for main.cache.mu (sync.Mutex at 0xc000012340)"
    shown.click(C, 500)
    assert shown.text("#thing") == "waits to read from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)"
    assert shown.text("#hover").endswith(
        "IO wait for 580 ns in main.read, waits to read from 10.0.0.1:80, here 10.0.0.2:4711 "
        "(tcp, fd 7)"
    )
    assert shown.run("return tracePage.data.thing(tracePage.data.byGoid.get(1), 0)") == ""


def test_it_shows_tasks_regions_and_messages(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(order().timeline(1000)))
    shown = TracePage(browser, path)
    rows = shown.run(
        "return [...document.querySelectorAll('#tasks tbody tr')].map((row) => row.innerText)"
    )
    assert [row.split("\t")[-2:] for row in rows] == [
        ["order", "sync.Mutex.Lock main.mu 200 ns"],
        ["dish", ""],
    ]
    shown.click(A, 250)
    assert shown.text("#regions") == "in take (task 1 order)"
    assert shown.text("#messages") == "reported size: large (task 2 dish)"
    shown.click(A, 590)
    assert shown.text("#regions") == "in take (task 1 order), cook (task 2 dish)"
    field = shown.browser.find_element(By.CSS_SELECTOR, "#search")
    field.send_keys("cook")
    assert shown.rows() == ["G1 main.a"]


def test_without_annotations_there_is_no_table_of_tasks(shown: TracePage) -> None:
    assert shown.run("return document.querySelector('#tasks')") is None


def test_keys_zoom_move_and_choose(shown: TracePage) -> None:
    whole = shown.run("return tracePage.to - tracePage.from")
    shown.press("+")
    assert shown.run("return tracePage.to - tracePage.from") < whole
    before = shown.run("return tracePage.from")
    shown.press(Keys.ARROW_RIGHT)
    assert shown.run("return tracePage.from") > before
    shown.press("0")
    assert shown.run("return [tracePage.from, tracePage.to]") == [0, whole]
    shown.press(Keys.ARROW_DOWN)
    assert shown.text("#span h2").startswith("G")


def test_search_finds_functions_stacks_and_ids(shown: TracePage) -> None:
    field = shown.browser.find_element(By.CSS_SELECTOR, "#search")
    for text, rows in (
        ("holds", ["G2 main.holds"]),
        ("g3", ["G3 main.reads"]),
        ("main.read", ["G3 main.reads"]),
        ("10.0.0.1", ["G3 main.reads"]),
        ("cache.mu", ["G2 main.holds", "G1 main.asks"]),
        ("nothing", []),
    ):
        field.clear()
        field.send_keys(text)
        assert shown.rows() == rows


def test_the_table_sums_what_is_seen(shown: TracePage) -> None:
    rows = shown.run(
        "const { texts, data, groups } = tracePage; texts.showGroups(data, groups, 0, 100);"
        "return [...texts.table.querySelectorAll('tbody tr')].map((row) => row.innerText)"
    )
    assert ["100", "ns", "1", "main.asks"] in [row.split() for row in rows]


def test_many_goroutines_of_one_function_are_one_row_that_opens(
    browser: Chrome, tmp_path: Path
) -> None:
    found = timeline()
    same = {
        goid: replace(each, start=found.goroutines[A].start)
        for goid, each in found.goroutines.items()
    }
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(replace(found, goroutines=same)))
    shown = TracePage(browser, path)
    assert shown.rows() == ["▸ main.asks (3)"]
    shown.run("const row = tracePage.canvas.rows[0]; tracePage.open.add(row.key); tracePage.draw()")
    assert shown.rows()[1:] == ["G1 main.asks", "G2 main.asks", "G3 main.asks"]
    shown.click(B, 200)
    assert shown.text("#span h2").startswith("G2 main.asks: sync.Mutex.Lock")


def text_at(shown: TracePage, title: str, time_ns: int) -> str:
    """What is said of a row under the pointer."""
    text: str = shown.run(
        "const row = tracePage.rows().find((each) => each.title === arguments[0]);"
        "return tracePage.described({ row, time: arguments[1] })",
        *(title, time_ns),
    )
    return text


def test_threads_say_who_woke_them_and_the_heap_how_large_it_is(
    browser: Chrome, tmp_path: Path
) -> None:
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(threads()))
    shown = TracePage(browser, path)
    assert shown.rows()[0] == "heap and its goal"
    assert shown.rows()[-1] == "▸ threads (1)"
    shown.run("tracePage.open.add('threads'); tracePage.draw()")
    assert shown.rows()[-2:] == ["▾ threads (1)", "thread 7"]
    assert text_at(shown, "thread 7", 150) == "thread 7: on CPU 0 for 80 ns, woken by t (8)"
    assert text_at(shown, "thread 7", 350) == "thread 7: on CPU 0 for 90 ns"
    assert text_at(shown, "thread 7", 205) == "thread 7: off the CPU"
    assert text_at(shown, "heap and its goal", 599) == "heap 4.00 MiB, collected at 8.00 MiB"
    assert text_at(shown, "heap and its goal", 601) == "heap 6.00 MiB, no goal"
    shown.press("+")  # all rows are drawn
    assert shown.run("return tracePage.canvas.canvas.width") > 0


def test_names_of_a_program_are_not_markup(browser: Chrome, tmp_path: Path) -> None:
    found = timeline()
    start = found.goroutines[A].start
    assert start
    hostile = TimelineGoroutine(A, start._replace(frame=Frame(HOSTILE, "", 1)), None, 0)
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(replace(found, goroutines={**found.goroutines, A: hostile})))
    shown = TracePage(browser, path)
    assert f"G1 {HOSTILE}" in shown.rows()
    shown.click(A, 500)
    assert HOSTILE in shown.text("#span h2")


def test_it_shows_who_waits_for_whom_and_in_the_end(shown: TracePage) -> None:
    boxes = shown.browser.find_elements(By.CSS_SELECTOR, ".wait-box")
    texts = {box.text.split()[0]: box.text for box in boxes}
    assert texts.keys() == {"main.asks", "main.holds", "main.reads", "10.0.0.1:80"}
    assert "waits 900 ns" in texts["main.asks"]
    assert "580 ns for it" in texts["10.0.0.1:80"]
    titles = shown.run(
        "return [...document.querySelectorAll('.wait title')].map((e) => e.textContent)"
    )
    asks = next(title for title in titles if title.startswith("main.asks waits for main.holds"))
    assert "61.1 % main.reads: network 10.0.0.1:80" in asks
    rows = [row.text for row in shown.browser.find_elements(By.CSS_SELECTOR, "#waits tbody tr")]
    assert any("main.asks (sync.Mutex.Lock main.cache.mu) for main.holds" in row for row in rows)
    assert "was in the end for main.reads" in shown.text("#waits .finding")


def test_a_box_of_the_graph_shows_its_goroutines(shown: TracePage) -> None:
    box = shown.browser.find_element(By.CSS_SELECTOR, ".wait-box[role=button]")
    name = box.text.split()[0]
    shown.run("arguments[0].dispatchEvent(new Event('click'))", box)
    assert [row.split()[1] for row in shown.rows()] == [name]
