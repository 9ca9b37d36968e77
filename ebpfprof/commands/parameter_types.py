"""The types of values on the command line, with errors that a user understands."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import click

from ebpfprof.console.text import parsed_duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_PID: Final = (1 << 31) - 1


class Duration(click.ParamType[float]):
    """A length of time as Go writes it (10s, 1m30s, 500ms), or a number of seconds; in seconds.

    It is between `least_s` and `most_s`, and more than 0 unless it `may_be_0`.
    """

    name = "duration"

    def __init__(
        self, least_s: float = 0.0, most_s: float = math.inf, *, may_be_0: bool = False
    ) -> None:
        self._least_s, self._most_s, self._may_be_0 = least_s, most_s, may_be_0

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds. Raises click.BadParameter."""
        seconds = parsed_duration(str(value).strip())
        if seconds is None:
            self.fail(
                f"{_quoted(value)} is no length of time. Write it as Go does (10s, 1m30s, 500ms), "
                "or as a number of seconds.",
                param,
                ctx,
            )
        if seconds < 0 or (seconds == 0 and not self._may_be_0):
            self.fail(f"{_quoted(value)} is too short: it must be more than 0.", param, ctx)
        if seconds < self._least_s:
            self.fail(f"{_quoted(value)} is less than {self._least_s:g} s.", param, ctx)
        if seconds > self._most_s:
            self.fail(f"{_quoted(value)} is more than {self._most_s:g} s.", param, ctx)
        return seconds


class Number(click.ParamType[float]):
    """A number from `least` to `most`; a whole one unless `is_fraction`."""

    name = "number"

    def __init__(self, least: float, most: float, *, is_fraction: bool = False) -> None:
        self._least, self._most, self._is_fraction = least, most, is_fraction

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. Raises click.BadParameter."""
        try:
            found = float(str(value)) if self._is_fraction else int(str(value))
        except ValueError:
            found = math.nan
        if not self._least <= found <= self._most:  # true of NaN, too
            kind = "number" if self._is_fraction else "whole number"
            self.fail(
                f"{_quoted(value)} is no {kind} from {self._least:g} to {self._most_shown()}.",
                param,
                ctx,
            )
        return found

    def _most_shown(self) -> str:
        return str(self._most) if isinstance(self._most, int) else f"{self._most:g}"


class Pid(click.ParamType[int]):
    """The id of a process."""

    name = "pid"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The pid. Raises click.BadParameter."""
        text = str(value)
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= _MAX_PID):
            self.fail(
                f"{_quoted(value)} is not the id of a process, a number from 1 to {_MAX_PID}. "
                "--name NAME chooses processes by name.",
                param,
                ctx,
            )
        return int(text)


class OneOf(click.Choice[str]):
    """One of some words; a similar one is suggested for a word that is none of them."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The word. Raises click.BadParameter."""
        words = [str(each) for each in self.choices]
        if value not in words:
            self.fail(
                f"{_quoted(value)} is none of {', '.join(words)}.{similar(str(value), words)}",
                param,
                ctx,
            )
        return str(value)


def similar(word: str, words: Iterable[str]) -> str:
    """A question behind a sentence, " Did you mean X?"; "" if no word is similar."""
    found = get_close_matches(word, list(words), n=1)
    return f" Did you mean {found[0]}?" if found else ""


def _quoted(value: object) -> str:
    return f"'{printable(str(value))}'"
