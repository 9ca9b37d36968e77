"""Pages ask for nothing elsewhere: the served page asks its server, a file nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from ebpfprof.export import flamegraph
from ebpfprof.export.timelines import page as trace_page
from tests.browser.chromium import requested, started
from tests.browser.flamepage import FlamePage
from tests.browser.pages import FakedPage
from tests.browser.pageserver import block_profile
from tests.browser.test_trace_page import TracePage
from tests.unit.timeline.test_critical import A, timeline


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chrome]:
    """A browser that also says what is asked for."""
    with started(logs_requests=True) as driver:
        driver.get("about:blank")
        requested(driver)  # the browser's own, as it starts
        yield driver


def of_pages(browser: Chrome) -> set[str]:
    """The addresses that pages asked for, but for those that ask nobody."""
    own = ("about:", "chrome:", "chrome-", "data:")
    return {url for url in requested(browser) if not url.startswith(own)}


def test_the_page_sends_no_request_to_another_server(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("[data-kind=cpu]")
    page.until_text("#headline", "main.hash")
    asked = of_pages(page.browser)
    assert f"{page.url}assets/flamegraph.js" in asked
    assert all(url.startswith(page.url) for url in asked), asked


def test_a_flame_graph_is_whole(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "waits.html"
    path.write_bytes(flamegraph.encode(block_profile(3), base=block_profile(), hide_idle=True))
    shown = FlamePage(browser, path)
    shown.click("main.answer")
    shown.search("answer")
    shown.choose("Group by", "lock")
    assert of_pages(browser) == {path.as_uri()}


def test_a_trace_is_whole(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_bytes(trace_page.encode(timeline()))
    shown = TracePage(browser, path)
    shown.click(A, 500)
    assert "sync.Mutex.Lock" in shown.text("#span h2")
    assert of_pages(browser) == {path.as_uri()}
