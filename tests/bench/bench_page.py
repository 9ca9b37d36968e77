"""How quick the page and the flame graph file are with a large profile, in headless Chromium.

    python -m tests.bench.bench_page [STACKS]

A block profile of STACKS (20,000) stacks, served to the page, and written as an HTML file. "first
paint" is from the navigation until the flame graph is drawn, with all answers of the server; an
interaction is from the event until the next frame is on the screen. "cpu" is what the thread of the
page used of the processor meanwhile: on a busy machine it tells more than the clock.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from selenium import webdriver

from ebpfprof.export import flamegraph, json_profile
from tests.bench.bench_formats import large_profile
from tests.browser.chromium import started
from tests.browser.pageserver import page_site

STACKS: Final = 20_000
OPENINGS: Final = 3
TURNS: Final = 7

# Until what the script changed is painted: the task after the next frame.
_PAINTED: Final = """
const done = arguments[arguments.length - 1], begun = performance.now();
%s;
requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
"""
_OPENED: Final = """
const done = arguments[0], seen = (graph) => graph && !graph.isEmpty && graph.canvas.width > 300;
const look = () => seen(%s)
  ? requestAnimationFrame(() => setTimeout(() => done(performance.now())))
  : setTimeout(look, 2);
look();
"""
_CHANGE: Final = "const e = %s; e.checked = !e.checked; e.dispatchEvent(new Event('change'))"
_SEARCH: Final = "graph.search(graph.query === 'Serve' ? 'Lock' : 'Serve')"
_ZOOM: Final = (
    "const at = graph.frames().filter((f) => f.depth > 3 && f.width > 9);"
    "graph.zoomTo(at[at.length >> 1].node)"
)
_PICK: Final = (
    "const e = %s; e.selectedIndex = 1 - e.selectedIndex; e.dispatchEvent(new Event('change'))"
)
_MOVE: Final = (
    "const b = graph.canvas.getBoundingClientRect();"
    "graph.canvas.dispatchEvent(new PointerEvent('pointermove',"
    " {clientX: b.left + b.width * Math.random(), clientY: b.top + 9 + 190 * Math.random()}))"
)
_KEY: Final = "graph.canvas.dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))"
_BASE: Final = "page.base = page.base ? null : page.profile; page.draw()"


def graph_interactions() -> dict[str, str]:
    """What both have."""
    return {
        "point at a frame": _MOVE,
        "move with a key": _KEY % "ArrowDown",
        "zoom in": _ZOOM,
        "zoom out": "graph.zoomOut()",
        "search": _SEARCH,
    }


VIEWS: Final = {
    f"view {name}": f"standalonePage.view.onchange({{view: '{name}'}})"
    for name in ("sandwich", "graph", "table", "source", "flame")
}
PAGE: Final = {
    **graph_interactions(),
    "search and filter the table": "page.set({search: page.state.search === 'main' ? '' : 'main'})",
    "invert": _CHANGE % "document.getElementById('inverted')",
    "hide idle": _CHANGE % "document.getElementById('hide-idle')",
    "group by operation": _PICK % "document.getElementById('group')",
    "another value": _PICK % "document.getElementById('value')",
    "sort the table": "page.set({sort: page.state.sort === 'mean' ? 'flat' : 'mean'})",
    "difference": _BASE,
}
FILE: Final = {
    **graph_interactions(),
    "invert": _CHANGE % "standalonePage.view.controls.inverted",
    "group by operation": _PICK % "standalonePage.view.controls.group",
    "another value": _PICK % "standalonePage.view.controls.type",
    "sort the table": (
        "const { view, state } = standalonePage;"
        "view.onchange({sort: state.sort === 'cum' ? 'flat' : 'cum'})"
    ),
    **VIEWS,
}


def measure(
    browser: webdriver.Chrome, url: str, name: str, graph: str, interactions: dict[str, str]
) -> None:
    """Print the rows of one of them."""

    def opened() -> float:
        browser.get(url)
        return float(browser.execute_async_script(_OPENED % graph))

    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    row(browser, name, "first paint", OPENINGS, opened, first="about:blank")
    for what, script in interactions.items():
        code = _PAINTED % f"const graph = {graph}; {{ {script} }}"
        row(browser, name, what, TURNS, lambda code=code: browser.execute_async_script(code))  # type: ignore[misc]  # mypy and defaults of a lambda


def row(
    browser: webdriver.Chrome,
    name: str,
    what: str,
    turns: int,
    take: Callable[[], float],
    first: str = "",
) -> None:
    """Take it so often, from the page `first` if that is given, and print a line of the table."""
    times_ms, cpu_ms = [], []
    for _ in range(turns):
        if first:
            browser.get(first)
        before_ms = main_thread_ms(browser)
        times_ms.append(take())
        cpu_ms.append(main_thread_ms(browser) - before_ms)
    figures = (median(times_ms), max(times_ms), median(cpu_ms))
    print(f"{name:8} {what:28}" + "".join(f"{figure:8.0f}" for figure in figures), flush=True)


def main_thread_ms(browser: webdriver.Chrome) -> float:
    """What the thread of the page has used."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1e3 * float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def main() -> None:
    """Print the table."""
    stacks = int(sys.argv[1]) if len(sys.argv) > 1 else STACKS
    profile = large_profile(stacks)
    file_bytes = flamegraph.encode(profile)
    json_bytes = json_profile.encode(profile)
    print(
        f"{stacks} stacks, {len(json_bytes) / 1e6:.1f} MB of JSON, "
        f"{len(file_bytes) / 1e6:.1f} MB of HTML; milliseconds"
    )
    print(f"{'':8} {'':28}{'median':>8}{'most':>8}{'cpu':>8}")
    with tempfile.TemporaryDirectory() as folder, started() as browser, page_site() as site:
        site.answers.bodies["block"] = json_bytes
        measure(browser, site.url, "page", "page.view.graph", PAGE)
        path = Path(folder) / "profile.html"
        path.write_bytes(file_bytes)
        measure(browser, path.as_uri(), "file", "standalonePage.graph", FILE)


if __name__ == "__main__":
    main()
