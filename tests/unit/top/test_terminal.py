"""Keys out of bytes, lines into bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

import pytest
from rich.text import Text

from ebpfprof.top import terminal as topterminal
from ebpfprof.top.terminal import KeyReader, TopTerminal, plain, rendered


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
def test_keys_are_decoded(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys
    reader = KeyReader()
    one_by_one = [key for byte in data for key in reader.feed(bytes([byte]))]
    assert one_by_one == keys


def test_escape_is_a_key_if_no_bytes_follow() -> None:
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


@contextmanager
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileIO]:
    """The other end of the terminal that stdin and stdout are. pytest undoes what fixtures set."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with (
        FileIO(master, "r+") as other_end,
        open(slave) as stdin,
        open(slave, "w", closefd=False) as stdout,
    ):
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        yield other_end


def test_a_terminal_without_a_reader_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topterminal, "_STUCK_S", 0.05)
    with on_terminal(monkeypatch), TopTerminal() as terminal:
        terminal.draw([Text("x" * 99)] * 2000)
        assert not terminal.is_gone
        assert os.get_blocking(sys.stdout.fileno()), (
            "other processes that share it find it unchanged"
        )


@pytest.mark.parametrize("can_be_opened", [True, False])
def test_draw_writes_whole_lines(monkeypatch: pytest.MonkeyPatch, can_be_opened: bool) -> None:
    """Also where the terminal can't be opened again, as that of another user."""
    if not can_be_opened:
        monkeypatch.setattr(topterminal, "_opened_again", lambda terminal: None)
    with on_terminal(monkeypatch) as master, TopTerminal() as terminal:
        terminal.draw([Text("one"), Text("two" * 33)] * 10)
        drawn = b""
        while not drawn.endswith(b"\x1b[K\x1b[J"):
            drawn += master.read(1 << 16)
    assert drawn.count(b"one\x1b[K\r") == 10
    assert drawn.count(b"two" * 33) == 10


def test_a_closed_terminal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal(monkeypatch) as master, TopTerminal() as terminal:
        master.close()
        terminal.draw([Text("one")])
        assert terminal.is_gone
        terminal.is_gone = False
        assert terminal.wait(60) == []
        assert terminal.is_gone
