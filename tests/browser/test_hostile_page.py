"""A target with hostile names in a real browser: the served page, and the file of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from ebpfprof.console.text import printable
from ebpfprof.errors import ExitCode
from tests.browser.flamepage import FlamePage
from tests.browser.pages import Page
from tests.browser.servedpage import serving
from tests.kernel.hostileprogram import LABEL_KEY, MARK, RAW, TITLE, hostile_target
from tests.recorder import run
from tests.targets_run import Target

COMMENT = f"<!--{MARK}"
SHOWN = r"main.\x1b]0;OWNED\x07\x1b[2J"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with hostile_target(tmp_path_factory.mktemp("bin")) as hostile:
        yield hostile


@pytest.fixture
def page(chromium: Chrome, target: Target, tmp_path: Path) -> Iterator[Page]:
    with serving(chromium, [target.pid], tmp_path) as address:
        yield Page(chromium, address)


def assert_harmless(browser: Chrome) -> None:
    shown = browser.execute_script("return document.body.innerText + document.title")
    assert MARK in shown
    assert not RAW - {"\t"} & set(shown)
    assert browser.title != TITLE
    made = "return document.querySelectorAll('main img, main b, main script, #targets b').length"
    assert browser.execute_script(made) == 0


@pytest.mark.full
def test_the_page_shows_hostile_names_as_text(page: Page) -> None:
    page.open("#kind=block")
    page.until(lambda p: any(COMMENT in name for name in p.functions()), "the hostile function")
    assert_harmless(page.browser)
    for kind in ("cpu", "mutex"):
        # In one step: the page may replace the button meanwhile.
        click = "document.querySelector(arguments[0]).click()"
        page.browser.execute_script(click, f"[data-kind={kind}]")
        wanted = COMMENT if kind == "cpu" else "main.hold"
        page.until(lambda p, w=wanted: any(w in name for name in p.functions()), wanted)  # type: ignore[misc]  # mypy and defaults of a lambda
        assert_harmless(page.browser)


def test_the_file_of_a_recording_shows_hostile_names_as_text(
    browser: Chrome, target: Target, tmp_path: Path
) -> None:
    options = ("-d", "1", "-f", "html", "-o", "waits.html")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    page = FlamePage(browser, tmp_path / "waits.html")
    assert any(name.startswith(SHOWN) and COMMENT in name for name in page.texts("td button"))
    key = printable(LABEL_KEY.decode("utf-8", "backslashreplace"))
    page.choose("Group by", f"label {key}")
    assert_harmless(browser)
