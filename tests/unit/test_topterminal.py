"""Keys out of bytes, lines into bytes."""

from __future__ import annotations

import pytest
from rich.text import Text

from ebpfprof.topterminal import KeyReader, plain, rendered


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"dq", ["d", "q"]),
        (b"\r\n\x7f\x08\x03\x15", ["enter", "enter", "backspace", "backspace", "ctrl-c", "ctrl-u"]),
        (
            b"\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[F",
            ["up", "down", "pageup", "pagedown", "home", "end"],
        ),
        (b"\x1b[1;5A\x1b[24~\x1b[<0;1;1Mj", ["j"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        ("é日".encode(), ["é", "日"]),
        (b"\xff\xfe", ["\ufffd", "\ufffd"]),
        (b"\x1b[" + b"1" * 100 + b"A", ["1"] * 86 + ["A"]),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys
    reader = KeyReader()
    one_by_one = [key for byte in data for key in reader.feed(bytes([byte]))]
    assert one_by_one == keys


def test_escape_alone_is_a_key_once_nothing_more_came() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.give_up() == ["escape"]
    assert reader.give_up() == []
    assert reader.feed(b"[A") == ["[", "A"]


def test_lines_are_rendered_one_by_one() -> None:
    lines = [Text("one", "bold red"), Text(), Text("three" * 10), Text("\x1b[31m[b]:smile:")]
    with_color = rendered(lines, 20, color=True)
    assert with_color[0] == "\x1b[1;31mone\x1b[0m"
    assert [len(line) for line in with_color[1:]][:2] == [0, 20]
    without = rendered(lines, 20, color=False)
    assert without[0] == "\x1b[1mone\x1b[0m"
    assert "[b]:smile:" in without[3]


def test_plain_text_has_no_styles() -> None:
    assert plain([Text("one  ", "bold"), Text(" two")]) == "one\n two\n"
