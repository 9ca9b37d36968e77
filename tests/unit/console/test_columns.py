"""Tables of text: columns that are aligned, cells of several lines, styles."""

from __future__ import annotations

import builtins
import re
from typing import Any

import pytest

from ebpfprof.console.columns import Line, Row, TextColumn, aligned, beginning, cells_of, fit, table

WIDE = "世界"  # each of these takes two columns
COLUMNS = [TextColumn("Name"), TextColumn("Count", is_number=True), TextColumn("Where")]


def test_columns_are_as_wide_as_they_need_to_be() -> None:
    rows = [
        [[Line("a")], [Line("1")], [Line("here"), Line("below")]],
        [[Line(WIDE + "x")], [Line("123456")], []],
    ]
    assert aligned(COLUMNS, rows, color=False).split("\n") == [
        "Name    Count  Where",
        "a           1  here",
        "               below",
        f"{WIDE}x  123456",
        "",
    ]


def test_without_headings_there_is_not_a_line_of_them() -> None:
    columns = [TextColumn("", least=4), TextColumn("")]
    assert aligned(columns, [[[Line("ok")], [Line("x")]]], color=False) == "ok    x\n"
    assert aligned(columns, [], color=False) == ""


def test_styles_change_no_width() -> None:
    rows = [[[Line("a", "red")], [Line("1", "dim")], [Line("", "dim")]]]
    text = aligned(COLUMNS, rows, color=True)
    assert text.startswith("\x1b[1mName\x1b[0m")
    assert "\x1b[31ma\x1b[0m" in text
    assert re.sub(r"\x1b\[\d+m", "", text) == aligned(COLUMNS, rows, color=False)


@pytest.mark.parametrize("width", [20, 40, 80, None])
def test_names_are_cut_to_the_width(width: int | None) -> None:
    name = "example.com/shop/" + "x" * 100
    text = table(
        ["Count", "Function"], [Row(["12"], name, below="y" * 150)], width=width, color=False
    )
    lines = text.splitlines()
    if width is None:
        assert lines[1].endswith(name)
    else:
        least = 24 + len("Count") + 2
        assert max(map(len, lines)) == max(width, least)
        assert lines[1].split()[1].startswith("...")


@pytest.mark.parametrize("text", ["abcdef", WIDE * 3, "a" + WIDE])
@pytest.mark.parametrize("room", range(9))
def test_what_is_cut_fits(text: str, room: int) -> None:
    assert cells_of(fit(text, room)) <= room
    assert cells_of(beginning(text, max(room, 3))) <= max(room, 3)


def test_a_broken_installation_can_still_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command doctor says which library is missing, in a table."""
    original = builtins.__import__

    def without_rich(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as __import__
        if name.startswith("rich"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    assert cells_of("µ") == 1
