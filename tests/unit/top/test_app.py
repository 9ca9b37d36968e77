"""The live table of `ebpfprof top`: keys, mouse, pages, windows of any size."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.top.rows import Moment
from ebpfprof.top.state import TopView
from tests.unit.top.apps import Live, after, live
from tests.unit.top.moments import LOCK, RECEIVE, SHOP, S, calling, moment, view, wait

ROW = {"Get": 0, "refill": 1, "Print": 2}


def later(at: Moment, seconds: int) -> Moment:
    return replace(at, uptime_ns=at.uptime_ns + seconds * S)


def order(text: str) -> list[str]:
    """The rows from the top down."""
    found = re.findall(r"(?:Mutex\.Lock|chan receive) .*?(Get|refill|Print|worker)", text)
    return [str(name) for name in found]


def test_keys_sort_reverse_and_show_idle_waits() -> None:
    async def use(on: Live) -> None:
        for key, expected in (
            ("c", ["Print", "Get", "refill"]),
            ("m", ["refill", "Get", "Print"]),
            ("n", ["Print", "Get", "refill"]),
            ("r", ["refill", "Get", "Print"]),
        ):
            assert order(await on.press(key)) == expected, key
        await on.press("r", "d")
        assert order(await on.press("i")) == ["Get", "worker", "refill", "Print"]
        assert "idle, hidden" not in await on.text()

    live(view(), use)


def test_a_click_on_a_heading_sorts_and_a_second_one_reverses() -> None:
    async def use(on: Live) -> None:
        lines = (await on.text()).splitlines()
        (y,) = (at for at, line in enumerate(lines) if "Count/s" in line)
        x = lines[y].index("Count/s")
        await on.pilot.click(offset=(x, y))
        assert order(await on.text()) == ["Print", "Get", "refill"]
        await on.pilot.click(offset=(x, y))
        assert order(await on.text()) == ["refill", "Get", "Print"]
        await on.pilot.click(offset=(lines[y].index("Share"), y))
        assert "not sorted by this column" in await on.text()

    live(view(), use)


def test_tabs_keys_and_clicks_switch_tables() -> None:
    async def use(on: Live) -> None:
        first = (await on.text()).splitlines()[0]
        assert first.split() == ["b", "block", "u", "mutex"]
        await on.pilot.click(offset=(first.index("mutex"), 0))
        assert "ebpfprof top  mutex" in await on.text()
        assert "ebpfprof top  block" in await on.press("tab")
        assert "ebpfprof top  mutex" in await on.press("shift+tab")
        assert "ebpfprof top  block" in await on.press("b")
        assert "start again with --profile cpu" in await on.press("x")

    live(view(), use)


def test_a_search_applies_while_it_is_typed() -> None:
    async def use(on: Live) -> None:
        assert order(await on.press("slash", *"Get")) == ["Get"]
        assert "1 of 3 rows match Get" in await on.text()
        text = await on.press("left_parenthesis")
        assert "This is no regular expression" in text
        assert "1 of 3 rows match Get" in text
        assert order(await on.press("backspace", "enter")) == ["Get"]
        assert order(await on.press("slash", "escape")) == ["Get", "refill", "Print"]
        assert "a regular expression" not in await on.text()
        assert "No row matches." in await on.press("slash", *"qwp", "enter")

    live(view(), use)


def test_a_slash_is_text_in_a_search() -> None:
    async def use(on: Live) -> None:
        text = await on.press("slash", "a", "slash", "b")
        assert "0 of 3 rows match a/b" in text

    live(view(), use)


def test_enter_shows_stacks_and_how_the_row_went() -> None:
    async def use(on: Live) -> None:
        await on.press("down")
        for number in range(3):
            on.thread.found.append(later(moment(), 2 * number))
            while on.thread.found:
                await on.pilot.pause(0.01)
        text = await on.press("enter")
        assert text.startswith("Mutex.Lock main.refill shop.go:166\n")
        assert "Delay/s in the last 4.00 s: 500 ms to 500 ms" in text
        assert "500 ms/s (100.0%)  3.5/s  since the start: 1.00 s, 7 times" in text
        assert "user=anna  bytes=512bytes" in text
        assert "    main.refill (inlined)  /src/shop.go:166" in text.splitlines()
        assert "Print" not in text
        assert order(await on.press("escape")) == ["Get", "refill", "Print"]

    live(view(moment()), use)


def test_the_stacks_of_a_row_have_errors_and_what_was_lost() -> None:
    at = moment([replace(SHOP[0], variance=(0.25 * 3 * S) ** 2)], notes=["names are missing"])
    text = after(view(at), "enter")
    assert "1.5 s/s \N{PLUS-MINUS SIGN}25% (" in text
    assert "since the start: 3.0 s, 100 times" in text
    assert "names are missing" in text


def test_stacks_of_an_idle_row_have_the_reason() -> None:
    text = after(view(hide_idle=False), "down", "enter")
    assert re.search(r"^idle, .+: .+", text, re.MULTILINE)


def test_a_removed_row_says_so() -> None:
    async def use(on: Live) -> None:
        await on.press("enter")
        assert "This row has no values any more" in await on.show(moment(()))

    live(view(), use)


def test_stacks_scroll() -> None:
    deep = [calling(i, f"main.f{i}") for i in range(90)]

    async def use(on: Live) -> None:
        await on.press("enter")
        assert "main.f89 " in await on.press("G")
        assert "main.f2 " in await on.press("g")
        assert "main.f2 " in await on.press("j")

    live(view(moment([wait(1, S, LOCK, *deep)])), use, 100, 20)


def test_the_chosen_row_stays_chosen_wherever_it_goes() -> None:
    async def use(on: Live) -> None:
        await on.press("down", "c")
        await on.show(moment([SHOP[0], replace(SHOP[1], values=(7, 9 * S)), *SHOP[2:]]))
        assert (await on.press("enter")).startswith("Mutex.Lock main.refill")
        await on.press("escape", "escape")
        assert (await on.press("enter")).startswith("chan receive main.(*InvoicePool).Print")

    live(view(), use)


def test_the_chosen_row_is_always_visible() -> None:
    many = [wait(1, 1000 - i, LOCK, calling(i, f"main.f{i}")) for i in range(100)]
    text = after(view(moment(many)), *["j"] * 60)
    assert "main.f60 " in text


def test_a_second_click_on_a_row_shows_its_stacks() -> None:
    async def use(on: Live) -> None:
        lines = (await on.text()).splitlines()
        (y,) = (at for at, line in enumerate(lines) if "main.refill" in line)
        await on.pilot.click(offset=(20, y))
        await on.pilot.click(offset=(20, y))
        assert (await on.text()).startswith("Mutex.Lock main.refill")

    live(view(), use)


def test_fewer_and_more_rows_replace_each_other() -> None:
    async def use(on: Live) -> None:
        assert order(await on.show(moment(SHOP[:1]))) == ["Get"]
        assert order(await on.show(moment(SHOP))) == ["Get", "refill", "Print"]
        assert "No goroutine waited and was woken." in await on.show(moment(()))

    live(view(), use)


def test_a_pause_keeps_the_moment() -> None:
    async def use(on: Live) -> None:
        assert "PAUSED" in await on.press("p")
        on.thread.found.append(moment(SHOP[:1]))
        while on.thread.found:
            await on.pilot.pause(0.01)
        assert order(await on.text()) == ["Get", "refill", "Print"]
        assert "PAUSED" not in await on.press("space")

    live(view(), use)


def test_files_are_written_and_named() -> None:
    async def use(on: Live) -> None:
        assert "Writing..." in await on.press("w")
        assert on.thread.written == 1
        on.thread.message = "Written: a.pb.gz"
        while on.thread.message:
            await on.pilot.pause(0.01)
        assert "Written: a.pb.gz" in await on.text()

    live(view(), use)


def test_help_names_every_key() -> None:
    text = after(view(), "question_mark", height=50)
    for key in "dcmnr/ipbuxlwqtjgG":
        assert re.search(rf"(^|  |, ){re.escape(key)}[ ,]", text, re.MULTILINE), key
    assert order(after(view(), "h", "h")) == ["Get", "refill", "Print"]


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_the_table_ends_by_key_also_while_a_search_is_typed(key: str) -> None:
    async def use(on: Live) -> None:
        await on.press("slash", *("x" if key == "ctrl+c" else ()), "escape")
        if key == "ctrl+c":
            await on.press("slash", "x")
        await on.pilot.press(key)
        assert not on.app.is_running

    live(view(), use)


@pytest.mark.parametrize("why", ["it is time", "the thread failed"])
def test_the_table_ends_by_itself(why: str) -> None:
    async def use(on: Live) -> None:
        if why == "the thread failed":
            on.thread.error = RuntimeError("no more")
        while on.app.is_running:
            await asyncio.sleep(0)  # lets the table continue

    live(view(), use, has_to_end=lambda: why == "it is time")


def test_no_more_rows_than_one_reads_are_drawn_and_a_search_finds_the_others() -> None:
    many = [wait(1, 10_000 - i, LOCK, calling(i, f"main.f{i}x")) for i in range(1_200)]

    async def use(on: Live) -> None:
        assert "700 more rows; / searches in all" in await on.text()
        assert "main.f1199x" in await on.press("slash", *"f1199x", "enter")

    live(view(moment(many)), use)


WIDE = moment(
    [
        wait(1, S, LOCK, calling(1, "example.com/ünï/日本語パッケージ.(*とても長い名前).メソッド")),
        wait(9, S // 3, RECEIVE, calling(2, "x" * 3000)),
        *SHOP,
    ],
    pids=(1, 4194304),
    notes=["n" * 500],
)


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 250),
    st.integers(1, 60),
    st.lists(
        st.sampled_from([*"jkdcmnripuhgG", "slash", "enter", "escape", "pagedown", "tab"]),
        max_size=8,
    ),
)
def test_it_stands_any_window_and_any_keys(width: int, height: int, keys: list[str]) -> None:
    after(TopView(WIDE, ["block", "mutex"], "block"), *keys, width=width, height=height)


@pytest.mark.parametrize(("width", "height"), [(80, 8), (80, 24), (200, 50), (40, 12)])
def test_a_window_has_rows_whatever_else_is_to_be_said(width: int, height: int) -> None:
    text = after(view(WIDE), width=width, height=height)
    assert len(re.findall(r"Get|メソッド|refill|x{9}", text)) > 1


@pytest.mark.parametrize("hostile", ["\x1b]0;owned\x07", "a\nb\rc", "\u202egnp", "[bold]x[/]"])
def test_hostile_names_do_no_harm_on_any_page(hostile: str) -> None:
    waits = [wait(1, S, LOCK, calling(1, f"main.{hostile}"))]
    top = view(moment(waits, name=hostile, ending=hostile, notes=[hostile]))
    for keys in ((), ("enter",)):
        for line in after(top, *keys, width=200).splitlines():
            assert line.isprintable(), line
