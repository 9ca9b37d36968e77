"""What keeps memory alive, at a button of the overview: sentences, a table and a flame graph."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pytest
from selenium.webdriver import Chrome

from ebpfprof.export.references import page as page_of
from ebpfprof.profile.references import LeakedGoroutines, Path, References, RootPaths
from tests.browser.pages import OVERVIEW, FakedPage, Page, forget_errors
from tests.browser.pageserver import HOSTILE, START_S, described
from tests.browser.servedpage import serving
from tests.browser.test_everyone import faults, shown_at
from tests.browser.test_findings import LONG, PHONE, finding, width
from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target

NAMES = "return page.references._graph.frames().map((frame) => frame.name)"
BUTTON = "#references button"


def found() -> dict[str, Any]:
    """What the server answers: a cache with long names, one that is hostile, a leak."""
    data = Path.of(".data", "[]uint8", 1000, 64_000_000, ())
    entries = Path.of("[]", LONG, 1000, 64_000, (data,))
    cache = Path.of("main.cache", f"map[string]*{LONG}", 3, 20_000, (entries,))
    hostile = Path.of(HOSTILE, "", 5, 5000, ())
    references = References(
        (RootPaths("variable", cache), RootPaths("variable", hostile)),
        2008,
        64_089_000,
        changed=5,
        changed_bytes=500,
        leaked=LeakedGoroutines((7, 8), objects=9, used=4096),
    )
    leak = finding("unreachable", f"2 goroutines can never continue: chan send in {LONG}.")
    made = page_of(references, "/srv/shop", START_S * 10**9, [leak])
    return {**made, "time_s": START_S, "seconds": 1.5}


def asked(page: FakedPage) -> int:
    """How often the server was asked to read the heap."""
    return sum("/api/targets/1234/references" in path for path in page.server.asked)


@pytest.mark.parametrize("theme", ["dark", *in_full("light")])
def test_the_button_shows_it_on_a_phone(page: FakedPage, theme: str) -> None:
    page.server.references = found()
    with shown_at(page.browser, PHONE, theme):
        page.open(OVERVIEW)
        page.until_text("#strips", "CPU")
        assert asked(page) == 0  # nothing is read before
        page.click(BUTTON)
        page.until_text("#references [role=status]", "61.1 MiB in 2,008 objects are reachable")
        assert width(page.browser) <= PHONE
        answer, _ = page.texts("#references [data-answers] li")
        assert answer.startswith(f"main.cache (map[string]*{LONG}) keeps 61.1 MiB (100 %)")
        assert "500 B in 5 objects belong to no path" in page.text("#references [data-notes]")
        assert "2 goroutines can never continue" in page.text("#references .unreachable summary")
        rows = page.texts("#references tbody tr")
        assert len(rows) == 4
        assert "2,000" in rows[1]
        assert f"[] ({LONG})" in rows[1]
        assert HOSTILE in rows[3]
        names = page.browser.execute_script(NAMES)
        assert f"main.cache (map[string]*{LONG})" in names
        assert ".data ([]uint8)" in names
        assert faults(page.browser) == []
        page.browser.execute_async_script("page.refresh(true).then(arguments[0])")
        assert asked(page) == 1  # a refresh reads nothing again
    assert page.browser.title.startswith("shop")


def test_an_error_is_a_sentence_and_what_was_read_stays(page: FakedPage) -> None:
    page.server.references = found()
    page.open(OVERVIEW)
    page.click(BUTTON)
    page.until_text("#references", "main.cache")
    page.server.references = {"error": "Go 1.18 keeps its heap elsewhere."}
    page.click(BUTTON)
    page.until_text("#references [role=status]", "Go 1.18 keeps its heap elsewhere.")
    assert "main.cache" in page.text("#references")
    forget_errors(page)


def test_a_program_that_is_not_go_has_no_button(page: FakedPage) -> None:
    page.server.targets = [described(1234, "nginx", go=None)]
    page.open(OVERVIEW)
    page.until_text("#strips", "CPU")
    assert not page.one("#references").is_displayed()


@pytest.mark.full
def test_the_page_of_a_real_program(chromium: Chrome, tmp_path: FilePath) -> None:
    with (
        Target.start(program("references")) as target,
        serving(chromium, [target.pid], tmp_path) as address,
    ):
        target.ask("leak", "done")
        target.ask("gc", "done")
        page = Page(chromium, address).open()
        page.until_text("#strips", "CPUs used")
        page.click(BUTTON)
        page.until_text("#references", "main.sessions (map[string]*main.session) keeps 5.55 MiB")
        page.until_text("#references .unreachable summary", "chan send in main.leakedSend")
        assert "main.nodes (*main.node)" in chromium.execute_script(NAMES)
        assert "session-1" not in page.text("#references")  # the key of an entry
        assert not has_probes(target.pid)
