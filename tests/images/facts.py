"""What the program of an image says of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.images.image import image

MAIN: Final = 1
_HEADER: Final = re.compile(r"goroutine (\d+) .*?\[(.*?)\](?: \{.*\})?:")
_CALL: Final = re.compile(r"^(?:created by )?(\S.*?)(?:\(|$| in goroutine )")
_LINE: Final = re.compile(r"^\t(.*):(\d+)(?: \+0x[0-9a-f]+)?$")


@dataclass(frozen=True)
class PrintedGoroutine:
    """A goroutine in Go's own traceback: its state, its calls as (function, line), and its text."""

    state: str
    calls: tuple[tuple[str, int], ...]
    text: str


@dataclass(frozen=True)
class Facts:
    """Facts with numbers by their words; goroutines of the traceback by their ids."""

    numbers: dict[str, list[tuple[int, ...]]]
    goroutines: dict[int, PrintedGoroutine]

    def number(self, words: str) -> int:
        """The only number of a fact."""
        ((number,),) = self.numbers[words]
        return number

    def goid(self, name: str) -> int:
        """The id of the goroutine that the program calls so."""
        return self.number(f"goroutine {name}")

    @property
    def names(self) -> dict[int, str]:
        """The program's names of goroutines, by their ids."""
        return {
            numbers[0][0]: words.removeprefix("goroutine ")
            for words, numbers in self.numbers.items()
            if words.startswith("goroutine ")
        }


@cache
def facts(version: str) -> Facts:
    """What the program of an image says."""
    before, _, text = image(version).said.partition("traceback\n")
    numbers: dict[str, list[tuple[int, ...]]] = {}
    for line in before.splitlines():
        words = re.sub(r"(?: -?\d+)+$", "", line)
        found = tuple(int(number) for number in line.removeprefix(words).split())
        numbers.setdefault(words, []).append(found)
    goroutines = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        match = _HEADER.fullmatch(head)
        assert match, head
        goroutines[int(match[1])] = PrintedGoroutine(match[2], _calls(lines), block)
    return Facts(numbers, goroutines)


def _calls(lines: list[str]) -> tuple[tuple[str, int], ...]:
    """The functions and lines of a traceback's calls, without the statement that created it."""
    found = []
    for call, where in zip(lines[::2], lines[1::2], strict=False):
        name, line = _CALL.match(call), _LINE.match(where)
        if call.startswith(("created by", "...")) or not name or not line:
            break
        found.append((call[: call.rindex("(")], int(line[2])))
    return tuple(found)
