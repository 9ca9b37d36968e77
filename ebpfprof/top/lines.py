"""Lines of `ebpfprof top` that fit into the window: whole parts, whole words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from ebpfprof.console.columns import cells_of

_BETWEEN: Final = "  "
_DOTS: Final = "..."


class Part(NamedTuple):
    """A part of a line, which is not broken unless it is longer than a line."""

    text: str
    style: str = ""


def flowed(parts: Sequence[Part], room: int | None) -> list[Text]:
    """The parts in their order, in as many lines as that takes."""
    lines: list[Text] = []
    for part in parts:
        longer = f"{lines[-1].plain}{_BETWEEN}{part.text}" if lines else ""
        if lines and is_room(longer, room):
            lines[-1].append(_BETWEEN).append(part.text, part.style)
        else:
            lines += wrapped(part.text, room, part.style)
    return lines


def first_fitting(choices: Sequence[str], room: int | None) -> str:
    """The first of the texts that fits, or as much of the last one as fits."""
    return next((text for text in choices if is_room(text, room)), cut(choices[-1], room))


def cut(text: str, room: int | None) -> str:
    """The first words that fit, with dots behind them."""
    if room is None or is_room(text, room):
        return text
    kept = set_cell_size(text, max(room - len(_DOTS), 0)).rstrip()
    if not text[len(kept) :].startswith(" "):
        kept = kept.rpartition(" ")[0].rstrip(" ,;:(") or kept  # a single long word has no end
    return kept + _DOTS[: max(room - cells_of(kept), 0)]


def wrapped(text: str, room: int | None, style: str = "", most: int | None = None) -> list[Text]:
    """The text in lines, broken between words where that can be; at most `most`, then dots."""
    if room is None or is_room(text, room):
        return [Text(text, style)]
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and not is_room(longer, room):
            lines.append(line)
            longer = word
        while not is_room(longer, room):
            start = set_cell_size(longer, room).rstrip() or longer[:1]
            lines.append(start)
            longer = longer[len(start) :]
        line = longer
    lines.append(line)
    if most is not None and len(lines) > most:
        lines[most - 1 :] = [cut(" ".join(lines[most - 1 :]), room)]
    return [Text(line, style) for line in lines]


def is_room(text: str, room: int | None) -> bool:
    """Whether the text fits."""
    return room is None or cells_of(text) <= room
