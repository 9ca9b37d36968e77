"""What the keys of `ebpfprof top` do."""

from __future__ import annotations

import pytest

from ebpfprof.top.state import TopView
from tests.unit.top.moments import LOCK, calling, moment, press, view, wait


def names(on: TopView) -> list[str]:
    return [row.key.name.rpartition(".")[2] for row in on.shown.rows]


def page(on: TopView) -> str:
    return on.page


def test_rows_are_sorted_by_keys_and_reversed() -> None:
    top = view()
    for keys, expected in (
        ("d", ["Get", "refill", "Print"]),
        ("c", ["Print", "Get", "refill"]),
        ("m", ["refill", "Get", "Print"]),
        ("n", ["Print", "Get", "refill"]),
        ("r", ["refill", "Get", "Print"]),
        ("d", ["Print", "refill", "Get"]),
        ("r", ["Get", "refill", "Print"]),
    ):
        press(top, keys)
        assert names(top) == expected, keys


def test_the_chosen_row_stays_chosen_when_the_order_changes() -> None:
    top = view()
    press(top, "down")
    chosen = top.row
    assert chosen is not None
    press(top, "r")
    assert top.row is chosen
    press(top, "c")
    assert top.row is chosen


def test_moves_stop_at_both_ends() -> None:
    top = view()
    top.page_lines = 10
    for keys, index in (
        (["k"], 0),
        (["j", "down"], 2),
        (["j"], 2),
        (["home"], 0),
        (["end"], 2),
        (["pageup"], 0),
        (["G"], 2),
        (["g"], 0),
        (["pagedown"], 2),
    ):
        press(top, *keys)
        assert top.index == index, keys
    assert top.shown.rows[2] is top.row


def test_moves_in_an_empty_table_do_nothing() -> None:
    top = view(moment(()))
    assert press(top, "j", "G", "enter", "pagedown") == []
    assert (top.page, top.row, top.index) == ("rows", None, 0)


def test_idle_waits_are_shown_and_hidden() -> None:
    top = view()
    assert "worker" not in names(top)
    press(top, "i")
    assert "worker" in names(top)
    press(top, "i")
    assert "worker" not in names(top)


def test_a_filter_applies_while_it_is_typed() -> None:
    top = view()
    press(top, "/", *"Get")
    assert names(top) == ["Get"]
    assert top.typed == "Get"
    press(top, "backspace", "backspace", "backspace")
    assert len(names(top)) == 3
    press(top, *"Print", "enter")
    assert names(top) == ["Print"]
    press(top, "/", "escape")
    assert (top.pattern, len(names(top))) == (None, 3)


def test_keys_are_text_while_a_filter_is_typed() -> None:
    top = view()
    assert press(top, "/", *"q w pi?", "up") == []
    assert (top.typed, top.paused, top.hide_idle) == ("q w pi?", False, True)
    press(top, "ctrl-u")
    assert top.typed == ""
    assert press(top, "ctrl-c") == ["quit"]


@pytest.mark.parametrize("typed", ["(", "[z-a]", "*", "(?P<", "a{99999999999}", "(?i"])
def test_a_filter_that_is_no_regular_expression_says_so(typed: str) -> None:
    top = view()
    press(top, "/", *"Get", "enter", "/", "ctrl-u", *typed)
    assert top.error.startswith("This is no regular expression")
    press(top, "enter")
    assert top.message.startswith("This is no regular expression")
    assert top.typed is None
    press(top, "d")
    assert (top.message, top.error) == ("", "")


def test_a_doubtful_filter_gives_no_warning() -> None:
    """Python warns of [[; on stderr that would destroy the screen. pytest makes it an error."""
    top = view()
    press(top, "/", *"[[a]")
    assert top.error == ""


def test_the_length_of_a_filter_is_limited() -> None:
    top = view()
    press(top, "/", *"a" * 5000)
    assert len(top.typed or "") == 200


def test_enter_shows_the_stacks_and_escape_goes_back() -> None:
    top = view()
    press(top, "j", "enter")
    assert top.page == "stacks"
    assert [stack.sample.labels[0].value for stack in top.stacks] == ["anna"]
    press(top, "j", "j")
    assert (top.top, top.index) == (2, 1)
    press(top, "escape")
    assert (top.page, top.index, top.top) == ("rows", 1, 0)


def test_the_stacks_of_a_row_stay_when_it_is_no_longer_the_first() -> None:
    top = view()
    press(top, "enter")
    row = top.row
    assert row is not None
    assert row.key.name == "main.(*PriceCache).Get"
    other = wait(1, 1 << 40, LOCK, calling(5, "main.other"))
    before = top.reading
    table_rows = [other, *(stack.sample for stack in before.stacks)]
    top.moment = moment(table_rows)
    press(top, "escape")
    top.moment = moment()
    assert top.row is not None


def test_keys_switch_only_to_recorded_views() -> None:
    top = view()
    press(top, "j", "u")
    assert (top.view, top.chosen, top.message) == ("mutex", None, "")
    press(top, "x")
    assert top.view == "mutex"
    assert "--profile cpu" in top.message
    press(top, "l")
    assert "--by-lock" in top.message
    press(top, "b", "enter", "u")
    assert (top.view, top.page) == ("mutex", "rows")


def test_cpu_time_has_no_mean() -> None:
    top = view()
    top.views, top.view = ["cpu"], "cpu"
    press(top, "m")
    assert top.sort == "delay"
    assert "no mean" in top.message


def test_keys_for_help_pause_write_and_quit() -> None:
    top = view()
    press(top, "h")
    assert page(top) == "help"
    press(top, "?")
    assert page(top) == "rows"
    paused = []
    for key in ("p", " ", " "):
        press(top, key)
        paused.append(top.paused)
    assert paused == [True, False, True]
    assert press(top, "w", "enter", "w", "q", "escape", "ctrl-c") == [
        "write",
        "write",
        "quit",
        "quit",
    ]
