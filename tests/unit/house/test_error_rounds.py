"""How reported errors are judged."""

from __future__ import annotations

import math

import pytest

from tests.tools.error_rounds import (
    BEGIN,
    DOCUMENT,
    END,
    Number,
    Row,
    docs_table,
    programs,
    rounds_of,
    shown,
    tallied,
)

STACK = (("sync.(*Mutex).Lock", 0), ("main.main", 1))


def row(value: float, error: float = 10.0, gos: float = 100, what: str = "block delay") -> Row:
    return Row("load", "default", what, STACK, Number(value, error**2), gos)


def test_gos_number_is_inside_within_two_errors_or_not() -> None:
    # Numbers are rounded down.
    assert row(120).is_inside
    assert not row(121).is_inside
    assert row(80).is_inside
    assert not row(79).is_inside
    (tally,) = tallied([row(119), row(122)]).values()
    assert (tally.inside, tally.rounds, tally.share) == (1, 2, 0.5)


def test_an_exact_count_has_to_be_gos_own() -> None:
    assert row(101, 0).is_inside
    assert not row(102, 0).is_inside


def test_what_tables_show_as_unknown_is_not_judged() -> None:
    (tally,) = tallied([row(100, 51), row(0, 0), row(100)]).values()
    assert (tally.rounds, tally.hidden) == (1, 2)
    assert rounds_of([row(100, 51), row(0, 0), row(100), row(100, what="mutex count")]) == 3
    assert rounds_of([]) == 0


def test_the_width_is_half_of_an_interval_and_the_scale_compares_it_with_real_errors() -> None:
    (tally,) = tallied([row(100 + apart) for apart in (-5, 0, 5)]).values()
    assert tally.width == pytest.approx(0.196)
    assert tally.ratio == 1.0
    assert tally.scale == pytest.approx(0.5 / 0.6745)
    (exact,) = tallied([row(100, 0)]).values()
    assert (exact.width, math.isnan(exact.scale)) == (0, True)


def test_tables_have_a_line_for_each_stack_and_a_row_for_each_program() -> None:
    rows = [row(100), row(100, what="block count"), row(500, what="mutex count")]
    lines = shown(rows).splitlines()
    assert len(lines) == 4
    assert lines[1].endswith("sync.(*Mutex).Lock in main.main:1")
    assert docs_table(rows).splitlines()[2:] == [
        "| load | default | 100% of 1; ±19.6% | 100% of 1; ±19.6% | 0% of 1; ±19.6% | - |"
    ]


def test_the_document_has_a_place_for_the_table() -> None:
    text = DOCUMENT.read_text()
    assert text.index(BEGIN) < text.index(END)


def test_titles_of_programs_fit_into_a_list_with_commas() -> None:
    known = programs(1.0)
    assert len(known) == 15
    assert not any("," in title for title in known)
