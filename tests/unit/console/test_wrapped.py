"""Messages on a terminal: wrapped at words; commands to copy stay whole."""

from __future__ import annotations

import pytest

from ebpfprof.console.text import in_one_line, wrapped
from ebpfprof.errors import to_type


def test_lines_break_at_words() -> None:
    text = "There is no process 5, or it has ended.\nIts id may be another one inside of it."
    assert wrapped(text, 22).splitlines() == [
        "There is no process 5,",
        "or it has ended.",
        "Its id may be another",
        "one inside of it.",
    ]


def test_a_number_stays_with_its_unit() -> None:
    assert wrapped("It took 22.8 s +-5.8 %, or 12 MiB.", 16).splitlines() == [
        "It took 22.8 s",
        "+-5.8 %, or",
        "12 MiB.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "short\n",
        "\n\nshort\n\n",
        "a-word-that-is-longer-than-the-terminal-is-wide",
        "  38.4 s  90.2%  16702  2.30 ms  main.PriceCache.mu",
        "\r\x1b[K[####......] 3 of 10 s, 7 s left",
        "To see them:" + to_type("ebpfprof list --name a-long-name --json"),
    ],
)
def test_what_stays_as_it_is(text: str) -> None:
    assert wrapped(text, 20) == text


def test_commands_stand_on_lines_of_their_own() -> None:
    text = "Look it up:" + to_type("pgrep -a NAME", "ebpfprof list")
    assert text.splitlines() == ["Look it up:", "    pgrep -a NAME", "    ebpfprof list"]
    assert in_one_line(text) == "Look it up: pgrep -a NAME ebpfprof list"
