"""The page of the real server, on a real program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from ebpfprof.export import pprof
from tests.browser.pages import Page
from tests.browser.servedpage import serving
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target

FRAMES = "return page.view.graph.frames().map((frame) => frame.name)"
SIDES = "const sides = ['waker', 'waited'].map((side) => page.view.wakers.graphs[side]);"
NAMES = "(graph) => graph.functions().map(({ name }) => name)"
# Zooms to a frame that waits for a lock: what wakes, then the stack of that frame.
ZOOM_TO_LOCK = f"""
{SIDES}
const [woke, waited] = sides;
const {{ tree }} = waited;
const isLock = (node) => tree.nameOf(node) === "sync.(*Mutex).Lock";
const leads = (node) => isLock(node) || tree.childrenOf(node).some(leads);
let node = 0;
while (!isLock(node)) node = tree.childrenOf(node).find(leads);
waited.zoomTo(node);
return [({NAMES})(woke), waited.zoomPath];
"""
TARGETS = Path(__file__).parents[1] / "targets"


@pytest.fixture
def demo() -> Iterator[Target]:
    with Target.start(program("demo")) as target:
        yield target


@pytest.fixture
def served(chromium: Chrome, demo: Target, tmp_path: Path) -> Iterator[str]:
    with serving(chromium, [demo.pid], tmp_path) as address:
        yield address


@dataclass(frozen=True)
class Two:
    """Processes that are served together. No two tests use the same one."""

    address: str
    stays: Target
    ends: Target


@pytest.fixture(scope="module")
def two(chromium: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("served")
    with (
        Target.start(program("demo")) as stays,
        Target.start(program("demo")) as ends,
        serving(chromium, [stays.pid, ends.pid], folder) as address,
    ):
        yield Two(address, stays, ends)


@pytest.mark.full
def test_an_open_page_keeps_its_process_recorded(chromium: Chrome, two: Two) -> None:
    page, demo = Page(chromium, two.address), two.stays
    assert not has_probes(demo.pid)
    page.open(f"#pid={demo.pid}&kind=block")
    page.until_text("#headline", "main.(*PriceCache).Get, shop.go:79")
    assert has_probes(demo.pid)
    assert "Mutex.Lock" in page.text("#headline")
    assert "sync.(*Mutex).Lock" in page.functions()
    assert "idle waiting hidden" in page.text("#idle summary")
    for kind, found in (("mutex", "sync.(*Mutex).Unlock"), ("cpu", "main.signInvoice")):
        page.click(f"[data-kind={kind}]")
        page.until(lambda p, f=found: f in p.functions(), found)  # type: ignore[misc]  # mypy and defaults of a lambda
    page.click("[data-kind=block]")
    page.until_text("#headline", "Mutex.Lock")
    page.until_text("#group", "lock")  # without an option
    link = page.attribute("#download", "href")
    script = (
        "const done = arguments[1];"
        "fetch(arguments[0]).then((r) => r.arrayBuffer())"
        ".then((b) => done([...new Uint8Array(b)]))"
    )
    downloaded = pprof.decode(bytes(chromium.execute_async_script(script, link)))
    assert [each.type for each in downloaded.sample_types] == ["contentions", "delay"]
    assert len(downloaded.samples) > 5


@pytest.mark.full
def test_the_page_keeps_the_profiles_of_an_ended_process(chromium: Chrome, two: Two) -> None:
    page = Page(chromium, two.address).open(f"#pid={two.ends.pid}&kind=block")
    page.until_text("#headline", "Mutex.Lock")
    two.ends.close_input()
    two.ends.wait()
    page.until_text("#state", "ended. What was recorded until then is still here.")
    page.open(f"#pid={two.ends.pid}&kind=block")
    page.until_text("#headline", "Mutex.Lock")


@pytest.mark.full
def test_what_needs_no_restart_is_there_always(chromium: Chrome, served: str, demo: Target) -> None:
    page = Page(chromium, served).open("#kind=goroutine")
    page.until_text("#headline", "of all goroutines: ")
    page.until_text("#state", "Read from its memory at ")
    assert not has_probes(demo.pid)
    assert "main.(*InvoicePool).work" in page.text("#operations")
    page.click("[data-kind=heap]")
    page.until_text("#nothing", "keeps no memory profile: its MemProfileRate is 0.")
    page.click("[data-kind=wall]")
    page.until_text("#headline", "of the time of all goroutines: ")
    page.until(lambda page: page.one(".timeline").is_displayed(), "the timeline of wall")


@pytest.mark.full
def test_waits_are_grouped_by_lock_without_an_option(chromium: Chrome, served: str) -> None:
    page = Page(chromium, served).open("#kind=block")
    page.until_text("#headline", "Mutex.Lock")
    page.until_text("#group", "lock")
    page.open("#group=label:lock")
    page.until(
        lambda p: any("PriceCache.mu" in str(each) for each in p.browser.execute_script(FRAMES)),
        "the lock of the cache",
    )


@pytest.mark.full
def test_what_woke_those_that_waited_for_a_lock(
    chromium: Chrome, demo: Target, tmp_path: Path
) -> None:
    with serving(chromium, [demo.pid], tmp_path, "--wakers", "--profile", "block") as address:
        page = Page(chromium, address).open("#kind=wakers")
        page.until_text("#headline", "of waiting")
        assert page.one("input[value=wakers]").is_selected()
        woke, waited = chromium.execute_script(SIDES + f"return sides.map({NAMES})")
        assert "sync.(*Mutex).Lock" in waited
        assert {"sync.(*Mutex).Unlock", "runtime.chansend1"} <= set(woke)
        woke, waited = chromium.execute_script(ZOOM_TO_LOCK)
        assert waited[-1] == "sync.(*Mutex).Lock"
        assert "sync.(*Mutex).Unlock" in woke
        assert "runtime.chansend1" not in woke


@pytest.mark.full
def test_a_browser_without_the_token_gets_a_form(
    chromium: Chrome, demo: Target, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a-token-of-some-length")
    options = ("--token-file", str(tmp_path / "token"), "--profile", "goroutine")
    with serving(chromium, [demo.pid], tmp_path, *options) as address:
        page = Page(chromium, address).open()
        page.until_text("h1", "Unauthorized")
        page.one("input[name=token]").send_keys("wrong", Keys.ENTER)
        page.until(lambda p: "token=wrong" in p.browser.current_url, "the answer")
        page.one("input[name=token]").send_keys("a-token-of-some-length", Keys.ENTER)
        page.until_text("#about", "demo (")
        assert "token" not in chromium.current_url.partition("#")[0]


@pytest.mark.full
def test_the_page_shows_lines_below_the_folder_of_source(
    chromium: Chrome, demo: Target, tmp_path: Path
) -> None:
    with serving(chromium, [demo.pid], tmp_path, "--source", str(TARGETS)) as address:
        page = Page(chromium, address).open("#view=source")
        page.until(lambda p: "shop.go" in p.text("#source-file"), "the files")
        (shop,) = {each for each in page.options("#source-file") if each.endswith("/shop.go")}
        page.open(f"#view=source&file={shop}")
        page.until_text("#source code", "func (c *PriceCache) Get(")
        assert page.text("#source .quiet").startswith(f"From {TARGETS}/")
        # The Go toolchain is not below that folder.
        (mutex,) = {each for each in page.options("#source-file") if each.endswith("sync/mutex.go")}
        page.open(f"#view=source&file={mutex}")
        page.until_text("#source .quiet", f"There is no such file below {TARGETS}")
