"""The page in a real browser: what it shows, and what can be done with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from ebpfprof.export import json_profile
from ebpfprof.export.kinds import kind_words
from ebpfprof.profile.kind import ProfileKind, Table
from ebpfprof.profile.model import Sample
from ebpfprof.profilers.registry import registered
from tests.browser.pages import FakedPage
from tests.browser.pageserver import (
    HOSTILE,
    START_S,
    WINDOW_S,
    WINDOWS,
    block_profile,
    stack,
)
from tests.builds import in_full
from tests.unit.made_up_kinds import NAPS


def test_the_only_process_is_shown_at_once_with_its_worst_wait(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock in main.(*Cache).Get")
    # Of 10.001 s that are not idle.
    assert page.text("#headline").startswith("80 % of waiting: ")
    assert "8.00 s in 100 waits" in page.text("#headline")
    assert page.texts("[role=tab]") == ["Overview", "Block", "Mutex", "CPU"]
    assert "shop (1234)" in page.text("#about")
    assert "go1.27.3" in page.text("#about")
    assert page.browser.title.startswith("shop (1234)")
    assert page.functions()[0] == "sync.(*Mutex).Lock"


def test_a_click_shows_another_profile(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("[data-kind=cpu]")
    page.until_text("#headline", "75 % of CPU time: main.hash (300 ms)")
    assert page.functions()[0] == "main.hash"
    assert page.fragment()["kind"] == "cpu"
    assert not page.one("#hide-idle").is_displayed()


def with_words_of(kind: ProfileKind) -> bytes:
    """The waits as a document of a kind that is registered."""
    words = kind_words(replace(block_profile(), kind=kind.name))
    document = json.loads(json_profile.encode(block_profile()))
    return json.dumps(document | {"kind": kind.name, "words": words}).encode()


@pytest.mark.parametrize(
    ("rows", "headline"),
    [
        (
            "operations",
            "80 % of all naps: Mutex.Lock in main.(*Cache).Get, ",
        ),
        *in_full(("functions", "80 % of all naps: sync.(*Mutex).Lock (8.00 s)")),
    ],
)
def test_a_kind_that_is_only_registered_has_a_tab(
    page: FakedPage, rows: Literal["operations", "functions"], headline: str
) -> None:
    kind = replace(NAPS, table=Table(rows, "Rest", "Naps", ("Where",)))
    page.server.targets[0]["kinds"].append(kind.name)
    with registered(kind):
        page.server.bodies[kind.name] = with_words_of(kind)
        page.open()
        page.until_text("#headline", "Mutex.Lock")
        assert page.texts("[role=tab]") == ["Overview", "Block", "Mutex", "CPU", "Nap"]
        assert page.attribute("[data-kind=naps]", "title") == "where goroutines took a nap"
        page.click("[data-kind=naps]")
        page.until_text("#headline", "of all naps:")
        assert page.text("#headline").startswith(headline)
        assert page.text("#headline").endswith("naps)") == (rows == "operations")
        assert page.texts("#functions th")[2] == "Naps"
        assert page.one("#hide-idle").is_displayed() == (rows == "operations")
        assert ("operation" in page.texts("#group option")) == (rows == "operations")
        assert page.fragment()["kind"] == "naps"
        # The values of its windows are bytes: it has more types than two.
        page.until_text(".timeline-text", "38.1 MiB in 5.00 s")
        page.open("#kind=naps")
        page.until_text("#headline", "of all naps:")


def test_the_timeline_of_a_moment_has_no_rate(page: FakedPage) -> None:
    kind = replace(NAPS, is_moment=True)
    page.server.targets[0]["kinds"].append(kind.name)
    with registered(kind):
        page.server.bodies[kind.name] = with_words_of(kind)
        page.open("#kind=naps")
        page.until_text("#headline", "of all naps:")
        assert page.text(".timeline-text").endswith(": 38.1 MiB")


def test_idle_waits_are_hidden_with_their_sum_and_reason(page: FakedPage) -> None:
    page.open()
    page.until_text("#idle summary", "30.0 s of idle waiting hidden")
    page.click("#idle summary")
    page.until_text("#idle dt", "30.0 s")
    assert page.text("#idle dd").endswith(".")
    assert "main.worker" not in page.functions()
    page.click("#hide-idle")
    page.until(lambda p: p.functions()[0] == "runtime.chanrecv2", "the worker's wait")
    assert "30.0 s of idle waiting shown" in page.text("#idle summary")
    assert page.fragment()["idle"] == "1"


def test_searching_marks_and_filters(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.one("#search").send_keys("cache")
    page.until_text("#matched", "80.0 %, 8.00 s, functions: 1")
    assert page.functions() == ["main.(*Cache).Get"]
    page.one("#search").clear()
    page.one("#search").send_keys("nothing like it")
    page.until(lambda p: p.text("#matched").startswith("0.00 %"), "no match")
    assert page.text("#functions").endswith("No function.")


def test_a_function_of_the_table_is_searched(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("#functions tbody tr:nth-child(2) .function")
    page.until(lambda p: bool(p.text("#matched")), "what matches")
    assert page.graph("query") == page.fragment()["search"] == "runtime.chanrecv1"


def test_the_table_is_sorted_by_each_column(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    first = {}
    for number, column in enumerate(("flat", "cum", "count", "mean", "name"), start=1):
        page.click(f"#functions th:nth-child({number}) button")
        sort = f"#functions th:nth-child({number})[aria-sort$=cending]"
        page.until(lambda p, s=sort: bool(p.texts(s)), f"sorted by {column}")  # type: ignore[misc]  # mypy and defaults of a lambda
        first[column] = page.functions()[0]
    assert first == {
        "flat": "sync.(*Mutex).Lock",
        "cum": "main.serve",
        "count": "main.serve",
        "mean": "main.answer",
        "name": HOSTILE,
    }


def test_the_graph_is_grouped_and_inverted(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    choices = page.texts("#group option")
    assert choices == ["nothing", "operation", "lock", "label tenant"]
    page.one("#group").send_keys("label")
    page.until(lambda p: p.fragment().get("group") == "label:tenant", "the group")
    assert page.graph("options.groupBy") == "label:tenant"
    page.click("#inverted")
    page.until(lambda p: p.graph("options.inverted") is True, "inverted")
    assert page.fragment()["inverted"] == "1"


def test_the_page_says_how_to_group_by_lock_where_locks_are_not_distinguished(
    page: FakedPage,
) -> None:
    samples = tuple(replace(sample, labels=()) for sample in block_profile().samples)
    page.server.profiles["block"] = replace(block_profile(), samples=samples)
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    assert "lock" not in page.text("#group")  # they are, but there was none in this time
    page.server.recorded = ("block", "cpu")
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    *_, last = page.browser.find_elements(By.CSS_SELECTOR, "#group option")
    assert last.text == "lock (start serve with --profile mutex)"
    assert not last.is_enabled()
    page.click("[data-kind=cpu]")
    page.until_text("#headline", "of CPU time")
    assert "lock" not in page.text("#group")
    page.open("#kind=block&group=lock")  # by hand: it is no group
    page.until_text("#headline", "Mutex.Lock")
    assert page.graph("options.groupBy") == ""


def test_lines_of_source_files_are_asked_for_only_when_they_are_shown(page: FakedPage) -> None:
    page.server.sources["/src/main.go"] = {
        "path": "/home/anna/src/main.go",
        "changed": False,
        "lines": {9: "func answer() {", 10: "\tv := <-ready"},
    }
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    assert not [path for path in page.server.asked if "/source?" in path]
    page.open("#view=source&file=/src/main.go")
    page.until_text("#source code", "v := <-ready")
    assert page.text("#source .quiet").startswith("From /home/anna/src/main.go as it is now.")
    page.open("#view=source")
    page.until_text("#source .quiet", "Start serve with --source DIR.")
    # At first the program's own code, not what it calls.
    assert page.text("#source code").splitlines()[0] == "main.(*Cache).Get"


def picked(page: FakedPage) -> tuple[float, float]:
    words = page.fragment()
    return float(words["from"]), float(words["to"])


def test_a_window_is_picked_with_the_mouse(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    line = page.one(".timeline .u-over")
    step = line.size["width"] / WINDOWS
    first = -line.size["width"] / 2 + 5.5 * step
    drag = ActionChains(page.browser).move_to_element_with_offset(line, round(first), 0)
    drag.click_and_hold().move_by_offset(round(2 * step), 0).release().perform()
    page.until(lambda p: "from" in p.fragment(), "a window")
    assert picked(page) == (START_S + 5 * WINDOW_S, START_S + 8 * WINDOW_S)
    wanted = f"from={START_S + 25}"
    page.until(lambda p: any(wanted in path for path in page.server.asked), "what was picked")
    assert f"from={START_S + 25}" in str(page.one("#download").get_attribute("href"))
    page.click("#live")
    page.until(lambda p: "from" not in p.fragment(), "the last minute")


def test_a_window_is_picked_with_the_keyboard(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    line = page.one(".timeline")
    line.send_keys(Keys.ARROW_LEFT)
    line.send_keys(Keys.SHIFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    line.send_keys(Keys.ENTER)
    page.until(lambda p: "from" in p.fragment(), "a window")
    end_s = START_S + WINDOWS * WINDOW_S
    assert picked(page) == (end_s - 4 * WINDOW_S, end_s - WINDOW_S)


def test_two_windows_are_compared(page: FakedPage) -> None:
    page.server.profiles["block"] = block_profile(scale=3)
    page.server.base = block_profile()
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    assert page.graph("options.base") is None
    page.click("input[value=base]")
    line = page.one(".timeline")
    line.send_keys(Keys.HOME, Keys.ENTER)
    page.until(lambda p: p.graph("options.base") is not None, "a comparison")
    assert "compared with" in page.text("#window")
    page.click("#uncompare")
    page.until(lambda p: p.graph("options.base") is None, "no comparison")


def test_a_link_restores_the_view(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("#inverted")
    page.click("#hide-idle")
    page.one("#search").send_keys("main")
    page.until(lambda p: p.fragment().get("search") == "main", "the search")
    fragment = urlsplit(page.browser.current_url).fragment
    page.open(f"#{fragment}&from={START_S + 10}&to={START_S + 20}")
    page.until_text("#matched", "functions: ")
    assert page.one("#inverted").is_selected()
    assert not page.one("#hide-idle").is_selected()
    assert page.one("#search").get_attribute("value") == "main"
    assert page.one("#live").is_displayed()


@pytest.mark.full
def test_a_link_restores_the_zoom(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.one(".flame-canvas").send_keys(*[Keys.ARROW_DOWN] * 2, Keys.ENTER)
    page.until_text(".flame-path", "main.(*Cache).Get")
    fragment = urlsplit(page.browser.current_url).fragment
    page.open(f"#{fragment}")
    page.until_text(".flame-path", "main.(*Cache).Get")
    assert page.graph("zoomPath") == ["main.serve", "main.(*Cache).Get"]
    page.browser.execute_script("page.refresh(true)")
    page.click("#hide-idle")
    assert page.graph("zoomPath") == ["main.serve", "main.(*Cache).Get"]
    page.one(".flame-canvas").send_keys(Keys.HOME)
    page.until(lambda p: "zoom" not in p.fragment(), "the whole")
    # Where a frame isn't there, its caller is.
    page.open("#zoom=main.serve&zoom=main.gone")
    page.until_text(".flame-path", "main.serve")
    page.click("#inverted")
    page.until(lambda p: p.graph("zoomPath") == [], "the whole")
    assert "zoom" not in page.fragment()


def test_refreshing_can_be_paused(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("#pause")
    assert page.one("#pause").get_attribute("aria-pressed") == "true"
    page.server.profiles["block"] = block_profile(scale=9)
    page.browser.execute_script("page.refresh(false)")
    assert "8.00 s" in page.text("#headline")
    page.click("#pause")
    page.until_text("#headline", "1.20 min in 900 waits")


def test_dark_and_light_are_kept(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    before = page.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    after = page.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert before != after


@pytest.mark.parametrize("width", [320, 768])
def test_the_page_fits_a_phone(page: FakedPage, width: int) -> None:
    long = "example.com/team/service/internal/storage.(*Replica).applySnapshot"
    sample = replace(block_profile().samples[0], locations=stack(long, "main.serve"))
    page.server.profiles["block"] = replace(block_profile(), samples=(sample,))
    metrics = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.open()
        page.until_text("#functions", long)
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width
        # Names have room beside the numbers, or above them.
        assert page.one("#functions .function").size["height"] < 60
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_every_control_has_a_name_and_can_be_reached(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    nameless = page.browser.execute_script(
        "return [...document.querySelectorAll('button, input, select, a[href], [tabindex=\"0\"]')]"
        ".filter((e) => e.checkVisibility() && !((e.innerText || '').trim() || e.ariaLabel || "
        "e.getAttribute('aria-label') || (e.labels && e.labels.length)))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_keys_search_and_pause(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.one("body").send_keys("/")
    page.browser.switch_to.active_element.send_keys("/p")
    page.until(lambda p: p.fragment().get("search") == "/p", "the search")
    assert page.one("#pause").get_attribute("aria-pressed") == "false"
    page.browser.execute_script("document.activeElement.blur()")
    page.one("body").send_keys("p")
    assert page.one("#pause").get_attribute("aria-pressed") == "true"


def test_the_table_shows_a_comparison(page: FakedPage) -> None:
    page.server.profiles["block"] = block_profile(scale=3)
    page.server.base = block_profile()
    base = f"&base-from={START_S}&base-to={START_S + WINDOW_S}"
    page.open(f"#pid=1234{base}")
    page.until_text("#functions", "Change of flat")
    assert "+16.0 s" in page.texts("#functions tbody tr")[0]
    page.open("#pid=1234&sort=change")
    page.until_text("#functions", "Mean")
    assert "Change" not in page.text("#functions")


def test_a_button_shows_all_functions_of_a_long_table(page: FakedPage) -> None:
    samples = [Sample(stack(f"main.f{n}"), (1, 1_000_000 + n)) for n in range(103)]
    page.server.profiles["block"] = replace(block_profile(), samples=tuple(samples))
    page.open()
    page.until_text("#functions", "main.f102")
    assert len(page.functions()) == 100
    page.browser.find_element("xpath", "//button[.='All 103 functions']").click()
    assert len(page.functions()) == 103
