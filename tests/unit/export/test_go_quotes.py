"""Names and labels as Go writes them; each expected text is what Go 1.27 printed."""

from __future__ import annotations

import pytest

from ebpfprof.export.go_quotes import is_plain, quoted, quoted_by_runtime, readable, shortened


@pytest.mark.parametrize(
    ("data", "by_fmt", "by_runtime"),
    [
        (b"", '""', '""'),
        (b"a b", '"a b"', '"a b"'),
        (b'"\\', r'"\"\\"', r'"\"\\"'),
        (b"\n\r\t", r'"\n\r\t"', r'"\n\r\t"'),
        (b"\a\b\f\v", r'"\a\b\f\v"', r'"\x07\x08\x0c\x0b"'),
        (b"\x00\x1b\x7f", r'"\x00\x1b\x7f"', r'"\x00\x1b\u007f"'),
        (b"\xff\xe2\x82", r'"\xff\xe2\x82"', r'"\xff\xe2\x82"'),
        ("ä\u4e16".encode(), '"ä\u4e16"', r'"\u00e4\u4e16"'),
        ("\U0001f600\ufffd".encode(), '"\U0001f600\ufffd"', r'"\U0001f600\ufffd"'),
        ("\u00a0\u200b\u2028".encode(), r'"\u00a0\u200b\u2028"', r'"\u00a0\u200b\u2028"'),
        (b"\xed\xa0\x80", r'"\xed\xa0\x80"', r'"\xed\xa0\x80"'),
    ],
)
def test_strings_are_quoted(data: bytes, by_fmt: str, by_runtime: str) -> None:
    assert quoted(data) == by_fmt
    assert quoted_by_runtime(data, quotes_bytes=True) == by_runtime


def test_before_go_1_27_bytes_that_are_not_text_are_not_distinguished() -> None:
    assert quoted_by_runtime(b"a\xff\xfe", quotes_bytes=False) == r'"a\ufffd\ufffd"'


def test_plain_labels_need_no_quotes() -> None:
    assert is_plain(b"")
    assert is_plain(b"a/b.c_D9")
    for data in (b"a b", b"a-b", "ä".encode(), b"\xff", b'"', b"a:b"):
        assert not is_plain(data)


@pytest.mark.parametrize(
    ("name", "one", "both"),
    [
        ("main.main", "main.main", "main.main"),
        ("main.f[go.shape.int]", "main.f[...]", "main.f[...]"),
        ("main.f[go.shape.int].func1", "main.f[...].func1", "main.f[...].func1"),
        ("main.(*T[a,b]).m", "main.(*T[...]).m", "main.(*T[...]).m"),
        ("main.f[go.shape.[]int]", "main.f[...]", "main.f[...]"),
        ("main.f[go.shape.map[string][]int]", "main.f[...]", "main.f[...]"),
        ("main.(*T[a]).m[b].func1", "main.(*T[...].func1", "main.(*T[...]).m[...].func1"),
        ("main.(*T[[]a]).m[map[b]c]", "main.(*T[...]", "main.(*T[...]).m[...]"),
        ("main.f[a]]b[", "main.f[...]b[", "main.f[...]b["),
        ("main.f[[a]", "main.f[...]", "main.f[[a]"),
        ("main.f]a[", "main.f]a[", "main.f]a["),
        ("main.f[", "main.f[", "main.f["),
    ],
)
def test_type_arguments_are_shortened(name: str, one: str, both: str) -> None:
    assert (shortened(name, 0), shortened(name, 1), shortened(name, 2)) == (name, one, both)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("main.f[go.shape.int]", "main.f[...]"),
        ("main.(*T[go.shape.[]a/b.C]).m", "main.(*T[...]).m"),
        ("main.f", "main.f"),
        ("[unknown]", "[unknown]"),
        ("[cut off: caller unknown]", "[cut off: caller unknown]"),
        ("V::operator[](int)", "V::operator[](int)"),
        ("nft_do_chain [nf_tables]", "nft_do_chain [nf_tables]"),
    ],
)
def test_tables_have_no_type_arguments(name: str, shown: str) -> None:
    assert readable(name) == shown
