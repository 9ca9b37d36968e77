"""The flame graph in a real browser: what is drawn, and what mouse, finger and keyboard do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from ebpfprof.console.text import printable
from ebpfprof.export import flamegraph
from ebpfprof.profile.model import Label, Profile, Sample
from tests.browser.flamepage import FlamePage
from tests.browser.pageserver import HOSTILE, block_profile, stack
from tests.builds import in_full
from tests.unit.export.profiles import NASTY, nasty

Show = Callable[..., FlamePage]


@pytest.fixture
def show(browser: Chrome, tmp_path: Path) -> Show:
    """Opens a flame graph of a profile."""

    def opened(
        profile: Profile, base: Profile | None = None, *, hide_idle: bool = True
    ) -> FlamePage:
        path = tmp_path / "profile.html"
        path.write_bytes(flamegraph.encode(profile, base=base, hide_idle=hide_idle))
        return FlamePage(browser, path)

    return opened


@pytest.fixture
def page(show: Show) -> FlamePage:
    return show(block_profile())


def of_stacks(*stacks: tuple[str, int], seconds: int = 5) -> Profile:
    """A profile of stacks, "root;...;leaf", with their seconds."""
    samples = [
        Sample(stack(*reversed(names.split(";"))), (1, value * 1_000_000_000))
        for names, value in stacks
    ]
    profile = replace(block_profile(), samples=tuple(samples))
    return replace(profile, duration_ns=seconds * 1_000_000_000)


@contextmanager
def phone(browser: Chrome, width: int) -> Iterator[None]:
    metrics = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_frames_are_as_wide_as_their_shares(page: FlamePage) -> None:
    whole = page.frame("all")
    assert whole["width"] == pytest.approx(page.canvas.size["width"], abs=1)
    assert page.names(1) == ["main.serve"]
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    get, answer = page.frame("main.(*Cache).Get"), page.frame("main.answer")
    assert get["width"] == pytest.approx(whole["width"] * 8000 / 10_001)
    assert answer["x"] == pytest.approx(get["x"] + get["width"])
    lock = page.frame("sync.(*Mutex).Lock")
    assert (lock["value"], lock["flat"]) == (8e9, 8e9)
    assert (get["value"], get["flat"], get["depth"]) == (8e9, 0, 2)
    assert page.top("main.serve") > page.top("all")
    assert page.colour("main.answer") != page.colour("all")


def test_a_click_zooms_in_and_buttons_lead_out(page: FlamePage) -> None:
    page.click("main.answer")
    assert page.names(2) == ["main.answer"]
    assert page.frame("main.answer")["width"] == page.frame("all")["width"]
    assert page.texts(".flame-path button") == ["all", "main.serve", "main.answer"]
    page.browser.find_elements("css selector", ".flame-path button")[1].click()
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    page.click("main.answer")
    page.browser.find_elements("css selector", ".flame-path button")[0].click()
    page.drawn()
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    assert page.texts(".flame-path button") == []


def test_the_keyboard_reaches_every_frame(page: FlamePage) -> None:
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert page.said.startswith("main.answer, /src/main.go:10, 2.00 s (20.0 %), flat 0 ns")
    page.press(Keys.ENTER)
    assert page.names(2) == ["main.answer"]
    page.press(Keys.ARROW_DOWN)
    assert page.said.startswith("runtime.chanrecv1")
    page.press(Keys.ENTER)
    assert page.texts(".flame-path button")[-1] == "runtime.chanrecv1"
    page.press(Keys.ESCAPE)
    assert page.texts(".flame-path button")[-1] == "main.answer"
    page.press(Keys.HOME)
    assert page.said.startswith("all, 10.0 s (100 %)")
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    page.press(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert page.said.startswith("all")


def test_a_search_marks_matches_and_shows_their_share(page: FlamePage) -> None:
    before = page.colour("main.(*Cache).Get"), page.colour("main.answer")
    page.search("CACHE")
    assert page.text("output") == "80.0 %, 8.00 s, functions: 1"
    assert [frame["name"] for frame in page.frames() if frame["matched"]] == ["main.(*Cache).Get"]
    purple = page.colour("main.(*Cache).Get")
    assert purple != before[0]
    assert purple[2] > purple[1]
    assert page.colour("main.answer") != purple
    page.search("main")
    assert page.text("output").startswith("100 %, 10.0 s")
    page.search("nothing like it")
    assert page.text("output") == "0.00 %, 0 ns, functions: 0"
    page.search(" ")
    assert page.text("output") == ""
    assert (page.colour("main.(*Cache).Get"), page.colour("main.answer")) == before


@pytest.mark.full
def test_a_search_counts_each_shown_frame_once(show: Show) -> None:
    page = show(of_stacks(("main.a;main.a;main.b;main.a", 3), ("main.c", 1)))
    page.search("main.a")
    assert page.text("output") == "75.0 %, 3.00 s, functions: 1"
    rows = page.texts("tbody tr")
    assert "3.00 s 75.0 % 3.00 s 75.0 % 1 3.00 s main.a" in [" ".join(row.split()) for row in rows]
    # The worker's wait is idle; names of groups are no functions.
    page = show(block_profile())
    page.choose("Group by", "label tenant")
    page.search("blue")
    assert page.text("output") == "80.0 %, 8.00 s, functions: 0"
    page.choose("Group by", "nothing")
    assert page.text("output") == "0.00 %, 0 ns, functions: 0"
    page.search("worker")
    assert page.text("output") == "0.00 %, 0 ns, functions: 0"
    assert "main.worker" not in page.texts("td button")
    page.tick("hide idle waits")
    assert page.text("output") == "75.0 %, 30.0 s, functions: 1"
    assert "main.worker" in page.texts("td button")


def test_an_inverted_graph_grows_from_the_waiting_functions(page: FlamePage) -> None:
    page.tick("inverted")
    assert page.names(1) == ["sync.(*Mutex).Lock", "runtime.chanrecv1"]
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    lock = page.frame("sync.(*Mutex).Lock")
    assert (lock["value"], lock["flat"]) == (8e9, 8e9)
    assert page.frame("main.(*Cache).Get")["flat"] == 0
    assert page.top("main.(*Cache).Get") < page.top("sync.(*Mutex).Lock") < page.top("all")
    page.press(Keys.ARROW_UP, Keys.ARROW_UP)
    assert page.said.startswith("main.(*Cache).Get")
    page.press(Keys.ENTER)
    assert page.names(2) == ["main.(*Cache).Get"]
    page.tick("inverted")
    assert page.names(1) == ["main.serve"]


def test_a_difference_is_coloured_and_described(show: Show) -> None:
    before = of_stacks(("main.grew", 2), ("main.same", 4), ("main.shrank", 4), ("main.gone", 1))
    after = of_stacks(("main.grew", 4), ("main.same", 4), ("main.shrank", 2), ("main.new", 1))
    page = show(after, before)
    red, _, blue = page.colour("main.grew")
    assert red > blue + 10
    red, _, blue = page.colour("main.shrank")
    assert blue > red + 10
    red, green, blue = page.colour("main.same")
    assert max(red, green, blue) - min(red, green, blue) < 3
    for name, of in (("main.new", "main.grew"), ("main.gone", "main.shrank")):
        strong, weak = (page.colour(each) for each in (name, of))
        assert max(strong) - min(strong) > max(weak) - min(weak)
    page.click("main.grew")
    assert "4.00 s (36.4 %), base 2.00 s, change +2.00 s (+100 %)" in page.said
    page.press(Keys.HOME)
    page.click("main.gone")
    assert "0 ns (0.00 %), base 1.00 s, change -1.00 s (-100 %)" in page.said
    page.press(Keys.HOME)
    page.click("main.new")
    assert "not in base, change +1.00 s," in page.said
    page.search("gone")
    assert page.text("output") == "0.00 %, 0 ns, functions: 1"
    assert page.texts(".flame-legend span")[:2] == ["only in the base", "shrank"]


def test_a_base_of_another_length_is_scaled(show: Show) -> None:
    page = show(of_stacks(("main.a", 4)), of_stacks(("main.a", 8), seconds=10))
    page.press(Keys.ARROW_DOWN)
    assert "4.00 s (100 %), base 4.00 s, change 0 ns" in page.said
    assert "The base is scaled by 0.50" in page.text(".flame-legend")


def test_a_base_that_shows_a_moment_is_not_scaled(show: Show) -> None:
    later, base = of_stacks(("main.a", 4)), of_stacks(("main.a", 8), seconds=10)
    page = show(replace(later, kind="open"), replace(base, kind="open"))
    page.press(Keys.ARROW_DOWN)
    assert "4.00 s (100 %), base 8.00 s, change -4.00 s (-50.0 %)" in page.said
    assert "scaled" not in page.text(".flame-legend")


def test_stacks_are_grouped_by_wait_reason_and_label(page: FlamePage) -> None:
    assert page.choices("Sample type") == ["contentions", "delay"]
    assert page.choices("Group by") == ["nothing", "operation", "lock", "label tenant"]
    page.choose("Group by", "operation")
    assert page.names(1) == ["Mutex.Lock", "chan receive"]
    assert page.names(2) == ["main.serve", "main.serve"]
    page.choose("Group by", "label tenant")
    assert page.names(1) == ["blue", "green"]
    page.choose("Sample type", "contentions")
    # Of 111 waits one has no such label.
    assert page.names(1) == ["blue", "green", "(no tenant)"]
    page.choose("Group by", "lock")
    assert page.names(1) == ["main.Cache.mu", "(no lock)"]
    assert page.frame("main.Cache.mu")["value"] == 100


def test_numbers_as_labels_are_groups(show: Show) -> None:
    profile = of_stacks(("main.a", 1), ("main.b", 3))
    sizes = (Label("bytes", 2048, "bytes"),), (Label("bytes", 7, "bytes"),)
    pairs = zip(profile.samples, sizes, strict=True)
    page = show(replace(profile, samples=tuple(replace(s, labels=each) for s, each in pairs)))
    page.choose("Group by", "label bytes")
    assert page.names(1) == ["7 B", "2.00 KiB"]


def test_idle_waits_are_hidden_or_shown_with_their_reasons(page: FlamePage) -> None:
    assert page.frame("all")["value"] == 10_001_000_000
    assert page.text("details summary").endswith("30.0 s of idle waiting hidden")
    page.tick("hide idle waits")
    assert page.frame("all")["value"] == 40_001_000_000
    assert page.names(1) == ["main.worker", "main.serve"]
    assert page.text("details summary").endswith("30.0 s of idle waiting shown")
    page.browser.find_element("xpath", "//summary[contains(., 'idle')]").click()
    assert ": 30.0 s" in page.text("details dt")


def test_the_frame_under_the_pointer_has_a_tooltip(page: FlamePage) -> None:
    page.point_at("main.(*Cache).Get")
    assert page.text(".flame-tip").splitlines() == [
        "main.(*Cache).Get",
        "/src/main.(*Cache.go:79",
        "8.00 s (80.0 %), flat 0 ns",
    ]
    box = page.script("return document.querySelector('.flame-tip').getBoundingClientRect().right")
    assert box <= page.script("return innerWidth")
    page.point_at("main.answer")
    assert page.text(".flame-tip").startswith("main.answer")


def test_zoom_search_and_selection_stay_on_the_same_frames(page: FlamePage) -> None:
    page.click("main.answer")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.search("answer")
    page.choose("Sample type", "contentions")
    assert page.texts(".flame-path button")[-1] == "runtime.chanrecv1"
    assert page.said.startswith("runtime.chanrecv1")
    assert page.text("output") == "9.01 %, 10, functions: 1"
    # So does the way back.
    page.press(Keys.ESCAPE)
    assert page.texts(".flame-path button")[-1] == "main.answer"
    page.press(Keys.ESCAPE)
    assert page.texts(".flame-path button") == []


def test_names_are_never_markup_nor_escape_sequences(show: Show) -> None:
    page = show(of_stacks((HOSTILE, 3), ("main.a", 1)))
    page.click(HOSTILE)
    assert page.said.startswith(HOSTILE)
    assert HOSTILE in page.texts("td button")
    page.point_at("all")
    page.point_at(HOSTILE)
    assert page.text(".flame-tip").startswith(HOSTILE)
    assert page.texts(".flame-path button") == ["all", "script><b>name"]
    page = show(nasty(), nasty())
    clean = printable(NASTY.replace("\udcff", "\\udcff"))
    page.choose("Group by", f"label {clean}")
    shown = page.script("return document.querySelector('main').textContent + document.title")
    assert page.names(2) == [clean]
    assert "\\x1b]0;owned\\x07" in shown
    assert not set("\x1b\x07\u202e\u2028") & set(shown)
    elements = "return document.querySelectorAll('main img, main b, main script').length"
    assert page.script(elements) == 0
    assert page.script("return document.scripts.length") == 3


def test_deep_stacks_scroll(show: Show) -> None:
    names = [*(f"main.f{depth}" for depth in range(127)), "sync.f127"]
    page = show(of_stacks((";".join(names), 1)))
    assert page.names(128) == ["sync.f127"]
    assert page.graph("scroller.scrollHeight") > 128 * 15
    assert page.canvas.size["height"] < 1000
    colour = page.colour("main.f3")
    page.press(*[Keys.ARROW_DOWN] * 128)
    assert page.said.startswith("sync.f127")
    page.press(Keys.ARROW_UP)  # without the line around what is selected
    assert page.colour("main.f125") == colour
    assert page.colour("sync.f127") != colour
    assert page.graph("scroller.scrollTop") > 1000
    page.point_at("sync.f127")
    assert page.text(".flame-tip").startswith("sync.f127")
    page.click("main.f120")
    buttons = ["all", "main.f117", "main.f118", "main.f119", "main.f120"]
    assert page.texts(".flame-path button") == buttons
    # Inverted, it begins at its lower end.
    page.press(Keys.HOME)
    page.tick("inverted")
    bottom = "scrollHeight - standalonePage.graph.scroller.clientHeight"
    assert page.graph("scroller.scrollTop") == pytest.approx(
        page.graph(f"scroller.{bottom}"), abs=2
    )


def test_an_empty_graph_has_a_message(show: Show) -> None:
    empty = show(replace(block_profile(), samples=()))
    reason = "no goroutine waited and was woken."
    assert empty.text("#nothing") == f"Nothing was recorded in this time: {reason}"
    assert empty.texts("canvas") == []
    worker = block_profile().samples[2]
    idle = show(replace(block_profile(), samples=(worker,)))
    assert idle.text(".flame-message") == "Only idle waits: 30.0 s hidden."
    idle.tick("hide idle waits")
    assert idle.names(1) == ["main.worker"]
    assert idle.texts(".flame-message") == []


@pytest.mark.parametrize("width", [320, *in_full(375)])
def test_the_graph_fits_a_phone_and_a_finger(show: Show, width: int) -> None:
    profile = block_profile()
    samples = (*profile.samples, Sample(stack(HOSTILE, "main." + "long" * 40), (5, 5_000_000_000)))
    browser = show(profile).browser
    with phone(browser, width):
        page = show(replace(profile, samples=samples), profile)
        assert page.script("return document.documentElement.scrollWidth") <= width
        # The first tap shows what it is, the next zooms in.
        page.tap("main.answer")
        assert page.said.startswith("main.answer")
        assert page.texts(".flame-path button") == []
        page.tap("main.answer")
        assert page.texts(".flame-path button")[-1] == "main.answer"
        assert page.script("return document.documentElement.scrollWidth") <= width


def test_the_graph_is_dark_with_the_system_or_on_request(page: FlamePage) -> None:
    def lightness() -> int:
        return sum(page.colour("all"))

    light = lightness()
    page.browser.find_element("xpath", "//button[.='Dark or light']").click()
    dark = lightness()
    assert dark < light
    page.browser.find_element("xpath", "//button[.='Dark or light']").click()
    assert lightness() == light
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page.script("delete document.documentElement.dataset.theme")
        assert lightness() == dark
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
