"""The page in a real browser: what it says of errors, losses, odd names and what is not there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from selenium.webdriver import Keys

from ebpfprof.profile.model import Label
from tests.browser.pages import FakedPage, forget_errors
from tests.browser.pageserver import (
    HOSTILE,
    START_S,
    block_profile,
    stack,
)


@pytest.mark.parametrize(
    "fragment", ["#pid=-1", "#pid=x&kind=nonsense", "#pid=1234&from=5&to=1&value=99&group=label:x"]
)
def test_a_broken_link_does_no_harm(page: FakedPage, fragment: str) -> None:
    page.open(fragment)
    page.until_text("#targets", "shop")
    page.open("#pid=1234&value=99")
    page.until_text("#headline", "Mutex.Lock")


def test_names_are_never_markup(page: FakedPage) -> None:
    page.server.targets[0]["name"] = HOSTILE
    page.open()
    page.until(lambda p: HOSTILE in p.functions(), "the hostile function")
    assert HOSTILE in page.text("#targets")
    assert page.browser.title.startswith("<img src=x")
    assert page.texts("main img, main b, #targets img") == []


def test_the_page_says_that_a_profile_is_empty(page: FakedPage) -> None:
    page.server.profiles["block"] = replace(block_profile(), samples=())
    page.open()
    page.until_text("#nothing", "Nothing was recorded in this time.")
    assert not page.one("#graph").is_displayed()


def test_the_page_shows_losses(page: FakedPage) -> None:
    page.open()
    page.until_text("#status", "incomplete: 3 events")


def test_the_page_says_that_a_time_was_not_recorded(page: FakedPage) -> None:
    page.server.no_profile = "Process 1234 was not recorded in that time."
    page.open(f"#pid=1234&from={START_S}&to={START_S + 5}")
    page.until_text("#nothing", "Process 1234 was not recorded in that time.")
    page.open("#pid=1234")
    page.until_text("#nothing", "Recording has begun")
    forget_errors(page)


def test_the_page_says_that_a_process_is_not_served(page: FakedPage) -> None:
    page.open("#pid=77")
    page.until_text("#welcome", "Process 77 is not served here")


def test_the_page_asks_for_a_token(page: FakedPage) -> None:
    page.server.refusal = (401, "A token is needed.")
    page.open()
    page.until_text("#error", "A token is needed.")
    page.server.refusal = None
    page.one("#token").send_keys("secret&word", Keys.ENTER)
    page.until_text("#headline", "Mutex.Lock")
    forget_errors(page)
    assert "/?token=secret%26word" in page.server.asked
    assert not page.one("#access").is_displayed()


@pytest.mark.parametrize("code", [403, 500, 503])
def test_a_server_error_is_shown_until_the_next_answer(page: FakedPage, code: int) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.server.refusal = (code, "It is not possible now.")
    page.click("[data-kind=cpu]")
    page.until_text("#error", "It is not possible now.")
    page.server.refusal = None
    page.click("[data-kind=block]")
    page.until(lambda p: not p.one("#error").is_displayed(), "no error")
    forget_errors(page)


def test_the_page_sends_no_request_to_another_server(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.browser.get_log("performance")  # type: ignore[no-untyped-call]
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.click("[data-kind=cpu]")
    page.until_text("#headline", "main.hash")
    entries = page.browser.get_log("performance")  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert f"{page.url}assets/flamegraph.js" in asked
    assert all(url.startswith((page.url, "about:", "chrome")) for url in asked)


def test_escape_sequences_are_made_visible(page: FakedPage) -> None:
    odd = "a\x1b[31m\u202eb"
    page.server.targets[0] |= {"name": odd, "command": odd}
    profile = block_profile()
    sample = replace(profile.samples[0], locations=stack(odd), labels=(Label(odd, odd),))
    page.server.profiles["block"] = replace(
        profile, samples=(sample,), comments=(f"incomplete: {odd}",)
    )
    page.open()
    page.until_text("#functions", "\\x1b[31m\\u202e")
    shown = page.browser.execute_script("return document.body.textContent + document.title")
    assert shown.count("\\x1b[31m\\u202e") >= 6
    assert not {"\x1b", "\u202e"} & set(shown)
