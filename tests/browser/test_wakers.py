"""Who woke whom: two flame graphs, one line between them; a click on one side, its partners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By

from ebpfprof.export import flamegraph
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.wakers import NO_GOROUTINE, WOKEN_BY
from ebpfprof.profilers.waits.kinds import WAKERS
from tests.browser.flamepage import FlamePage
from tests.browser.pageserver import block_profile, stack
from tests.browser.test_everyone import faults, shown_at
from tests.builds import in_full

SECOND = 1_000_000_000
# A place in a frame of one of the two graphs, as the window sees it.
PLACE = """
const graph = standalonePage.view.wakers.graphs[arguments[0]];
graph.scroller.scrollIntoView({ block: "center" });
const { x, depth } = graph.frames().find(({ name }) => name === arguments[1]);
const box = graph.scroller.getBoundingClientRect();
return [box.left + x + 2, box.top + graph.drawing.top(depth) - graph.scroller.scrollTop + 3];
"""


def pair(waited: str, woke: str, count: int, seconds: int) -> Sample:
    """A sample of stacks, "root;...;leaf"."""
    waiter, waker = (stack(*reversed(names.split(";"))) for names in (waited, woke))
    return Sample((*waiter, WOKEN_BY, *waker), (count, seconds * SECOND))


PAIRS = (
    pair("main.worker;runtime.chanrecv1", "main.produce;runtime.chansend1", 10, 6),
    pair("main.worker;runtime.chanrecv1", "main.stop;runtime.closechan", 1, 1),
    pair("main.report;sync.(*Mutex).Lock", "main.produce;sync.(*Mutex).Unlock", 40, 3),
)
TIMER = pair("main.tick;runtime.chanrecv1", "time.sendTime", 5, 2)


def wakers_profile() -> Profile:
    timer = replace(TIMER, locations=(*TIMER.locations, NO_GOROUTINE))
    base = block_profile()
    return WAKERS.make_profile(
        (*PAIRS, timer), base.mappings, time_ns=base.time_ns, duration_ns=base.duration_ns
    )


Show = Callable[..., FlamePage]


@pytest.fixture
def show(browser: Chrome, tmp_path: Path) -> Show:
    """Opens the file of a profile, with a fragment of its address."""

    def opened(profile: Profile, fragment: str = "") -> FlamePage:
        path = tmp_path / "profile.html"
        path.write_bytes(flamegraph.encode(profile))
        return FlamePage(browser, path, fragment)

    return opened


def frames(page: FlamePage, side: str) -> dict[str, float]:
    """What one side shows: the values of its frames in seconds, by name."""
    found = page.script(f"return standalonePage.view.wakers.graphs.{side}.frames()")
    return {each["name"]: each["value"] / SECOND for each in found}


def click(page: FlamePage, side: str, name: str) -> None:
    x, y = page.script(PLACE, side, name)
    actions = ActionBuilder(page.browser)
    actions.pointer_action.move_to_location(round(x), round(y)).click()  # type: ignore[no-untyped-call]  # selenium has no types
    actions.perform()
    page.drawn()


def zoomed(page: FlamePage) -> dict[str, list[str]]:
    words = parse_qs(urlsplit(page.browser.current_url).fragment)
    return {side: words[side] for side in ("waker", "waited") if side in words}


def test_both_sides_begin_with_all_at_the_line_between_them(show: Show) -> None:
    page = show(wakers_profile())
    assert page.control("Who woke whom").is_selected()
    assert frames(page, "waker") == {
        **{"all": 12, "main.produce": 9, "[runtime: no goroutine]": 2, "main.stop": 1},
        **{"runtime.chansend1": 6, "sync.(*Mutex).Unlock": 3, "time.sendTime": 2},
        "runtime.closechan": 1,
    }
    waited = {"all": 12, "main.worker": 7, "main.report": 3, "main.tick": 2}
    assert frames(page, "waited") == {**waited, "runtime.chanrecv1": 2, "sync.(*Mutex).Lock": 3}
    place = "return standalonePage.view.wakers.graphs[arguments[0]].canvas.getBoundingClientRect()"
    above, below = (page.script(place, side) for side in ("waker", "waited"))
    between = page.script("return document.querySelector('.between').getBoundingClientRect()")
    assert above["bottom"] <= between["top"] < between["bottom"] <= below["top"]
    # Both have the root at the line: the wakers' is their lowest row.
    for side, y in (("waker", above["bottom"] - 5), ("waited", below["top"] + 5)):
        drawing = f"standalonePage.view.wakers.graphs.{side}.drawing"
        assert page.script(f"return {drawing}.nodeAt({{clientX: 300, clientY: {y}}})") == 0


def test_a_click_on_what_waited_leaves_what_woke_it(show: Show) -> None:
    page = show(wakers_profile())
    click(page, "waited", "main.worker")
    woke = {"main.produce": 6, "runtime.chansend1": 6, "main.stop": 1, "runtime.closechan": 1}
    assert frames(page, "waker") == {"all": 7, **woke}
    assert page.text("#wakers .quiet") == "main.worker, woken by anything: 7.00 s (58.3 %)"
    click(page, "waker", "main.stop")
    assert frames(page, "waited") == {"all": 1, "main.worker": 1, "runtime.chanrecv1": 1}
    assert page.text("#wakers .quiet") == "main.worker, woken by main.stop: 1.00 s (8.33 %)"
    assert zoomed(page) == {"waker": ["main.stop"], "waited": ["main.worker"]}


def test_a_click_on_what_woke_leaves_what_it_woke_by_count_too(show: Show) -> None:
    page = show(wakers_profile(), "#type=contentions")
    click(page, "waker", "main.produce")
    found = frames(page, "waited")
    counts = {name: round(value * SECOND) for name, value in found.items()}
    assert counts == {
        **{"all": 50, "main.report": 40, "sync.(*Mutex).Lock": 40, "main.worker": 10},
        "runtime.chanrecv1": 10,
    }
    # Escape leaves the zoom, and the other side has all again.
    page.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.drawn()
    assert round(frames(page, "waited")["all"] * SECOND) == 56
    assert zoomed(page) == {}


def test_a_link_keeps_both_sides(show: Show) -> None:
    page = show(wakers_profile(), "#waker=main.produce&waited=main.report")
    assert page.text("#wakers .quiet") == "main.report, woken by main.produce: 3.00 s (25.0 %)"
    assert frames(page, "waker")["main.produce"] == 3
    page.view("Flame graph")
    assert page.names(3)  # the same stacks, from the wakers on
    page.view("Who woke whom")
    assert page.text("#wakers .quiet") == "main.report, woken by main.produce: 3.00 s (25.0 %)"


def test_keys_move_on_one_side_and_a_search_marks_both(show: Show) -> None:
    page = show(wakers_profile())
    above, below = page.browser.find_elements(By.CSS_SELECTOR, "#wakers canvas")
    above.send_keys(Keys.ARROW_UP, Keys.ENTER)
    page.drawn()
    assert zoomed(page) == {"waker": ["main.produce"]}
    below.send_keys(Keys.ARROW_DOWN)
    page.drawn()
    assert page.texts("#wakers .flame-live")[1].startswith("main.worker, /")
    above.send_keys(Keys.HOME)
    page.search("main.produce")
    assert page.text("output").startswith("75.0 %")
    found = page.script("return standalonePage.view.wakers.graphs.waker.frames()")
    assert [each["name"] for each in found if each["matched"]] == ["main.produce"]


def test_a_profile_without_pairs_has_no_such_view(show: Show) -> None:
    page = show(block_profile(), "#view=wakers")
    assert page.control("Flame graph").is_selected()
    assert "Who woke whom" not in page.text(".views")


def test_a_phones_width_has_both_sides(show: Show) -> None:
    page = show(wakers_profile())
    page.browser.set_window_size(500, 900)
    try:
        page.drawn()
        click(page, "waited", "main.report")
        assert frames(page, "waker")["main.produce"] == 3
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        page.browser.set_window_size(1280, 1000)


@pytest.mark.parametrize(("theme", "width"), [("light", 390), *in_full(("dark", 1280))])
def test_axe_finds_no_fault(show: Show, theme: str, width: int) -> None:
    page = show(wakers_profile())
    with shown_at(page.browser, width, theme):
        click(page, "waited", "main.worker")
        assert faults(page.browser) == []
