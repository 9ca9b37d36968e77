"""Execution traces from the page: buttons that save a file, or say why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from tests.browser.pages import FakedPage, Page, forget_errors
from tests.browser.pageserver import described
from tests.browser.servedpage import serving
from tests.browser.test_findings import PHONE, phone, width
from tests.kernel.kernel_state import probed
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import toolchain

LAST, NEXT, SAYS = "#traces [data-last]", "#traces [data-next]", "#traces [role=status]"
THERE = {"is_there": True, "says": ""}


@pytest.fixture
def saved(chromium: Chrome, tmp_path: Path) -> Iterator[Path]:
    """The folder into which the browser saves files."""
    folder = tmp_path / "saved"
    folder.mkdir()
    allow = {"behavior": "allow", "downloadPath": str(folder)}
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", allow)
    yield folder
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "default"})


def await_file(page: Page, folder: Path, pattern: str) -> Path:
    """The file with such a name, once it is whole."""
    page.until(lambda _: bool([*folder.glob(pattern)]), f"{pattern}: {page.text(SAYS)}")
    (path,) = folder.glob(pattern)
    return path


def test_without_last_seconds_the_page_says_how_to_have_them(page: FakedPage) -> None:
    page.open()
    page.until_text(SAYS, "For the last seconds: serve --last 10s")
    assert not page.one(LAST).is_displayed()
    assert page.text(NEXT) == "Trace of the next 5 s"


def test_keys_save_the_last_seconds_in_a_format_on_a_phone(page: FakedPage, saved: Path) -> None:
    page.server.last_s = 10
    page.server.targets = [described(1234, "shop", last=THERE)]
    with phone(page.browser):
        page.open()
        page.until_text(LAST, "Trace of the last 10 s")
        page.one("#traces select").send_keys("ui")
        page.one(LAST).send_keys(Keys.ENTER)
        assert await_file(page, saved, "shop.trace").read_bytes() == b"a trace"
        page.until_text(SAYS, "Next: https://ui.perfetto.dev, which opens shop.trace")
        assert page.text(SAYS).endswith(" · recorded 2 s of 10 s")
        assert width(page.browser) <= PHONE
        high = page.browser.execute_script(
            "return [...document.querySelectorAll('#traces :is(button, select)')]"
            ".map((each) => each.getBoundingClientRect().right)"
        )
        assert max(high) <= PHONE
    (asked,) = [path for path in page.server.asked if "/trace?" in path]
    assert asked == "/proc/1234/debug/pprof/trace?last=&format=perfetto"


def test_why_there_is_none_is_reported(page: FakedPage) -> None:
    page.server.last_s = 10
    page.server.trace = (503, b"The last seconds are kept for 4 processes at most.\n")
    page.server.targets = [described(1234, "shop", last=THERE)]
    page.open()
    page.until_text(LAST, "Trace of the last 10 s")
    page.click(LAST)
    page.until_text(SAYS, "The last seconds are kept for 4 processes at most.")
    assert "bad" in str(page.one(SAYS).get_attribute("class"))
    forget_errors(page)
    why = "Its trace is starting: try again in a few seconds."
    page.server.targets = [described(1234, "shop", last={"is_there": False, "says": why})]
    page.open()
    page.until_text(SAYS, why)
    assert not page.one(LAST).is_enabled()


def test_of_a_process_that_ended_there_are_its_last_seconds_only(page: FakedPage) -> None:
    page.server.last_s = 10
    ended = described(1234, "shop", ended="process 1234 ended", state="ended", last=THERE)
    page.server.targets = [ended]
    page.open()
    page.until_text(LAST, "Trace of its last 10 s")
    assert not page.one(NEXT).is_displayed()
    page.server.targets = [described(1234, "shop", ended="process 1234 ended", state="ended")]
    page.open()
    page.until(lambda p: not p.one("#traces").is_displayed(), "no button")


@pytest.mark.full
def test_the_real_server_gives_its_last_seconds(
    chromium: Chrome, saved: Path, tmp_path: Path
) -> None:
    with Target.start(program("demo")) as demo:
        with serving(chromium, [demo.pid], tmp_path, "--last", "1s") as address:
            page = Page(chromium, address).open()
            page.until_text(LAST, "Trace of the last 1 s")
            page.until(lambda p: p.one(LAST).is_enabled(), "the last seconds")
            page.click(LAST)
            path = await_file(page, saved, f"demo-{demo.pid}-*.trace")
            page.until_text(SAYS, f"Next: go tool trace {path.name}")
        assert not probed(demo.pid)
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
    times = [int(at) for at in re.findall(r" StateTransition Time=(\d+) ", text)]
    assert 0 < max(times) - min(times) <= 1e9
    assert "main.(*PriceCache).Get" in text
