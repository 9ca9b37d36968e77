"""The HTML files that `report`, `diff` and `attach` write, opened from the disk in a browser."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.browser.flamepage import FlamePage
from tests.browser.pageserver import HOSTILE, block_profile, cpu_profile
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target


def ebpfprof(*arguments: str | Path, folder: Path) -> None:
    """Run the command, which must succeed."""
    command = [sys.executable, "-m", "ebpfprof", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def saved(folder: Path, name: str, profile: Profile) -> Path:
    path = folder / f"{name}.pb.gz"
    path.write_bytes(pprof.encode(profile))
    return path


def test_a_report_is_a_flame_graph(browser: Chrome, tmp_path: Path) -> None:
    profile = saved(tmp_path, "waits", block_profile())
    path = tmp_path / "waits.html"
    ebpfprof("report", profile, "--hide-idle", "-f", "html", "-o", path, folder=tmp_path)
    page = FlamePage(browser, path)
    assert page.text("h1") == "Waits of shop"
    assert "for 5.00 s" in page.text(".about")
    assert page.names(2) == ["main.(*Cache).Get", "main.answer"]
    assert page.control("hide idle waits").is_selected()
    page.click("main.answer")
    page.press(Keys.ESCAPE)
    page.search("answer")
    assert page.text("output").startswith("20.0 %")
    page.search("")
    headings = page.texts("#functions th")
    assert headings == ["Flat", "Cum", "Count", "Mean", "Function"]
    page.choose("Group by", "lock")
    page.tick("inverted")
    assert page.names(1) == ["main.Cache.mu", "(no lock)"]
    assert page.names(2) == ["sync.(*Mutex).Lock", "runtime.chanrecv1"]
    assert page.texts("td button")[0] == "sync.(*Mutex).Lock"
    assert HOSTILE in page.texts("td button")
    assert page.script("return document.images.length + document.links.length") == 0


def test_a_click_on_a_function_searches_it_and_columns_sort(
    browser: Chrome, tmp_path: Path
) -> None:
    path = tmp_path / "cpu.html"
    ebpfprof(
        "report",
        saved(tmp_path, "cpu", cpu_profile()),
        *("-f", "html", "--sample-type", "samples", "-o", path),
        folder=tmp_path,
    )
    page = FlamePage(browser, path)
    assert page.texts("td button") == ["main.hash", "main.parse", "main.serve"]
    assert page.texts("tbody tr:first-child td")[:2] == ["30 75.0 %", "30 75.0 %"]
    page.browser.find_element("xpath", "//td/button[.='main.parse']").click()
    assert page.text("output") == "25.0 %, 10, functions: 1"
    assert page.texts("td button") == ["main.parse"]
    page.search("")
    page.browser.find_element("xpath", "//th/button[.='Cum']").click()
    assert page.texts("td button")[0] == "main.serve"
    assert page.script("return document.activeElement.textContent") == "Cum"
    page.browser.find_element("xpath", "//th/button[.='Function']").send_keys(Keys.ENTER)
    assert page.texts("td button") == ["main.hash", "main.parse", "main.serve"]
    # Nothing of it can be idle.
    assert page.texts("details:not(.options)") == []
    assert not page.control("hide idle waits").is_displayed()


@pytest.mark.full
def test_a_difference_shows_changes(browser: Chrome, tmp_path: Path) -> None:
    before = saved(tmp_path, "before", block_profile())
    after = saved(tmp_path, "after", block_profile(scale=3))
    path = tmp_path / "changes.html"
    ebpfprof("diff", before, after, "-f", "html", "-o", path, folder=tmp_path)
    page = FlamePage(browser, path)
    assert page.text("h1") == "Waits of shop, compared"
    red, _, blue = page.colour("main.(*Cache).Get")
    assert red > blue + 10
    red, green, blue = page.colour("main.answer")
    assert max(red, green, blue) - min(red, green, blue) < 3
    page.click("main.(*Cache).Get")
    assert "24.0 s (92.3 %), base 8.00 s, change +16.0 s (+200 %)" in page.said
    page.press(Keys.HOME)
    page.browser.find_element("xpath", "//th/button[.='Change of flat']").click()
    page.drawn()
    first = page.texts("tbody tr:first-child td")
    assert (first[6], first[4]) == ("sync.(*Mutex).Lock", "+16.0 s")


def test_a_normalized_base_is_not_scaled_again(browser: Chrome, tmp_path: Path) -> None:
    profile = block_profile()
    before = saved(tmp_path, "before", replace(profile, duration_ns=2 * profile.duration_ns))
    after = saved(tmp_path, "after", profile)
    path = tmp_path / "changes.html"
    ebpfprof(
        "diff",
        before,
        after,
        "--normalize",
        "--show-idle",
        "-f",
        "html",
        "-o",
        path,
        folder=tmp_path,
    )
    page = FlamePage(browser, path)
    page.press(Keys.HOME)
    assert page.said == "all, 40.0 s (100 %), base 40.0 s, change 0 ns (0.00 %)"
    assert "scaled" not in page.text(".flame-legend")


def test_a_file_of_an_empty_profile_opens(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    empty = saved(tmp_path, "empty", replace(block_profile(), samples=()))
    ebpfprof("report", empty, "-f", "html", "-o", path, folder=tmp_path)
    page = FlamePage(browser, path)
    reason = "no goroutine waited and was woken."
    assert page.text("#nothing") == f"Nothing was recorded in this time: {reason}"
    assert not page.control("inverted").is_displayed()  # there is nothing to invert, or to search
    assert not page.control("Search").is_displayed()
    assert page.texts("td") == []


@pytest.mark.full
def test_a_recording_is_a_flame_graph_at_once(browser: Chrome, tmp_path: Path) -> None:
    with Target.start(program("demo")) as demo:
        ebpfprof(
            *("attach", "--pid", str(demo.pid), "--profile", "mutex", "--lock-labels"),
            *("--duration", "2", "-f", "html", "-o", "locks.html"),
            folder=tmp_path,
        )
        assert not has_probes(demo.pid)
    path = tmp_path / "locks.html"
    page = FlamePage(browser, path)
    assert page.text("h1").endswith(" of demo")
    page.search("PriceCache")
    assert page.frame("main.(*PriceCache).Get")["matched"]
    page.choose("Group by", "lock")
    page.tick("inverted")
    assert any(name.startswith("main.PriceCache.mu") for name in page.names(1))
    assert "sync.(*Mutex).Unlock" in page.names(2)
