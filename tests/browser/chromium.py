"""Chromium, as tests of pages use it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    # Or each page would begin in a process of its own, and one more be started ahead.
    "--disable-features=BackForwardCache,SpareRendererForSitePerProcess",
    "--disable-sync",
    "--window-size=1280,1000",
)


@contextmanager
def started(*, logs_requests: bool = False) -> Iterator[webdriver.Chrome]:
    """Debian's chromium, headless, with a profile of its own.

    `logs_requests`: `requested()` says what pages ask for. It takes a third of the time of a page.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        logs = {"browser": "ALL"} | ({"performance": "ALL"} if logs_requests else {})
        options.set_capability("goog:loggingPrefs", logs)
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            yield driver
        finally:
            driver.quit()


def requested(driver: webdriver.Chrome) -> set[str]:
    """The addresses that were asked for since the last call."""
    entries = driver.get_log("performance")  # type: ignore[no-untyped-call]  # selenium has no types
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
