"""One browser for all tests, which fails a test that makes it complain; and the page in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.browser.pages import FakedPage
from tests.browser.pageserver import PageServer, page_server

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """Debian's chromium, headless, with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        yield driver
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser; any message on its console at the end is a failure."""
    chromium.get_log("browser")  # type: ignore[no-untyped-call]
    yield chromium
    said = [entry["message"] for entry in chromium.get_log("browser")]  # type: ignore[no-untyped-call]
    chromium.get("about:blank")
    assert said == []


@pytest.fixture
def server() -> Iterator[PageServer]:
    with page_server() as served:
        yield served


@pytest.fixture
def page(browser: webdriver.Chrome, server: PageServer) -> Iterator[FakedPage]:
    yield FakedPage(browser, server)
    browser.get("about:blank")  # asks no more before the server is gone
