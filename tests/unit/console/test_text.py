"""Text for people: names made harmless, numbers with units."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.console.text import duration, printable


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_printable_text_is_printable_and_ascii_if_asked(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text, ascii_only=True).isascii()
    assert all(unicodedata.category(c)[0] != "C" for c in printable(text))


def test_printable_leaves_names_alone() -> None:
    name = "main.größe.(*T[go.shape.int]).func1·f 世界"
    assert printable(name) == name
    assert printable(name, ascii_only=True) == (
        "main.gr\\xf6\\xdfe.(*T[go.shape.int]).func1\\xb7f \\u4e16\\u754c"
    )


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_000, "1.00 us"),
        (1_234, "1.23 us"),
        (12_345, "12.3 us"),
        (123_456, "123 us"),
        (999_949, "1.00 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (99_949_999, "99.9 ms"),
        (99_950_001, "100 ms"),
        (1_000_000_000, "1.00 s"),
        (59_900_000_000, "59.9 s"),
        (60_000_000_000, "1.00 min"),
        (3_600_000_000_000, "1.00 h"),
        (360_000_000_000_000, "100 h"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert duration(ns) == text
