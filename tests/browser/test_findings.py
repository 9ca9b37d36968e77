"""Goroutines that hang or leak are on the overview of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.browser.pages import OVERVIEW, FakedPage, Page
from tests.browser.pageserver import HOSTILE
from tests.browser.servedpage import serving
from tests.kernel.oncall_program import oncall

PHONE = 390
TIMELINE = "/api/targets/1234/timeline"
LONG = "example.com/team/service/internal/storage.(*Replica[go.shape.string]).applySnapshot"


def finding(kind: str, title: str, **fields: object) -> dict[str, object]:
    frame = {"function": LONG, "file": "/src/storage/replica.go", "line": 77}
    return {"kind": kind, "title": title, "lines": [], "count": 2, "stack": [frame], **fields}


@contextmanager
def phone(browser: Chrome) -> Iterator[None]:
    metrics = {"width": PHONE, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def width(browser: Chrome) -> int:
    return int(browser.execute_script("return document.documentElement.scrollWidth"))


def test_they_are_on_the_overview_without_a_recording(page: FakedPage) -> None:
    page.server.findings = [
        finding("deadlock", "Probably a deadlock: 2 goroutines wait.", lines=["goroutine 7 waits"]),
        finding("hanging", f"2 goroutines have not moved: chan send in {LONG} (replica.go:77)."),
    ]
    with phone(page.browser):
        page.open(OVERVIEW)
        page.until_text("#findings", "Probably a deadlock: 2 goroutines wait.")
        deadlock, hanging = page.texts("#findings summary")
        assert deadlock == "Probably a deadlock: 2 goroutines wait."
        assert hanging.endswith(f"chan send in {LONG} (replica.go:77).")
        page.click("#findings .hanging summary")
        assert LONG in page.text("#findings .hanging pre")
        assert "replica.go:77" in page.text("#findings .hanging pre")
        assert page.one("#findings summary").location["y"] < 740
        # A browser's first test also asks for /assets/timeline.js.
        assert not [path for path in page.server.asked if path.startswith(TIMELINE)]
        assert width(page.browser) <= PHONE


def test_without_them_nothing_is_reported(page: FakedPage) -> None:
    page.open(OVERVIEW)
    page.until_text("#explanation", "Nothing is wrong")
    assert not page.one("#findings").is_displayed()
    page.server.unwatched = "The memory of process 1234 can't be read."
    page.browser.execute_script("page.refresh(true)")
    page.until_text("#findings", "may be missing here. The memory of process 1234 can't be read.")


def test_what_a_user_unfolded_stays_open(page: FakedPage) -> None:
    page.server.findings = [finding("hanging", "2 goroutines have not moved for 5 s.")]
    page.open(OVERVIEW)
    page.until_text("#findings", "for 5 s")
    page.click("#findings summary")
    page.server.findings = [finding("hanging", "3 goroutines have not moved for 9 s.")]
    page.browser.execute_script("page.refresh(true)")
    page.until_text("#findings", "for 9 s")
    assert page.one("#findings pre").is_displayed()
    page.server.findings = []
    page.browser.execute_script("page.refresh(true)")
    page.until(lambda p: not p.one("#findings").is_displayed(), "no finding")


def test_names_of_a_target_are_text(page: FakedPage) -> None:
    frame = {"function": HOSTILE, "file": HOSTILE, "line": 1}
    page.server.findings = [
        finding("leak", f"Perhaps a leak: {HOSTILE}", lines=[HOSTILE], stack=[frame])
    ]
    page.open(OVERVIEW)
    page.until_text("#findings", HOSTILE)
    page.click("#findings summary")
    assert page.text("#findings pre").count("<img src=x") >= 2
    assert page.browser.title.startswith("shop")


@pytest.mark.full
def test_a_deadlocked_program_shows_its_deadlock(chromium: Chrome, tmp_path: Path) -> None:
    with oncall() as run:
        facts = run.ask("deadlock")
        with serving(chromium, [run.target.pid], tmp_path) as address, phone(chromium):
            page = Page(chromium, address).open()
            page.until_text("#findings", "Deadlock: 2 goroutines wait for each other.")
            page.until_text("#findings", "Deadlock: goroutine")
            page.until_text("#findings", "Mutex.Lock in main.transfer (locks.go:")
            for summary in ("#findings .deadlock summary", "#findings .hanging summary"):
                page.click(summary)
            shown = page.text("#findings")
            assert f"goroutine {facts['total']['id']} waits for itself" in shown
            assert "holds it" in shown
            assert width(chromium) <= PHONE
