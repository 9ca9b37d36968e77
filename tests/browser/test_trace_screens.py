"""The page of a trace on a phone and on a desk, light and dark; pauses are hatched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from ebpfprof.export.timelines import page
from tests.browser.test_trace_page import TracePage, text_at
from tests.made_up_timeline import Story

A, B = 1, 2
LONG = "example.com/inventory/internal/storage.(*Replica).apply"
SCREENS = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]
END_NS, PAUSE_NS = 1200, (400, 800)
# Shows the sums between two times at once, not when the page's timer is due.
_SUMS = """
const { texts, data, groups, isDue } = tracePage;
clearTimeout(isDue);
texts.showGroups(data, groups, ...arguments);
"""
# How many letters each text has in a line, of those that are long enough to be broken.
_LETTERS = """
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const text = node.textContent.trim(), range = document.createRange();
  if (text.length < 12 || !node.parentElement.checkVisibility()) continue;
  range.selectNodeContents(node);
  const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
  if (lines) found.push([text, text.length / lines]);
}
return found;
"""
# Of each row's part between two times: the share of its pixels that are not the background, and
# the highest contrast (as WCAG defines it) of a pixel with the background.
_PAINTED = """
const { canvas } = tracePage, [from, to] = arguments;
const scale = canvas.canvas.width / canvas.scroller.clientWidth;
canvas.drawNow();
const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
copy.canvas.width = canvas.canvas.width;
copy.canvas.height = canvas.canvas.height;
copy.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel");
copy.fillRect(0, 0, copy.canvas.width, copy.canvas.height);
const back = copy.getImageData(0, 0, 1, 1).data;
copy.drawImage(canvas.canvas, 0, 0);
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) =>
  0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255) + 0.05;
return canvas.rows.map((row, index) => {
  const x = canvas.xOf(from) + 2, width = canvas.xOf(to) - 2 - x, top = canvas.middleOf(index) - 8;
  const { data } = copy.getImageData(x * scale, top * scale, width * scale, 16 * scale);
  let painted = 0, most = 1;
  for (let i = 0; i < data.length; i += 4) {
    const pixel = data.slice(i, i + 3), ratio = light(pixel) / light(back);
    if (pixel.some((colour, j) => Math.abs(colour - back[j]) > 8)) painted += 1;
    most = Math.max(most, ratio, 1 / ratio);
  }
  return [painted / (data.length / 4), most];
});
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of two goroutines, with a pause in the middle."""
    story = Story({A: LONG, B: "main.holds"})
    story.park(100, A, "sync.Mutex.Lock", "sync.(*Mutex).Lock", LONG)
    story.wake(370, A, B, run_ns=380)
    story.pause(*PAUSE_NS)
    story.park(850, A, "chan receive", LONG)
    story.wake(900, A, B, run_ns=950)
    timeline = replace(story.timeline(END_NS), command="inventory-service", comments=("slices: 2",))
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    path.write_bytes(page.encode(timeline))
    return path


@contextmanager
def screen(browser: Chrome, path: Path, width: int, theme: str = "light") -> Iterator[TracePage]:
    """The page on a screen of `width` CSS pixels, a phone's if it is a narrow one."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    try:
        yield TracePage(browser, path)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def touch(browser: Chrome, kind: str, *points: tuple[float, float]) -> None:
    fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
    browser.execute_cdp_cmd(
        "Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": fingers}
    )


def shown_ns(shown: TracePage) -> Any:  # noqa: ANN401 - of JavaScript
    return shown.run("return [tracePage.from, tracePage.to]")


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark")])
def test_no_text_is_squeezed_and_the_page_fits(
    browser: Chrome, path: Path, width: int, theme: str
) -> None:
    with screen(browser, path, width, theme) as shown:
        shown.run("tracePage.select(tracePage.data.byGoid.get(1), 1)")
        shown.run(_SUMS, 0, END_NS)
        texts = shown.run(_LETTERS)
        assert [text for text, letters in texts if letters < 8] == []
        assert any(LONG in text for text, _ in texts)
        for box in ("html", ".scroll:has(#groups)", "#waits .scroll:has(table)"):
            wide, room = shown.run(
                "const box = document.querySelector(arguments[0]);"
                "return [box.scrollWidth, box.clientWidth]",
                box,
            )
            assert wide <= room, box


def test_on_a_phone_names_stand_above_lanes_that_have_the_whole_width(
    browser: Chrome, path: Path
) -> None:
    with screen(browser, path, 390) as shown:
        drawn = shown.run(
            "const { canvas } = tracePage, found = [], { context } = canvas;"
            "const fill = context.fillText;"
            "context.fillText = (text, x, y) => {"
            "found.push([text, x + context.measureText(text).width, y]); };"
            "canvas.drawNow(); context.fillText = fill;"
            "return { found, width: canvas.width, room: canvas.scroller.clientWidth }"
        )
        assert drawn["width"] >= 0.95 * drawn["room"]
        [(text, right, y)] = [each for each in drawn["found"] if each[0].startswith("G1 ")]
        assert len(text) >= 40
        assert right <= drawn["room"]
        row = shown.rows().index(f"G1 {LONG}")
        assert y < shown.run("return tracePage.canvas.middleOf(arguments[0])", row) - 8
        shown.click(A, 10)  # at the left edge
        assert shown.text("#span h2").startswith(f"G1 {LONG}: running")


def test_fingers_move_zoom_and_choose(browser: Chrome, path: Path) -> None:
    with screen(browser, path, 390) as shown:
        left, top = shown.run(
            "tracePage.canvas.scroller.scrollIntoView();"
            "const box = tracePage.canvas.canvas.getBoundingClientRect();"
            "return [box.left, box.top]"
        )
        y = top + shown.run("return tracePage.canvas.middleOf(0)")
        touch(browser, "Start", (left + 100, y), (left + 200, y))
        for by in (20, 40, 60):
            touch(browser, "Move", (left + 100 - by, y), (left + 200 + by, y))
        touch(browser, "End")
        begin, end = shown_ns(shown)
        assert end - begin == pytest.approx(END_NS * 100 / 220, rel=0.05)
        touch(browser, "Start", (left + 200, y))
        for by in (20, 40, 60):
            touch(browser, "Move", (left + 200 - by, y))
        touch(browser, "End")
        later, _ = shown_ns(shown)
        assert later - begin == pytest.approx((end - begin) * 60 / 366, rel=0.1)
        assert shown.text("#span").startswith("Click a goroutine's time")  # none was chosen by it
        touch(browser, "Start", (left + 20, y))
        touch(browser, "End")
        assert shown.text("#span h2").startswith("G")


def test_the_graph_of_waits_begins_at_who_waits_longest(browser: Chrome, tmp_path: Path) -> None:
    """On a phone it is wider than the screen."""
    story = Story({A: LONG, B: "main.holds"} | {goid: f"main.worker{goid}" for goid in range(3, 9)})
    story.park(100, A, "sync.Mutex.Lock", "sync.(*Mutex).Lock", LONG)
    for goid in range(3, 9):
        story.park(200 + goid, goid, "chan receive", "main.receive")
        story.wake(500 + goid, goid, B, run_ns=510 + goid)
    story.wake(1000, A, B, run_ns=1050)
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(story.timeline(END_NS)))
    with screen(browser, path, 390) as shown:
        left, right, begin, end = shown.run(
            "const name = (box) => box.querySelector('.wait-name').textContent;"
            "const box = [...document.querySelectorAll('.wait-box')]"
            ".find((each) => name(each).includes('apply')).getBoundingClientRect();"
            "const graph = document.querySelector('.wait-graph').getBoundingClientRect();"
            "return [graph.left, graph.right, box.left, box.right]"
        )
        assert left <= begin < end <= right


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_a_pause_is_hatched_over_all_lanes(
    browser: Chrome, path: Path, width: int, theme: str
) -> None:
    with screen(browser, path, width, theme) as shown:
        rows = shown.run(_PAINTED, *PAUSE_NS)
        assert len(rows) >= 2
        for painted, contrast in rows:
            assert 0.05 < painted < 0.5  # lines, no area: a wait fills its lane
            assert contrast >= 2.5
        lane = shown.rows().index(f"G1 {LONG}")
        assert shown.run(_PAINTED, 150, 350)[lane][0] > 0.9


def test_a_pause_has_a_legend_and_texts(browser: Chrome, path: Path) -> None:
    with screen(browser, path, 1280) as shown:
        assert shown.text("#pause") == "not recorded"
        assert shown.text("#when").endswith("; not recorded: 400 ns")
        reason = "The recording paused here to limit its overhead. What goroutines did is unknown."
        assert shown.run("return document.getElementById('pause').title") == reason
        assert text_at(shown, f"G1 {LONG}", 600) == f"not recorded for 400 ns. {reason}"
        shown.run(_SUMS, 200, 800)
        assert shown.text("#unrecorded") == (
            "600 ns shown, not recorded: 400 ns (66.7 %). The totals exclude that."
        )
        shown.run(_SUMS, 0, 300)
        assert shown.text("#unrecorded") == ""


def test_without_a_pause_there_is_not_a_word_of_one(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_bytes(page.encode(Story({A: "main.asks"}).timeline(END_NS)))
    with screen(browser, path, 1280) as shown:
        assert shown.browser.find_elements("css selector", "#pause") == []
        assert "not recorded" not in shown.text("body")
