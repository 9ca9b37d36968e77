"""The state of `ebpfprof top`: what is examined, and how."""

from __future__ import annotations

import pytest

from ebpfprof.top.state import TopView
from tests.unit.top.moments import view


def names(on: TopView) -> list[str]:
    return [row.key.name.rpartition(".")[2] for row in on.shown.rows]


def test_rows_are_sorted_and_reversed() -> None:
    top = view()
    for sort, expected in (
        ("delay", ["Get", "refill", "Print"]),
        ("count", ["Print", "Get", "refill"]),
        ("mean", ["refill", "Get", "Print"]),
        ("name", ["Print", "Get", "refill"]),
    ):
        assert top.sort_by(sort) == ""  # type: ignore[arg-type]  # the loop's are literals
        assert names(top) == expected, sort
        top.reverse = True
        assert names(top) == expected[::-1], sort
        top.reverse = False


def test_idle_waits_are_shown_and_hidden() -> None:
    top = view()
    assert "worker" not in names(top)
    top.hide_idle = False
    assert "worker" in names(top)


def test_a_row_is_found_though_it_is_hidden() -> None:
    top = view()
    (number,) = (row.number for row in top.reading.rows if row.key.name.endswith("worker"))
    found = top.row(number)
    assert found is not None
    assert found not in top.shown.rows
    assert top.row(99) is None


@pytest.mark.parametrize("typed", ["(", "[z-a]", "*", "(?P<", "a{99999999999}", "(?i"])
def test_a_search_that_is_not_a_regular_expression_says_so(typed: str) -> None:
    top = view()
    assert top.search("Get") == ""
    assert top.search(typed).startswith("This is no regular expression")
    assert names(top) == ["Get"], "the last good one stays"
    assert top.search("") == ""
    assert len(names(top)) == 3


def test_a_doubtful_search_gives_no_warning() -> None:
    """Python warns of [[; on stderr that would destroy the screen. pytest makes it an error."""
    assert view().search("[[a]") == ""


def test_views_that_are_not_recorded_say_so() -> None:
    top = view()
    assert top.switch("x").startswith("The CPU profile is not recorded: start again")
    assert top.switch("l") == "Locks are not distinguished: start again with --by-lock."
    assert top.view == "block"
    assert top.switch("u") == ""
    assert top.view == "mutex"


def test_functions_have_no_mean() -> None:
    top = TopView(view().moment, ["block", "cpu"], "block")
    assert top.sort_by("mean") == ""
    assert "no mean" in top.switch("x")
    assert top.sort == "delay"
