"""The page and the file for everyone: axe finds no fault; all fits from phones to wide walls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from ebpfprof.export import flamegraph
from ebpfprof.profile.model import Profile, Sample
from tests.browser.flamepage import FlamePage
from tests.browser.pages import FakedPage
from tests.browser.pageserver import START_S, WINDOW_S, block_profile, stack
from tests.browser.sliced import sliced_profile
from tests.builds import in_full
from tests.foreign import axe_script

VIEWS = ("flame", "sandwich", "graph", "table", "source")
WIDTHS = (390, 1280, 2560)
_RUN = """
const done = arguments[0];
axe.run(document, { resultTypes: ["violations"] }).then(
  ({ violations }) => done(violations.map(({ id, nodes }) => [id, nodes.map((n) => n.html)])),
  (error) => done([[String(error), []]]));
"""
# axe looks no more for names that two elements have.
_TWICE = """
const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
return ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => ["id-twice", [id]]);
"""
_WIDTH = "return document.documentElement.scrollWidth"
Open = Callable[[str], None]


def large() -> Profile:
    """With long names, deep stacks, more calls than a call graph has room for, and a heatmap."""
    long = "example.com/team/service/internal/storage.(*Replica).applySnapshot"
    names = [f"main.f{n:03}" for n in range(70)]
    samples = [
        Sample(stack("sync.(*Mutex).Lock", long, *reversed(names[: 10 + n])), (n, n * 10**9))
        for n in range(1, 60)
    ]
    sliced = sliced_profile(unknown=1)
    return replace(sliced, samples=(*sliced.samples, *block_profile().samples, *samples))


@pytest.fixture(params=["page", *in_full("file")])
def show(request: pytest.FixtureRequest, browser: Chrome, tmp_path: Path) -> Open:
    """Opens either with the words of a view in its fragment, compared if they name a base."""
    if request.param == "page":
        page: FakedPage = request.getfixturevalue("page")
        page.server.profiles["block"] = large()
        page.server.base = block_profile()
        page.server.last_s = 10
        page.server.targets[0]["last"] = {"is_there": True, "says": ""}

        def opened(words: str) -> None:
            page.open(f"#pid=1234&{words}")
            page.until_text("#headline", "of waiting:")

        return opened

    def opened_file(words: str) -> None:
        path = tmp_path / "profile.html"
        base = block_profile() if "base" in words else None
        path.write_bytes(flamegraph.encode(large(), base=base, hide_idle=True))
        FlamePage(browser, path, f"#{words}")

    return opened_file


@contextmanager
def shown_at(browser: Chrome, width: int, theme: str) -> Iterator[None]:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def faults(browser: Chrome) -> list[Any]:
    browser.execute_script(axe_script())
    return list(browser.execute_async_script(_RUN))


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        *in_full((390, "light"), (1280, "dark"), (1280, "light")),
    ],
)
def test_axe_finds_no_fault(browser: Chrome, show: Open, width: int, theme: str) -> None:
    found = {}
    part = f"part={START_S + 22},{START_S + 28},10000000,100000000"
    compared = f"base-from={START_S}&base-to={START_S + WINDOW_S}"
    with shown_at(browser, width, theme):
        for view in (*VIEWS, f"flame&{compared}", "flame&search=Lock", f"flame&{part}"):
            show(f"view={view}")
            found[view] = faults(browser) + browser.execute_script(_TWICE)
        browser.execute_script("document.querySelector('dialog').showModal()")
        found["help"] = faults(browser)
    shown = [f"{view}: {name} {nodes[:2]}" for view in found for name, nodes in found[view]]
    assert shown == []


@pytest.mark.parametrize("width", [390, *in_full(*WIDTHS[1:])])
def test_every_view_fits(browser: Chrome, show: Open, width: int) -> None:
    with shown_at(browser, width, "light"):
        wide = {}
        for view in VIEWS:
            show(f"view={view}&sort=name")
            wide[view] = browser.execute_script(_WIDTH)
        assert max(wide.values()) <= width, wide


def test_a_fault_is_found(browser: Chrome) -> None:
    browser.get("data:text/html,<html lang=en><title>x</title><main><button></button></main>")
    assert "button-name" in [name for name, _ in faults(browser)]
