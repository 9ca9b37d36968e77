"""The page in a real browser: what it says of errors, losses, odd names and what is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from selenium.webdriver import Keys

from ebpfprof.export import json_profile
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.model import Label
from ebpfprof.profilers.account import in_proportion
from tests.browser.pages import FakedPage, forget_errors
from tests.browser.pageserver import (
    HOSTILE,
    START_S,
    block_profile,
    described,
    stack,
)
from tests.builds import in_full


@pytest.mark.parametrize(
    "fragment",
    [
        *in_full("#pid=-1", "#pid=x&kind=nonsense"),
        "#pid=1234&from=5&to=1&value=99&group=label:x",
    ],
)
def test_a_broken_link_does_no_harm(page: FakedPage, fragment: str) -> None:
    page.open(fragment)
    page.until(lambda p: "shop" in p.text("#processes") + p.text("#about"), "the process")
    page.open("#pid=1234&kind=block&value=99")
    page.until_text("#headline", "Mutex.Lock")


def test_names_are_never_markup(page: FakedPage) -> None:
    page.server.targets[0]["name"] = HOSTILE
    page.server.targets.append(described(7, HOSTILE))
    page.open()
    page.until_text("#processes", HOSTILE)
    page.open("#pid=1234&kind=block")
    page.until(lambda p: HOSTILE in p.functions(), "the hostile function")
    assert HOSTILE in page.text("#about")
    assert page.browser.title.startswith("<img src=x")
    assert page.texts("main img, main b, #processes img") == []


def test_the_page_says_that_a_profile_is_empty(page: FakedPage) -> None:
    page.server.profiles["block"] = replace(block_profile(), samples=())
    page.open()
    page.until_text(
        "#nothing", "Nothing was recorded in this time: no goroutine waited and was woken."
    )
    assert not page.one("#graph").is_displayed()


@pytest.mark.parametrize(
    ("lost", "is_alarming", "said"),
    [
        (1, False, "incomplete in total: less than 0.01 % of what happened, too little"),
        (900, True, "incomplete: 900 events lost; incomplete in total: at most 1.5 % of what"),
    ],
)
def test_losses_alarm_only_where_they_matter(
    page: FakedPage, lost: int, is_alarming: bool, said: str
) -> None:
    found = Completeness(lost, 58_000)
    comments = (f"incomplete: {lost} events lost", in_proportion(found))
    profile = replace(block_profile(), comments=comments)
    fields = {"lost": lost, "share": found.lost_share, "alarming": found.is_alarming}
    document = json_profile.document(profile) | {"incomplete": fields}
    page.server.bodies["block"] = json_profile.dumped(document)
    page.open()
    page.until_text("#losses", said)
    shown = page.one("#losses")
    assert ("alarming" in str(shown.get_attribute("class"))) == is_alarming
    # A warning stands above what it concerns, a footnote below, in a line or two.
    assert (shown.location["y"] < page.one("#graph").location["y"]) == is_alarming
    assert shown.size["height"] < 60
    assert page.text("#status") == ""
    # All of it is reported among the notes.
    page.click("#notes summary")
    page.until_text("#notes", f"{lost} events lost")


def test_the_page_says_that_a_time_was_not_recorded(page: FakedPage) -> None:
    page.server.no_profile = "Process 1234 was not recorded in that time."
    page.open(f"#pid=1234&from={START_S}&to={START_S + 5}")
    page.until_text("#nothing", "Process 1234 was not recorded in that time.")
    forget_errors(page)
    page.server.no_profile = ""
    page.open("#pid=1234&kind=block")
    page.until_text("#headline", "Mutex.Lock")
    assert page.text("#nothing") == ""


def test_the_page_says_that_a_process_is_not_served(page: FakedPage) -> None:
    page.open("#pid=77")
    page.until_text("#welcome", "Process 77 has ended, or was never served here.")
    assert page.one("#processes").is_displayed()


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


@pytest.mark.parametrize("code", [*in_full(403, 500), 503])
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


def test_escape_sequences_are_made_visible(page: FakedPage) -> None:
    odd = "a\x1b[31m\u202eb"
    page.server.targets[0] |= {"name": odd, "command": odd}
    page.server.targets.append(described(7, "other"))
    profile = block_profile()
    sample = replace(profile.samples[0], locations=stack(odd), labels=(Label(odd, odd),))
    page.server.profiles["block"] = replace(
        profile, samples=(sample,), comments=(f"incomplete: {odd}",)
    )
    page.open("#pid=1234&kind=block")
    page.until_text("#functions", "\\x1b[31m\\u202e")
    shown = page.browser.execute_script("return document.body.textContent + document.title")
    assert shown.count("\\x1b[31m\\u202e") >= 6
    assert not {"\x1b", "\u202e"} & set(shown)
