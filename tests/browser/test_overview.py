"""What stands around a profile, in a real browser: processes, their states, the timeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.webdriver import Keys

from tests.browser.pages import FakedPage, forget_errors
from tests.browser.pageserver import START_S, WINDOW_S, WINDOWS, described
from tests.builds import in_full

WIDTHS = (390, 1280, 2560)
HUNDREDS = [
    described(
        1000 + number,
        f"service-{number}",
        user="root" if number % 2 else "www-data",
        container=f"{number:064x}" if number % 3 else None,
        command=f"/srv/service-{number} -config /etc/service-{number}/production.yml -verbose",
    )
    for number in range(300)
]


@contextmanager
def as_wide_as(page: FakedPage, width: int) -> Iterator[None]:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def names(page: FakedPage) -> list[str]:
    return page.texts("#processes tbody .name")


def test_processes_are_listed_with_their_state_or_a_reason(page: FakedPage) -> None:
    old = described(
        7, "old", supported=False, kinds=[], why_not="Go 1.16 is too old", recording=False
    )
    ended = "Process 8 ended. What was recorded until then is still here."
    page.server.targets += [
        old | {"state": "idle", "says": "Go 1.16 is too old"},
        described(8, "gone", container="0123456789abcdef", ended="process 8 ended")
        | {"state": "ended", "says": ended},
    ]
    page.server.state = "ended", ended
    page.open()
    page.until_text("#processes", "Go 1.16 is too old")
    assert names(page) == ["gone", "old", "shop"]
    assert page.texts("#processes tbody .name a") == ["gone", "shop"]
    assert page.texts("#processes tbody .container") == ["0123456789ab", "", ""]
    page.click("#processes tbody tr[data-pid='8'] a")
    page.until_text("#state", ended)
    page.until_text("#headline", "Mutex.Lock")
    assert page.fragment()["pid"] == "8"
    assert not page.one("#processes").is_displayed()
    page.click("#all")
    page.until(lambda p: p.one("#processes").is_displayed(), "all processes")


def test_hundreds_of_processes_can_be_searched_and_sorted(page: FakedPage) -> None:
    page.server.targets = HUNDREDS
    page.open()
    page.until(lambda p: len(names(page)) == 300, "300 rows")
    assert names(page)[:3] == ["service-0", "service-1", "service-2"]
    assert page.text("#processes [data-count]") == "300"
    page.click("#processes th.pid button")
    page.click("#processes th.pid button")
    assert page.attribute("#processes th.pid", "aria-sort") == "descending"
    assert names(page)[0] == "service-299"
    page.one("#find").send_keys("WWW-data")
    page.until_text("#processes [data-count]", "150 of 300")
    assert all(int(name.split("-")[1]) % 2 == 0 for name in names(page))
    page.one("#find").clear()
    page.one("#find").send_keys("service-299")
    page.until(lambda p: names(page) == ["service-299"], "the one")
    # A new answer of the server leaves the search and the focus alone.
    page.one("#processes tbody a").send_keys(Keys.NULL)
    page.browser.execute_script("document.querySelector('#processes tbody a').focus()")
    page.server.targets = [each | {"goroutines": 4711} for each in HUNDREDS]
    page.browser.execute_script("page.refresh(false)")
    page.until_text("#processes", "4,711")
    assert names(page) == ["service-299"]
    assert page.browser.switch_to.active_element.text == "service-299"
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.until_text("#about", "service-299 (1299)")


@pytest.mark.parametrize("width", [WIDTHS[0], *in_full(*WIDTHS[1:])])
def test_the_overview_fits_every_screen(page: FakedPage, width: int) -> None:
    page.server.targets = HUNDREDS
    with as_wide_as(page, width):
        page.open()
        page.until(lambda p: len(names(page)) == 300, "300 rows")
        root = "document.documentElement"
        assert page.browser.execute_script(f"return {root}.scrollWidth") <= width
        scroll = "const e = document.querySelector('#processes .scroll'); return "
        assert page.browser.execute_script(f"{scroll} e.scrollWidth <= e.clientWidth")
        page.open("#pid=1007&kind=block")
        page.until_text("#headline", "Mutex.Lock")
        page.until(lambda p: bool(p.texts(".timeline canvas")), "the timeline")
        assert page.browser.execute_script(f"return {root}.scrollWidth") <= width


def test_one_state_is_reported_in_one_sentence(page: FakedPage) -> None:
    """When a recording begins there is no second message that says something else."""
    page.server.targets[0] |= {"state": "idle", "says": "Not recording.", "recording": False}
    page.server.no_profile = "Process 1234 was not recorded in that time (yet)."
    page.server.has_windows = False
    for state, says in (
        ("reading", "Reading the program's symbols."),
        ("attaching", "Attaching to the process."),
        ("recording", "Recording: the first numbers come in a few seconds."),
    ):
        page.server.state = state, says
        page.open()
        page.until_text("#state", says)
        page.until(lambda p: any("/profile?" in each for each in p.server.asked), "a profile")  # type: ignore[attr-defined]  # Page has no server; this one has
        messages = [page.text(f"#{name}") for name in ("status", "nothing", "error", "welcome")]
        assert [*messages, page.text(".timeline-text")] == [""] * 5
        assert page.attribute("#state", "data-state") == state
        page.server.asked.clear()
    # Without another click, and soon: the next answers say what is in progress.
    page.server.state, page.server.no_profile = ("recording", "Recording."), ""
    page.server.has_windows = True
    page.until_text("#headline", "Mutex.Lock")
    assert page.text("#state") == "Recording."
    forget_errors(page)


def test_steps_are_drawn_to_scale(page: FakedPage) -> None:
    """One step lasts ten times as long as the next, and before it nothing was recorded."""
    lengths = [(0, 10), (40, 50), (50, 60), (60, 160), (160, 170)]
    page.server.windows = [
        {"start_s": START_S + start, "end_s": START_S + end, "count": 1, "value": 1_000_000}
        for start, end in lengths
    ]
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    places = page.browser.execute_script(
        "return [0, 1, 2, 3, 4].map((n) => page.timeline.placeOf(n))"
    )
    second = (places[4][1] - places[0][0]) / 170
    for (left, right), (start, end) in zip(places, lengths, strict=True):
        assert left == pytest.approx(places[0][0] + start * second, abs=0.5)
        assert right - left == pytest.approx((end - start) * second, abs=0.5)


def test_ticks_of_the_timeline_are_round_in_their_unit(page: FakedPage) -> None:
    page.open()
    draw = """
    const [unit, value] = arguments, box = document.createElement("div");
    box.style.width = "600px";
    document.body.append(box);
    const timeline = new Timeline(box, { onpick() {} });
    timeline.show([{ start_s: 1e9, end_s: 1e9 + 10, value }], { unit, isMoment: true });
    requestAnimationFrame(() => {
      arguments[2](timeline._plot.axes[1]._values);
      box.remove();
    });
    """
    of_bytes = page.browser.execute_async_script(draw, "bytes", 50_000_000)
    assert of_bytes[0] == "0"
    assert len(of_bytes) >= 2
    assert all(re.fullmatch(r"\d+(\.0+)? MiB", text) for text in of_bytes[1:]), of_bytes
    of_time = page.browser.execute_async_script(draw, "nanoseconds", 50_000_000)
    assert len(of_time) >= 2
    assert all(re.fullmatch(r"[125]0(\.0+)? ms", text) for text in of_time[1:]), of_time


def test_the_timeline_has_an_axis_and_a_legend(page: FakedPage) -> None:
    page.open()
    page.until_text("#headline", "Mutex.Lock")
    assert [text.strip() for text in page.texts(".timeline-legend span")] == ["goroutines waiting"]
    assert page.text(".timeline-text").endswith(": 0.01 goroutines waiting")  # 40 ms in 5 s
    times = page.browser.execute_script(
        "return page.timeline._plot.axes[0]._values.concat(page.timeline._plot.axes[1]._values)"
    )
    assert any(str(time).count(":") == 2 for time in times)
    assert "0.005" in times  # 1 to 40 ms in steps of 5 s
    picked = f"&from={START_S}&to={START_S + WINDOW_S}"
    base = f"&base-from={START_S + WINDOW_S}&base-to={START_S + 2 * WINDOW_S}"
    page.open(f"#pid=1234{picked}{base}")
    page.until_text(".timeline-legend", "compared with")
    assert "shown below" in page.text(".timeline-legend")


def test_the_mark_of_what_was_picked_is_where_it_was(page: FakedPage) -> None:
    """The colour of the canvas behind the first and the last step."""
    page.open(f"#pid=1234&from={START_S}&to={START_S + WINDOW_S}")
    page.until_text(".timeline-legend", "shown below")
    script = """
    const { timeline } = page;
    const { ctx, bbox } = timeline._plot;
    const ratio = ctx.canvas.width / ctx.canvas.clientWidth;
    const left = ctx.canvas.getBoundingClientRect().left;
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [ctx.canvas.width, ctx.canvas.height];
    const read = copy.getContext("2d", { willReadFrequently: true });
    read.drawImage(ctx.canvas, 0, 0);
    return arguments[0].map((index) => {
      const [from, to] = timeline.placeOf(index);
      return [...read.getImageData(((from + to) / 2 - left) * ratio, bbox.top + 3, 1, 1).data];
    });
    """
    done = """
    const done = arguments[0];
    requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
    """
    page.browser.execute_async_script(done)
    first, second = page.browser.execute_script(script, [0, 1])
    assert first[3] == 255
    assert second[3] == 0
    assert WINDOWS > 2
