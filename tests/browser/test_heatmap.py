"""The heatmap of waits by time and length: in a file, and on the page."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.interaction import POINTER_MOUSE, POINTER_TOUCH
from selenium.webdriver.common.actions.pointer_input import PointerInput

from ebpfprof.export import flamegraph
from ebpfprof.profile.model import Profile
from tests.browser.flamepage import FlamePage
from tests.browser.pages import FakedPage
from tests.browser.pageserver import START_S, block_profile
from tests.browser.sliced import LONG_FROM, LONG_NS, SLICES, sliced_profile

LONG = f"{START_S + LONG_FROM},{START_S + SLICES},{LONG_NS // 2},{4 * LONG_NS}"
# Where a time and a length are in the window.
_PLACE = """
const { heat } = (window.standalonePage ?? page).view;
const [begin, end] = heat.span;
const box = heat.picture.getBoundingClientRect();
const [time, ns] = arguments;
return [box.left + box.width * (time - begin) / (end - begin),
  box.top + box.height * heat.topOfLength(ns) / heat.height];
"""
# The brightness of each colour of the scale, as screens have it.
_SCALE = """
return [1, 2, 3, 4, 5, 6].map((level) => {
  const swatch = document.querySelector(`.heat-swatch.heat-${level}`);
  const parts = getComputedStyle(swatch).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const [r, g, b] = parts.map((v) => (v / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
});
"""


def written(folder: Path, profile: Profile) -> Path:
    path = folder / "waits.html"
    path.write_bytes(flamegraph.encode(profile, hide_idle=True))
    return path


def draw(browser: Chrome, begin: tuple[float, int], end: tuple[float, int], kind: str) -> None:
    """Draw a box from a time and a length to others, with a mouse or a finger."""
    browser.execute_script("document.querySelector('.heat-plot').scrollIntoView()")
    pointer = PointerInput(kind, kind)  # type: ignore[no-untyped-call]  # selenium has no types
    actions = ActionBuilder(browser, mouse=pointer)
    for number, place in enumerate((begin, end)):
        x, y = browser.execute_script(_PLACE, *place)
        actions.pointer_action.move_to_location(round(x), round(y))  # type: ignore[no-untyped-call]  # selenium has no types
        if number == 0:
            actions.pointer_action.pointer_down()  # type: ignore[no-untyped-call]  # selenium has no types
    actions.pointer_action.pointer_up()  # type: ignore[no-untyped-call]  # selenium has no types
    actions.perform()


def part_of(page: FlamePage) -> Any:  # noqa: ANN401 - what JSON has
    return page.script("return standalonePage.state.part")


def test_a_box_shows_the_flame_graph_of_just_these_waits(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile()))
    assert page.text("#heat h2") == "Waits by time and length"
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    begin, end = START_S + LONG_FROM + 0.5, START_S + SLICES - 0.5
    draw(browser, (begin, LONG_NS), (end, 2 * LONG_NS), POINTER_MOUSE)
    page.until("standalonePage.state.part")
    assert page.names(2) == ["main.(*Cache).Get"]
    assert page.texts("#functions td button")[0] == "sync.(*Mutex).Lock"
    part = part_of(page)
    assert (part["from"], part["to"]) == (START_S + LONG_FROM, START_S + SLICES)
    assert part["least"] <= LONG_NS
    assert page.text(".heat-text").startswith("Shown below: ")
    assert f"part={part['from']}%2C{part['to']}%2C" in browser.current_url
    again = browser.current_url
    page.script("document.querySelector('.heat-plot').focus()")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until("!standalonePage.state.part")
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    browser.get("about:blank")
    browser.get(again)
    page.drawn()
    assert page.names(2) == ["main.(*Cache).Get"]


@pytest.mark.full
def test_the_sums_of_a_box_and_of_the_rest_are_the_profile(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile(unknown=2)))
    edges = json.dumps([START_S, START_S + 13, START_S + 29, START_S + SLICES])
    sums = page.script(
        f"""const {{ profile }} = standalonePage, [a, b, c, d] = {edges};
        const total = (each) => each.values.reduce(([n, v], [m, w]) => [n + m, v + w], [0, 0]);
        const lengths = [[-1, 1e5], [1e5, 1e7], [1e7, 1e12]];
        const parts = [[a, b], [b, c], [c, d]].flatMap(([from, to]) =>
          lengths.map(([least, most]) => ({{ from, to, least, most }})));
        const found = parts.map((part) => total(HeatCells.profileOf(profile, part)));
        return [total(profile), total({{ values: found }}), found.filter(([n]) => n).length];"""
    )
    assert sums[0] == sums[1]
    assert sums[2] > 4


@pytest.mark.full
def test_keys_move_select_and_show_all(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile()))
    page.script("document.querySelector('.heat-plot').focus({ focusVisible: true })")
    plot = browser.switch_to.active_element
    assert page.text(".heat-under").endswith(" 8 waits")  # the strongest cell
    plot.send_keys(Keys.ENTER)
    page.until("standalonePage.state.part")
    assert page.names(2) == ["main.(*Cache).Get"]
    assert part_of(page)["from"] > START_S + LONG_FROM
    plot.send_keys(Keys.ESCAPE, Keys.HOME)
    assert page.text(".heat-under").endswith(" 0 waits")
    plot.send_keys(Keys.END)
    plot.send_keys(Keys.SHIFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.NULL)
    page.until("standalonePage.state.part?.from === arguments[0]", START_S + SLICES - 3)
    plot.send_keys(Keys.ESCAPE)
    page.until("!standalonePage.state.part")


@pytest.mark.full
def test_a_finger_draws_a_box_on_a_phone(browser: Chrome, tmp_path: Path) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page = FlamePage(browser, written(tmp_path, sliced_profile()))
        begin, end = START_S + LONG_FROM + 0.5, START_S + SLICES - 0.5
        draw(browser, (begin, LONG_NS), (end, 2 * LONG_NS), POINTER_TOUCH)
        page.until("standalonePage.state.part")
        assert page.names(2) == ["main.(*Cache).Get"]
        assert page.script("return document.documentElement.scrollWidth") <= 390
        labels = page.script(
            "return [...document.querySelectorAll('.heat-times span')].map((e) =>"
            " { const { left, right } = e.getBoundingClientRect(); return [left, right]; })"
        )
        assert all(one[1] < other[0] for one, other in pairwise(labels))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_its_colours_are_in_order_of_brightness(
    browser: Chrome, tmp_path: Path, theme: str
) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page = FlamePage(browser, written(tmp_path, sliced_profile()))
        scale = page.script(_SCALE)
        assert scale == sorted(scale, reverse=theme == "light")
        steps = [max(a, b) / min(a, b) for a, b in pairwise(scale)]
        assert min(steps) > 1.3
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.full
def test_it_is_a_table_as_well_and_its_rows_select(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile(unknown=1)))
    page.elements(".heat-table summary")[0].click()
    rows = page.rows(".heat-table tbody tr")
    assert rows[-1][0] == "unknown length"
    count = SLICES - LONG_FROM
    assert rows[-1][3] == str(count)
    assert sum(int(row[3].replace(",", "")) for row in rows) == 9 * count + 60 * SLICES
    page.elements(".heat-table tbody tr:last-child button")[0].click()
    page.until("standalonePage.state.part?.least === -1")
    assert page.rows("#operations tbody tr")[0][2] == str(count)


@pytest.mark.full
def test_it_has_what_is_shown(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, sliced_profile()))
    assert page.script("return standalonePage.view.heat.grid.total") < 20e9
    page.tick("hide idle waits")
    assert page.script("return standalonePage.view.heat.grid.total") > 40e9
    page.choose("Sample type", "contentions")
    assert page.text(".heat-legend").startswith("less")
    assert "waits in a second" in page.text(".heat-legend")
    assert page.script("return standalonePage.view.heat.grid.total") == 61 * SLICES + 8 * 20


@pytest.mark.full
def test_estimates_and_losses_are_reported(browser: Chrome, tmp_path: Path) -> None:
    profile = sliced_profile()
    estimated = [replace(one, variance=(0.1 * one.values[1]) ** 2) for one in profile.samples]
    page = FlamePage(browser, written(tmp_path, replace(profile, samples=tuple(estimated))))
    assert "These are estimates" in page.text(".heat-notes")
    whole = page.script("return standalonePage.profile.errors")
    page.script("standalonePage.view.heat.choose({ from: 0, to: 2e9, least: 0, most: 3e5 })")
    page.until("standalonePage.state.part")
    part = page.script("return standalonePage.view.profile.errors")
    assert 0 < max(part) < max(whole)


@pytest.mark.full
def test_an_empty_box_and_odd_words_do_no_harm(browser: Chrome, tmp_path: Path) -> None:
    path = written(tmp_path, sliced_profile())
    page = FlamePage(browser, path, f"#part={START_S},{START_S + 1},1e11,1e12")
    assert page.text("#nothing") == "Nothing ended in this box."
    assert page.elements("#heat")[0].is_displayed()
    page.elements("#heat button")[0].click()
    page.until("!standalonePage.state.part")
    for words in ("1,2,3", "2,1,0,9", "a,b,c,d", "1,2,9,0"):
        page = FlamePage(browser, path, f"#part={words}")
        assert part_of(page) is None


@pytest.mark.full
def test_profiles_without_slices_have_none(browser: Chrome, tmp_path: Path) -> None:
    page = FlamePage(browser, written(tmp_path, block_profile()), f"#part={LONG}")
    assert not page.elements("#heat")[0].is_displayed()
    assert "main.answer" in page.names(2)


@pytest.mark.full
def test_the_page_goes_on_showing_the_time_of_a_box(page: FakedPage) -> None:
    page.server.profiles["block"] = sliced_profile()
    page.open("#pid=1234&kind=block")
    page.until_text("#heat", "Most in a cell")
    begin, end = START_S + LONG_FROM + 0.5, START_S + SLICES - 0.5
    draw(page.browser, (begin, LONG_NS), (end, 2 * LONG_NS), POINTER_MOUSE)
    page.until_text(".heat-text", "Shown below")
    fragment = page.fragment()
    assert (fragment["from"], fragment["to"]) == (str(START_S), str(START_S + SLICES))
    assert page.functions()[0] == "sync.(*Mutex).Lock"
    assert "main.answer" not in page.functions()
    page.browser.execute_script("page.refresh(true)")
    page.until(lambda _: f"from={START_S}" in "".join(page.server.asked), "the same time")
    page.click("#live")
    page.until(lambda p: "part" not in p.fragment(), "all of it")
    page.until(lambda p: "main.answer" in p.functions(), "all functions")
