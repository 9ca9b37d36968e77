"""Queries and numbers are read as Go reads them; the expected values were printed by Go 1.27."""

from __future__ import annotations

import pytest

from ebpfprof.server.go_forms import clean_path, form_value, parse_address, parse_int

INT64_MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (b"", ""),
        (b"seconds=5", "5"),
        (b"a=1&seconds=5&seconds=6", "5"),
        (b"seconds", ""),
        (b"seconds=%35", "5"),
        (b"%73econds=5", "5"),
        (b"seconds=+5", " 5"),
        (b"seconds=%2B5", "+5"),
        (b"seconds=%zz", ""),
        (b"seconds=%zz&seconds=3", "3"),
        (b"seconds=1;2", ""),
        (b"seconds=1=2", "1=2"),
        (b"&&seconds=7", "7"),
        (b"Seconds=5", ""),
    ],
)
def test_the_first_value_of_a_query_counts(query: bytes, value: str) -> None:
    assert form_value(query, "seconds") == value


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("", "/"),
        ("/", "/"),
        ("/a", "/a"),
        ("/a/", "/a/"),
        ("//a", "/a"),
        ("///a//b///", "/a/b/"),
        ("/a/./b/.", "/a/b"),
        ("/a/../b", "/b"),
        ("/../../a", "/a"),
        ("/..", "/"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("//evil.example/..//x", "/x"),
        ("/%2e%2e/a", "/%2e%2e/a"),
        ("/...", "/..."),
    ],
)
def test_paths_are_cleaned_as_by_go(path: str, clean: str) -> None:
    assert clean_path(path) == clean


@pytest.mark.parametrize(
    ("text", "number", "is_number"),
    [
        ("5", 5, True),
        ("+5", 5, True),
        ("-5", -5, True),
        ("007", 7, True),
        ("0", 0, True),
        ("", 0, False),
        ("+", 0, False),
        ("-", 0, False),
        ("+-5", 0, False),
        (" 5", 0, False),
        ("5 ", 0, False),
        ("5\n", 0, False),
        ("1_000", 0, False),
        ("0x10", 0, False),
        ("1.5", 0, False),
        ("1e3", 0, False),
        ("\u0665", 0, False),
        (str(INT64_MAX), INT64_MAX, True),
        (str(INT64_MAX + 1), INT64_MAX, False),
        (str(-INT64_MAX - 1), -INT64_MAX - 1, True),
        (str(-INT64_MAX - 2), -INT64_MAX - 1, False),
        ("9" * 10_000, INT64_MAX, False),
        ("0" * 10_000 + "9", 9, True),
    ],
)
def test_integers_are_parsed_as_by_go(text: str, number: int, is_number: bool) -> None:
    assert parse_int(text) == (number, is_number)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0x401000", 0x401000),
        ("0X40_1000", 0x401000),
        ("0x_1", 1),
        ("17", 17),
        ("1_7", 17),
        ("017", 15),
        ("0o17", 15),
        ("0b101", 5),
        ("0", 0),
        ("", 0),
        ("0x", 0),
        ("401zz", 0),
        ("-1", 0),
        ("1__7", 0),
        ("1_", 0),
        ("0x" + "f" * 16, (1 << 64) - 1),
        ("0x1" + "0" * 16, (1 << 64) - 1),
    ],
)
def test_addresses_are_parsed_as_by_go(text: str, address: int) -> None:
    assert parse_address(text) == address
