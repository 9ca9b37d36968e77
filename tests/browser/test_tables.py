"""The tables of operations, locks and processes, what waits in progress are, and loading states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from ebpfprof.export import flamegraph
from ebpfprof.profile.evidence import UNKNOWN_RELEASE
from ebpfprof.profile.model import Label, Lock, Profile, Sample
from tests.browser.flamepage import FlamePage
from tests.browser.pages import FakedPage
from tests.browser.pageserver import block_profile, described, stack

GET = stack("sync.(*Mutex).Lock", "main.(*Cache).Get", "main.serve", line=79)


def rows(page: FakedPage | FlamePage, table: str) -> list[str]:
    """The texts of its rows, without line breaks."""
    return [" ".join(text.split()) for text in page.texts(f"#{table} tbody tr")]


def test_operations_are_listed_as_in_a_terminal(page: FakedPage) -> None:
    page.open()
    page.until_text("#operations", "Mutex.Lock")
    headings = ["Delay", "Share", "Count", "Mean", "Operation", "Called from"]
    assert page.texts("#operations th") == headings
    first, second, *_ = rows(page, "operations")
    assert first == "8.00 s 80.0 % 100 80.0 ms Mutex.Lock main.(*Cache).Get main.(*Cache.go:79"
    assert second.startswith("2.00 s 20.0 % 10 200 ms chan receive main.answer")
    assert "main.worker" not in page.text("#operations")
    page.click("#hide-idle")
    page.until_text("#operations", "main.worker")


def test_a_rough_estimate_is_not_ranked(page: FakedPage) -> None:
    rough = Sample(stack("runtime.chansend1", "main.feed"), (1, 30_000_000_000), (), 9e20)
    sure = Sample(GET, (100, 8_000_000_000), (), 1e18)
    page.server.profiles["block"] = replace(block_profile(), samples=(rough, sure))
    page.open()
    page.until_text("#operations", "1 more row was seen too few times to rank.")
    (only,) = rows(page, "operations")
    assert only.startswith("8.00 s \u00b113 % 100 % ")
    page.until_text("#headline", "100 % of waiting: ")
    assert "Mutex.Lock in main.(*Cache).Get" in page.text("#headline")


def test_few_recorded_releases_have_no_table(page: FakedPage) -> None:
    lock = Label("lock", "main.Cache.mu")
    unknown = Sample((UNKNOWN_RELEASE,), (0, 7_000_000_000), (lock,))
    known = Sample(stack("sync.(*Mutex).Unlock", "main.(*Cache).Put"), (4, 1_000_000_000), (lock,))
    page.server.profiles["mutex"] = replace(block_profile(), kind="mutex", samples=(unknown, known))
    page.open("#kind=mutex")
    page.until_text("#operations", "--max-overhead 0 records each release.")
    assert not page.one("#operations .ranked").is_displayed()
    assert page.text("#headline") == ""
    assert rows(page, "locks") == ["8.00 s 100 % - - main.Cache.mu"]


def test_locks_are_listed_with_the_places_that_waited_for_them(page: FakedPage) -> None:
    page.open()
    page.until_text("#locks", "main.Cache.mu")
    assert rows(page, "locks") == [
        "8.00 s 100 % 100 80.0 ms main.Cache.mu 8.00 s waited for by main.(*Cache).Get, "
        "main.(*Cache.go:79: Mutex.Lock"
    ]
    page.click("[data-kind=cpu]")
    page.until_text("#headline", "of CPU time")
    assert not page.one("#locks").is_displayed()
    assert not page.one("#operations").is_displayed()


def test_waits_in_progress_have_neither_a_count_nor_a_mean(page: FakedPage) -> None:
    in_progress = Sample(GET, (0, 126_360_000_000_000))
    page.server.profiles["block"] = replace(block_profile(), samples=(in_progress,))
    page.open()
    page.until_text("#headline", "(35.1 h, waits in progress)")
    assert rows(page, "operations")[0].startswith("35.1 h 100 % - - Mutex.Lock")
    assert rows(page, "functions")[0] == "35.1 h 100 % 35.1 h 100 % - - sync.(*Mutex).Lock"


OF_A_PROFILE = (
    *("#functions", "#operations", "#locks", "#graph", "#wakers", "#sandwich", "#search"),
    *("#value", "#idle", "#download", "#notes"),
)


def test_without_a_profile_there_is_not_an_empty_control(page: FakedPage) -> None:
    page.server.answers_profiles.clear()
    page.open()
    page.until_text("#state", "Recording.")
    for empty in OF_A_PROFILE:
        assert not page.one(empty).is_displayed(), empty
    page.server.answers_profiles.set()
    page.until_text("#headline", "Mutex.Lock")


def test_nothing_of_another_kind_stays_while_one_is_loaded(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.server.answers_profiles.clear()
    page.click("[data-kind=cpu]")
    page.until_text("#nothing", "Loading")
    assert page.attribute("[data-kind=cpu]", "aria-selected") == "true"
    assert page.text("#headline") == ""
    for empty in OF_A_PROFILE:
        assert not page.one(empty).is_displayed(), empty
    page.server.answers_profiles.set()
    page.until_text("#headline", "of CPU time")
    assert page.one("#search").is_displayed()


def test_what_is_read_from_memory_has_no_timeline(page: FakedPage) -> None:
    page.server.targets[0] |= {"kinds": ["block", "goroutine"], "read": ["goroutine"]}
    page.server.profiles["goroutine"] = replace(block_profile(), kind="goroutine")
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    assert page.one(".timeline").is_displayed()
    page.click("[data-kind=goroutine]")
    page.until_text("#state", "Read from its memory at ")
    page.until_text("#headline", "of all goroutines: ")
    assert not page.one(".timeline").is_displayed()
    assert not [each for each in page.server.asked if "timeline?kind=goroutine" in each]


def test_processes_are_listed_with_their_load_and_findings(page: FakedPage) -> None:
    stuck = [{"kind": "deadlock", "title": "Deadlock: two."}, {"kind": "leak", "title": "Perhaps."}]
    page.server.targets += [
        described(7, "stuck", findings=[*stuck, stuck[0]], cpu=None, goroutines=12_345, not_read=1),
        described(8, "idle", state="idle", says="Not recording."),
    ]
    page.open()
    page.until_text("#processes", "stuck")
    headings = ["Name", "PID", "CPU", "Memory", "Goroutines", "Findings"]
    assert page.texts("#processes th")[:6] == headings
    assert "Not recording." not in page.text("#processes")
    cells = page.texts("#processes tr[data-pid='7'] td")
    assert cells[1:6] == ["7", "-", "64.0 MiB", "12,345+", "2 deadlocks, 1 leak"]
    assert page.texts("#processes tr[data-pid='1234'] td")[2:6] == ["50.0 %", "64.0 MiB", "42", ""]
    page.click("#processes th.notes button")
    assert page.texts("#processes tbody .name")[0] == "stuck"


def test_the_timeline_is_in_the_tab_order(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    page.browser.execute_script("document.activeElement.blur()")
    seen: list[str] = []
    while len(seen) < 30 and "timeline" not in seen:
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(page.browser.execute_script("return document.activeElement.className"))
    assert "timeline" in seen
    page.browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert page.attribute(".timeline", "aria-valuenow") == "38"
    assert "goroutines waiting" in page.attribute(".timeline", "aria-valuetext")


@pytest.mark.parametrize("value", [33_300_000, 123_456_789_000_000])
def test_labels_of_the_timeline_have_room(page: FakedPage, value: int) -> None:
    """A label that is cut is another number: 33.3 and 3.3."""
    page.open()
    draw = """
    const [value, done] = arguments, box = document.createElement("div");
    box.style.width = "600px";
    document.body.append(box);
    const timeline = new Timeline(box, { onpick() {} });
    const unit = "nanoseconds", atATime = "goroutines waiting";
    timeline.show([{ start_s: 1e9, end_s: 1e9 + 1, value }], { unit, atATime });
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const { axes, ctx } = timeline._plot;
      ctx.font = axes[1].font[0];
      const widest = Math.max(...axes[1]._values.map((text) => ctx.measureText(text).width));
      done([axes[1]._values, widest / devicePixelRatio, axes[1]._size]);
    }));
    """
    labels, widest, room = page.browser.execute_async_script(draw, value)
    assert len(labels) >= 2
    assert widest + 10 <= room


def test_a_file_has_a_headline_and_its_locks(browser: Chrome, tmp_path: Path) -> None:
    profile = block_profile()
    samples = (replace(profile.samples[0], values=(1000, 80_000_000_000)), *profile.samples[1:])
    path = saved(tmp_path, replace(profile, samples=samples))
    page = FlamePage(browser, path)
    (headline,) = page.texts("#headline")
    assert headline.startswith("98 %")
    assert "of waiting: Mutex.Lock in main.(*Cache).Get" in headline
    headings = ["Delay", "Share", "Count", "Mean", "Held", "Lock"]
    assert page.texts("#locks th") == headings
    assert rows(page, "locks") == [
        "1.00 s 100 % 4 250 ms 20.0 ms main.Cache.mu (sync.Mutex at 0xc000) "
        "1.00 s released by main.(*Cache).Put, main.(*Cache.go:99: Mutex.Unlock "
        "900 ms waited for by main.(*Cache).Get, main.(*Cache.go:79: Mutex.Lock"
    ]


def saved(folder: Path, profile: Profile) -> Path:
    lock = Lock(
        address=0xC000,
        type="sync.Mutex",
        name="main.Cache.mu",
        waits=(Sample(GET, (3, 900_000_000)),),
        releases=(Sample(stack("sync.(*Mutex).Unlock", "main.(*Cache).Put", line=99), (4, 10**9)),),
        holds=5,
        held_ns=100_000_000,
    )
    path = folder / "waits.html"
    path.write_bytes(flamegraph.encode(profile, hide_idle=True, locks=[lock]))
    return path
