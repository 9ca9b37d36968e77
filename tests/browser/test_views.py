"""The views of a profile besides the flame graph, in a file of its own: numbers, keys, links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

from ebpfprof.export import flamegraph
from ebpfprof.profile.model import Frame, Location, Profile, Sample
from tests.browser.flamepage import FlamePage
from tests.browser.pageserver import block_profile, stack

Show = Callable[..., FlamePage]


@pytest.fixture
def show(browser: Chrome, tmp_path: Path) -> Show:
    """Opens the file of a profile, with a fragment of its address."""

    def opened(profile: Profile, fragment: str = "", base: Profile | None = None) -> FlamePage:
        path = tmp_path / "profile.html"
        path.write_bytes(flamegraph.encode(profile, base=base, hide_idle=True))
        return FlamePage(browser, path, fragment)

    return opened


def of_stacks(*stacks: tuple[str, int]) -> Profile:
    """A profile of stacks, "root;...;leaf", with their seconds."""
    samples = [
        Sample(stack(*reversed(names.split(";"))), (1, value * 1_000_000_000))
        for names, value in stacks
    ]
    return replace(block_profile(), samples=tuple(samples))


def in_files(*calls: tuple[str, str, int]) -> tuple[Location, ...]:
    """A stack of functions in files at lines, leaf first."""
    mapping = block_profile().mappings[0]
    return tuple(
        Location(0x400001 + 16 * line, mapping, (Frame(name, file, line),))
        for name, file, line in calls
    )


RECURSIVE = of_stacks(
    ("main.a;main.walk;main.walk;main.leaf", 3), ("main.b;main.walk", 2), ("main.b;main.other", 5)
)


def frames(page: FlamePage, part: str) -> list[tuple[str, int, float]]:
    """Name, depth and value of what one of the two graphs of a sandwich shows."""
    found = page.script(f"return standalonePage.view.sandwich.{part}.frames()")
    return [(each["name"], each["depth"], each["value"] / 1e9) for each in found]


def fragment(page: FlamePage) -> dict[str, str]:
    words = parse_qs(urlsplit(page.browser.current_url).fragment)
    return {key: values[0] for key, values in words.items()}


def test_a_search_is_for_names_unless_it_is_for_paths(show: Show) -> None:
    names = of_stacks(("main.serve;main.(*Cache).Get", 8), ("main.serve;main.answer", 2))
    home = ("strings.Index", "/home/anna/.cache/go/src/strings/strings.go", 7)
    other = Sample(in_files(home, ("main.find", "/home/anna/.cache/x/find.go", 9)), (1, 10**10))
    page = show(replace(names, samples=(*names.samples, other)))
    page.search("cache")
    assert page.text("output") == "40.0 %, 8.00 s, functions: 1"
    assert page.texts("td button") == ["main.(*Cache).Get"]
    page.search("path:.Cache/")
    assert page.text("output") == "50.0 %, 10.0 s, functions: 2"
    assert sorted(page.texts("td button")) == ["main.find", "strings.Index"]
    page.search("path:")
    assert page.text("output") == "0.00 %, 0 ns, functions: 0"
    assert len(page.texts("td button")) == 5


def test_callers_and_callees_of_a_recursive_function_count_each_stack_once(show: Show) -> None:
    page = show(RECURSIVE, "#view=sandwich&root=main.walk")
    assert page.text("#sandwich h2") == "main.walk"
    assert page.text("#sandwich .quiet").startswith("flat 2.00 s (20.0 %), cum 5.00 s (50.0 %).")
    assert frames(page, "callers") == [
        ("main.walk", 0, 5),
        ("main.a", 1, 3),
        ("main.b", 1, 2),
    ]
    assert frames(page, "callees") == [
        ("main.walk", 0, 5),
        ("main.walk", 1, 3),
        ("main.leaf", 2, 3),
    ]
    # A function's own value is known below, and not that of its callers.
    lives = page.texts("#sandwich .flame-live")
    assert lives[1].endswith("5.00 s (100 %), flat 2.00 s")
    assert lives[0].endswith("5.00 s (100 %)")


def test_a_function_of_the_table_or_a_frame_opens_its_callers(show: Show) -> None:
    page = show(RECURSIVE)
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, "s")
    assert fragment(page)["view"] == "sandwich"
    assert page.text("#sandwich h2") == "main.other"
    page.browser.find_element(By.XPATH, "//td/button[.='main.leaf']").click()
    page.drawn()
    assert page.text("#sandwich h2") == fragment(page)["root"] == "main.leaf"
    assert [name for name, *_ in frames(page, "callers")] == [
        *("main.leaf", "main.walk", "main.walk", "main.a"),
    ]
    page.script("document.activeElement.blur()")
    page.view("Flame graph")
    assert page.names(1) == ["main.b", "main.a"]


def test_a_call_graph_has_functions_and_calls_with_their_values(show: Show) -> None:
    page = show(RECURSIVE, "#view=graph")
    boxes = {
        str(element.get_attribute("aria-label"))
        for element in page.elements("#calls [role=button]")
    }
    assert "main.walk flat 20.0 %, cum 50.0 %: main.walk, flat 2.00 s, cum 5.00 s" in boxes
    assert "main.b flat 0.00 %, cum 70.0 %: main.b, flat 0 ns, cum 7.00 s" in boxes
    assert len(boxes) == 5
    titles = page.script(
        "return [...document.querySelectorAll('.call title')].map((e) => e.textContent)"
    )
    assert sorted(titles) == [
        "main.a calls main.walk: 3.00 s (30.0 %)",
        "main.b calls main.other: 5.00 s (50.0 %)",
        "main.b calls main.walk: 2.00 s (20.0 %)",
        "main.walk calls main.leaf: 3.00 s (30.0 %)",
    ]
    assert page.text("#calls .quiet").startswith("All functions.")
    (box,) = page.elements("#calls [aria-label^='main.leaf']")
    box.send_keys(Keys.ENTER)
    page.drawn()
    assert page.text("#sandwich h2") == "main.leaf"


def test_a_large_call_graph_says_what_is_left_out(show: Show) -> None:
    deep = ";".join(f"main.f{n:03}" for n in range(60))
    small = [(f"main.f000;main.small{n};main.f059", 1) for n in range(3)]
    page = show(of_stacks((deep, 100), *small), "#view=graph")
    assert page.text("#calls .quiet").startswith("The 50 functions with the largest cum, of 63;")
    assert len(page.elements("#calls [role=button]")) == 50
    indirect = page.script(
        "return [...document.querySelectorAll('.call-indirect title')].map((e) => e.textContent)"
    )
    # f059 has the largest cum: what is between it and f048 is not drawn.
    assert "main.f000 calls main.f059 through others: 3.00 s (2.91 %)" in indirect


def test_lines_have_their_cost(show: Show) -> None:
    shop, lock = "/src/shop/shop.go", "/usr/lib/go/src/sync/mutex.go"
    samples = (
        Sample(in_files(("sync.Lock", lock, 45), ("main.Get", shop, 79)), (1, 6 * 10**9)),
        Sample(in_files(("main.sum", shop, 99), ("main.Get", shop, 80)), (1, 3 * 10**9)),
        Sample(in_files(("main.sum", shop, 99), ("main.sum", shop, 99)), (1, 10**9)),
    )
    page = show(replace(block_profile(), samples=samples), f"#view=source&file={shop}")
    assert page.texts("#source option") == []  # in a closed list
    shown = page.script("return [...document.querySelector('#source-file')].map((o) => o.text)")
    assert shown == [
        f"{lock}: flat 60.0 %, cum 60.0 %",
        f"{shop}: flat 40.0 %, cum 100 %",
    ]
    assert page.rows("#source tbody tr") == [
        ["79", "", "6.00 s 60.0 %", "main.Get"],
        ["80", "", "3.00 s 30.0 %", "main.Get"],
        ["99", "4.00 s 40.0 %", "4.00 s 40.0 %", "main.sum"],
    ]
    assert "does not contain" in page.text("#source .quiet")
    page.script(
        "const e = document.querySelector('#source-file');"
        "e.selectedIndex = 0; e.dispatchEvent(new Event('change'))"
    )
    page.drawn()
    assert fragment(page)["file"] == lock
    assert page.rows("#source tbody tr") == [["45", "6.00 s 60.0 %", "6.00 s 60.0 %", "sync.Lock"]]


def test_lines_have_their_text_where_the_page_holds_it(browser: Chrome, tmp_path: Path) -> None:
    shop = "/build/shop/shop.go"
    sample = Sample(in_files(("main.Get", shop, 2)), (1, 10**9))
    sources = {shop: {"path": "/src/shop.go", "changed": True, "lines": {1: "{<b>", 2: "\tGet()"}}}
    path = tmp_path / "profile.html"
    profile = replace(block_profile(), samples=(sample,))
    path.write_bytes(flamegraph.encode(profile, sources=sources))
    page = FlamePage(browser, path, "#view=source")
    assert page.rows("#source tbody tr") == [
        ["1", "", "", "{<b>"],
        ["2", "1.00 s 100 %", "1.00 s 100 %", "Get()"],
    ]
    note = page.text("#source .quiet")
    assert note.startswith("From /src/shop.go as it is now. It changed after the recording began")


def test_a_stack_is_copied_as_text(show: Show) -> None:
    page = show(block_profile())
    origin = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.browser.execute_cdp_cmd("Browser.grantPermissions", origin)
    page.script(
        "window.copied = '';"
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, "c")
    wanted = "main.answer\n\t/src/main.go:10\nmain.serve\n\t/src/main.go (several lines)\n"
    assert page.script("return window.copied") == wanted
    page.drawn()
    assert page.said == "Copied 2 frames."
    # Where the page may not do that by itself, by way of a selection.
    page.script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.script(
        "document.addEventListener('copy', () => { window.copied = getSelection().toString()"
        " || document.activeElement.value; })"
    )
    page.tick("inverted")
    page.press(Keys.HOME, Keys.ARROW_UP, Keys.ARROW_UP, "c")
    page.drawn()
    assert page.script("return window.copied").splitlines()[::2] == [
        "sync.(*Mutex).Lock",
        "main.(*Cache).Get",
    ]
    assert page.said == "Copied 2 frames."


def test_a_flame_has_its_root_at_the_bottom(show: Show) -> None:
    page = show(block_profile())
    assert page.top("main.serve") > page.top("all")
    page.choose("Layout", "flame")
    assert page.top("main.serve") < page.top("all")
    page.press(Keys.ARROW_UP)
    assert page.said.startswith("main.serve")
    page.tick("inverted")
    assert page.top("sync.(*Mutex).Lock") > page.top("all")


def test_a_link_holds_the_view(show: Show) -> None:
    page = show(block_profile())
    page.choose("Sample type", "contentions")
    page.choose("Group by", "label tenant")
    page.choose("Layout", "flame")
    page.tick("inverted")
    page.tick("hide idle waits")
    page.search("main")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    held = urlsplit(page.browser.current_url).fragment
    zoomed = page.graph("zoomPath")
    assert len(zoomed) == 1
    again = show(block_profile(), f"#{held}")
    assert again.graph("zoomPath") == zoomed
    assert again.graph("type.type") == "contentions"
    assert again.graph("options.groupBy") == "label:tenant"
    assert again.control("Layout").get_attribute("value") == "flame"
    assert again.control("inverted").is_selected()
    assert not again.control("hide idle waits").is_selected()
    assert again.control("Search").get_attribute("value") == "main"
    # What makes no sense is left out.
    odd = show(block_profile(), "#view=x&type=y&group=z&layout=w&idle=7&zoom=q&sort=v&root=u")
    assert odd.names(1) == ["main.serve"]
    assert odd.graph("type.type") == "delay"


def test_a_link_that_changes_changes_the_view(show: Show) -> None:
    page = show(block_profile())
    page.script("location.hash = 'view=sandwich&root=main.serve'")
    page.until("document.querySelector('#sandwich h2').textContent === 'main.serve'")


def test_keys_work_from_everywhere_but_fields(show: Show) -> None:
    page = show(block_profile())
    page.press("?")
    assert page.texts("dialog h2") == ["Keys"]
    assert "/" in page.texts("dialog kbd")
    page.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.texts("dialog h2") == []
    page.press("/")
    page.browser.switch_to.active_element.send_keys("?/")
    page.until("standalonePage.state.search === '?/'")
    assert page.texts("dialog h2") == []
    page.browser.find_element(By.CSS_SELECTOR, "[name=view]").send_keys(Keys.ARROW_RIGHT)
    assert fragment(page)["view"] == "sandwich"


def test_colours_have_a_legend(show: Show) -> None:
    page = show(of_stacks(("main.a;sync.(*Mutex).Lock", 1)))
    assert page.texts("#graph .flame-legend span") == ["Go", "Go's runtime and library"]
    page.search("Lock")
    assert page.texts("#graph .flame-legend span")[-1] == "found"
    assert page.texts("#sandwich .flame-legend span") == []
