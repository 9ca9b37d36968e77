"""One browser for all tests, which fails a test that makes it complain; and the page in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.browser.chromium import started
from tests.browser.pages import FakedPage
from tests.browser.pageserver import PageServer, PageSite, page_site


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    with started() as driver:
        yield driver


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser; any message on its console at the end is a failure."""
    chromium.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types
    yield chromium
    messages = [entry["message"] for entry in chromium.get_log("browser")]  # type: ignore[no-untyped-call]  # selenium has no types
    chromium.get("about:blank")
    assert messages == []


@pytest.fixture(scope="session")
def site() -> Iterator[PageSite]:
    """One for all tests, so that the browser keeps its files."""
    with page_site() as served:
        yield served


@pytest.fixture
def server(site: PageSite) -> PageServer:
    """What the site answers in this test."""
    site.answers = PageServer()
    return site.answers


@pytest.fixture
def page(browser: webdriver.Chrome, site: PageSite, server: PageServer) -> Iterator[FakedPage]:
    yield FakedPage(browser, site.url, server)
    browser.get("about:blank")  # it asks no more
    stored = {"origin": site.url.removesuffix("/"), "storageTypes": "local_storage"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", stored)
