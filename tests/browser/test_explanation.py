"""What is wrong with a process is the first thing on its page."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import jsonschema
import pytest
from selenium.webdriver import Chrome

from tests.browser.pages import DEADLINE_S, OVERVIEW, FakedPage, Page, forget_errors
from tests.browser.pageserver import HOSTILE, described, explanation
from tests.browser.servedpage import serving
from tests.browser.test_findings import LONG, PHONE, phone, width
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "explain.schema.json").read_text())
LOCK = {
    "kind": "hot_lock",
    "level": "slow",
    "title": f"Lock main.priceCache.mu: 54 % of the time of requests, in {LONG}.",
    "lines": ["Its holder: waits for 10.0.0.7:5432.", HOSTILE],
    "share": 0.54,
    "error": 0.01,
    "certain": False,
    "place": None,
    "next": "ebpfprof attach --pid 1234 --profile block,mutex --by-lock",
}


def asked(page: FakedPage) -> int:
    """How often the server was asked to observe the process."""
    return sum("/explain?" in path for path in page.server.asked)


def test_it_is_above_all_else_on_a_phone_and_on_a_desktop(page: FakedPage) -> None:
    page.server.explanation = explanation(LOCK, incomplete=["Without CPU samples: refused."])
    page.open(OVERVIEW)
    page.until_text("#explanation li strong", "Lock main.priceCache.mu: 54 %")
    assert page.one("#explanation").location["y"] < page.one("#strips").location["y"]
    with phone(page.browser):
        assert width(page.browser) <= PHONE
        shown = page.text("#explanation")
        assert "Its holder: waits for 10.0.0.7:5432." in shown
        assert HOSTILE in shown
        assert "Next: sudo ebpfprof attach --pid 1234 --profile block,mutex --by-lock" in shown
        assert "OK: no deadlock, no hang, locks 2 %." in shown
        assert "Without CPU samples: refused." in shown
        assert "Observed for 10.0 s until " in shown
    assert page.browser.title.startswith("shop")


def test_the_button_observes_again(page: FakedPage) -> None:
    page.open(OVERVIEW)
    page.until_text("#explanation", "Nothing is wrong, as far as this shows.")
    before = asked(page)
    assert before == 1
    page.server.explanation = explanation(LOCK)
    page.click("[data-kind=block]")
    page.until_text("#headline", "Mutex.Lock")
    page.click("[data-kind='']")
    page.until_text("#explanation", "Nothing is wrong, as far as this shows.")
    assert asked(page) == before  # a refresh of the page observes once a minute only
    page.click("#explanation button")
    page.until_text("#explanation", "54 % of the time of requests")
    assert asked(page) == before + 1
    page.server.explanation = {"error": "The memory of process 1234 can't be read."}
    page.click("#explanation button")
    page.until_text("#explanation", "The memory of process 1234 can't be read.")
    assert "54 %" in page.text("#explanation")
    forget_errors(page)


def test_only_running_go_programs_are_explained(page: FakedPage) -> None:
    page.server.targets = [described(1234, "nginx", go=None)]
    page.open(OVERVIEW)
    page.until_text("#strips", "CPU")
    assert not page.one("#explanation").is_displayed()
    assert asked(page) == 0


@pytest.mark.full
def test_a_service_with_a_hot_lock_is_explained(chromium: Chrome, tmp_path: Path) -> None:
    with (
        Target.start(program("services/hotlock")) as target,
        serving(chromium, [target.pid], tmp_path) as address,
    ):
        page = Page(chromium, address).open()
        page.until_text("#explanation li", "Lock main.priceCache.mu: ")
        assert "Nothing is wrong" not in page.text("#explanation")


@pytest.mark.full
def test_a_real_process_is_observed_for_the_page_and_for_programs(
    chromium: Chrome, tmp_path: Path
) -> None:
    with (
        Target.start(program("services/hotlock")) as target,
        serving(chromium, [target.pid], tmp_path) as address,
    ):
        page = Page(chromium, address).open()
        page.until_text("#explanation", "Observing for 10 s…")
        page.until_text("#strips [data-strip=goroutines] li", "wait for locks")
        page.until_text("#strips [data-strip=cpu] li", "CPUs used")
        assert not has_probes(target.pid)
        with urlopen(f"{address}debug/explain?seconds=1", timeout=DEADLINE_S) as answer:
            document = json.load(answer)
    jsonschema.validate(document, SCHEMA)
    (explained,) = document["processes"]
    assert explained["findings"][0]["kind"] == "hot_lock"
