"""Handlers on the page and in a file: a table of them, and only one of them in all views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from ebpfprof.export import flamegraph
from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.model import Label, PeerSamples, Profile
from tests.browser.flamepage import FlamePage
from tests.browser.pages import FakedPage
from tests.browser.sliced import SLICES, sliced_profile

GET, ANSWER = "main.get: GET /cache", "main.answer: POST /answer"


def handled() -> Profile:
    """Of the sliced profile: locks are of one handler, channels of another, the rest of none."""
    profile = sliced_profile()
    names = {"main.(*Cache).Get": GET, "main.answer": ANSWER}
    samples = []
    for sample in profile.samples:
        functions = [frame.function for frame in sample.frames]
        name = next((names[one] for one in functions if one in names), None)
        labels = (Label(HANDLER, name), *sample.labels) if name else sample.labels
        samples.append(replace(sample, labels=labels))
    return replace(profile, samples=tuple(samples))


def rows(page: FakedPage | FlamePage, table: str) -> list[str]:
    return [" ".join(text.split()) for text in page.texts(f"#{table} tbody tr")]


def written(folder: Path, profile: Profile) -> Path:
    path = folder / "waits.html"
    path.write_bytes(flamegraph.encode(profile, hide_idle=True))
    return path


def test_a_click_on_a_handler_shows_only_this_one(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, handled()))
    first, second = rows(page, "handlers")
    assert GET in first
    assert "locks 100 %" in first
    assert ANSWER in second
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    page.elements("#handlers button")[1].click()
    page.until("standalonePage.state.handler")
    assert page.names(2) == ["main.answer"]
    assert "handler=main.answer" in browser.current_url
    # The heatmap and the other tables, too; the table of handlers still has both.
    assert page.script("return standalonePage.view.heat.grid.total") < 1e9
    assert len(rows(page, "operations")) == 1
    assert len(rows(page, "handlers")) == 2
    page.choose("Handler", "all")
    page.until("!standalonePage.state.handler")
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]


@pytest.mark.full
def test_a_part_of_a_name_selects(browser: Chrome, tmp_path: Path) -> None:
    path = written(tmp_path, handled())
    page = FlamePage(browser, path, "#handler=POST /answer")
    assert page.names(2) == ["main.answer"]
    page = FlamePage(browser, path, "#handler=PUT")
    assert page.text("#nothing") == "Nothing is of a handler with PUT in its name."
    page.choose("Handler", "all")
    page.until("!standalonePage.state.handler")
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]


@pytest.mark.full
def test_the_table_is_that_of_a_box(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, handled()))
    page.script("standalonePage.view.heat.choose({ from: 0, to: 2e9, least: 1e7, most: 1e12 })")
    page.until("standalonePage.state.part")
    (only,) = rows(page, "handlers")
    assert GET in only
    page.script("standalonePage.view.heat.choose(null)")
    page.until("!standalonePage.state.part")
    assert len(rows(page, "handlers")) == 2


@pytest.mark.full
def test_peers_are_beside_the_network(browser: Chrome, tmp_path: Path) -> None:
    profile = handled()
    first = profile.samples[0]
    call = replace(first.frames[0], function="net/http.(*persistConn).roundTrip")
    answer = replace(first.locations[0], frames=(call,))
    samples = tuple(
        replace(one, locations=(one.locations[0], answer, *one.locations[1:]))
        for one in profile.samples
    )
    peers = (PeerSamples(ANSWER, "HTTP answer", "10.0.0.7:80", 8),)
    shown = replace(profile, samples=samples, peers=peers, slices=None)
    page = FlamePage(browser, written(tmp_path, shown))
    (row,) = (row for row in rows(page, "handlers") if ANSWER in row)
    assert row.endswith("network 100 % (10.0.0.7:80 in 8 of 8 samples)")


@pytest.mark.full
def test_profiles_without_handlers_have_neither_table_nor_choice(
    browser: Chrome, tmp_path: Path
) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile()))
    assert not page.elements("#handlers")[0].is_displayed()
    assert not page.elements("#handler")[0].is_displayed()


@pytest.mark.full
def test_the_page_shows_one_handler_and_downloads_it(page: FakedPage) -> None:
    page.server.profiles["block"] = handled()
    page.open("#pid=1234&kind=block")
    page.until_text("#handlers", GET)
    page.click("#handlers tbody tr:nth-child(2) button")
    page.until(lambda p: p.fragment().get("handler") == ANSWER, "the handler in the address")
    page.until(lambda p: "main.(*Cache).Get" not in p.functions(), "only one handler")
    assert "handler=main.answer" in (page.attribute("#download", "href") or "")
    assert page.browser.execute_script("return page.profile.slices.times.length") == SLICES
