"""The types of values in the agent's configuration, with errors that a user understands.

Each has `wants`, what it takes in words, and read(), which raises ValueError with a sentence's end:
"must be a time from 1s to 1h, not 5".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from ebpfprof.console.quantities import bytes_of, seconds_of, similar
from ebpfprof.console.text import printable

_MAX_SHOWN: Final = 60
_MAX_TEXT: Final = 4096
_MAX_ITEMS: Final = 1000
_URL: Final = re.compile(r"[!-~]+", re.ASCII)
LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}", re.ASCII)
ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


class Value(Protocol):
    """A type of values."""

    @property
    def wants(self) -> str:
        """What it takes, in words: "a time from 1s to 1h"."""

    def read(self, value: object) -> Any:  # noqa: ANN401 - of each type
        """The value of a TOML file as the program has it. Raises ValueError."""


def refused(wants: str, value: object) -> ValueError:
    """The error of a value that is not what is wanted."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # a number of thousands of digits
        text = "a number that is too large"
    shown = printable(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
    return ValueError(f"must be {wants}, not {shown}")


@dataclass(frozen=True, slots=True)
class SwitchValue:
    """Yes or no."""

    wants: str = "true or false"

    def read(self, value: object) -> bool:  # noqa: D102 - as Value
        if not isinstance(value, bool):
            raise refused(self.wants, value)
        return value


@dataclass(frozen=True, slots=True)
class NumberValue:
    """A number from `least` to `most`; a whole one unless `is_fraction`."""

    least: float
    most: float
    is_fraction: bool = False

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        kind = "number" if self.is_fraction else "whole number"
        return f"a {kind} from {self.least:g} to {self.most:.12g}"

    def read(self, value: object) -> float:  # noqa: D102 - as Value
        is_number = isinstance(value, int | float if self.is_fraction else int)
        if not is_number or isinstance(value, bool) or not self.least <= value <= self.most:  # type: ignore[operator]  # a number
            raise refused(self.wants, value)
        return value  # type: ignore[return-value]  # the same


@dataclass(frozen=True, slots=True)
class TimeValue:
    """A length of time, in seconds."""

    least: str
    most: str

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        return f'a time from {self.least} to {self.most}, such as "{self.least}"'

    def read(self, value: object) -> float:  # noqa: D102 - as Value
        is_one = isinstance(value, str | int | float) and not isinstance(value, bool)
        found = _seconds(str(value)) if is_one else None
        if found is None or not (_seconds(self.least) or 0) <= found <= (_seconds(self.most) or 0):
            raise refused(self.wants, value)
        return found


def _seconds(text: str) -> float | None:
    return seconds_of(text.strip()[:_MAX_SHOWN], has_days=True)


def size_text(size: int) -> str:
    """A size as a file may have it: 512MiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


@dataclass(frozen=True, slots=True)
class SizeValue:
    """A number of bytes."""

    least: int
    most: int

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        least, most = size_text(self.least), size_text(self.most)
        return f'a size from {least} to {most}, such as "{least}"'

    def read(self, value: object) -> int:  # noqa: D102 - as Value
        is_one = isinstance(value, str | int) and not isinstance(value, bool)
        found = bytes_of(str(value).strip()[:_MAX_SHOWN]) if is_one else None
        if found is None or not self.least <= found <= self.most:
            raise refused(self.wants, value)
        return found


@dataclass(frozen=True, slots=True)
class TextValue:
    """A text; `form` is what it must look like, None for any text without control characters."""

    wants: str = "a text"
    form: re.Pattern[str] | None = None
    may_be_empty: bool = False

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise refused(self.wants, value)
        fits = value.isprintable() if self.form is None else bool(self.form.fullmatch(value))
        if not (fits and value) and not (self.may_be_empty and not value):
            raise refused(self.wants, value)
        return value


@dataclass(frozen=True, slots=True)
class PathValue:
    """An absolute path."""

    wants: str = 'an absolute path, such as "/var/lib/ebpfprof"'

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        is_one = isinstance(value, str) and value.startswith("/") and len(value) <= _MAX_TEXT
        if not is_one or "\0" in str(value):
            raise refused(self.wants, value)
        return str(value)


@dataclass(frozen=True, slots=True)
class UrlValue:
    """The address of a server, without anything secret in it."""

    wants: str = 'an address, such as "https://pyroscope.example:4040"'
    words: tuple[str, ...] = ()
    """Words that it takes in place of an address."""
    login: str = "username and password_file"
    """The settings that have what would stand before an @."""

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        if isinstance(value, str) and value in self.words:
            return value
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise refused(self.wants, value)
        try:
            parts = urlsplit(value)
            is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
            has_more = bool(parts.query or parts.fragment or parts.port == 0)
        except ValueError:
            raise refused(self.wants, value) from None
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"must have no user and password: use {self.login}")
        if not is_one or has_more or not value.isascii() or not _URL.fullmatch(value):
            raise refused(self.wants, value)
        return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class WordValue:
    """One of some words."""

    words: Callable[[], Collection[str]]

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        return "one of " + ", ".join(self.words())

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        if not isinstance(value, str) or value not in self.words():
            hint = similar(value, self.words()) if isinstance(value, str) else ""
            raise ValueError(f"{refused(self.wants, value)}{'.' if hint else ''}{hint}")
        return value


@dataclass(frozen=True, slots=True)
class ListValue:
    """A list in which each item stands once; `may_be_text` takes a single item as it is, too."""

    item: Value
    name: str
    may_be_text: bool = False
    may_be_empty: bool = True

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        return f"a list of {self.name}"

    def read(self, value: object) -> tuple[Any, ...]:  # noqa: D102 - as Value
        values = [value] if self.may_be_text and isinstance(value, str) else value
        if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > _MAX_ITEMS:
            raise refused(self.wants, value)
        if not values and not self.may_be_empty:
            raise refused(f"{self.wants} with at least one of them", value)
        found: list[Any] = []
        for each in values:
            try:
                item = self.item.read(each)
            except ValueError as error:
                raise ValueError(f"is a list of {self.name}, each of which {error}") from error
            if item in found:
                raise ValueError(f"has {printable(json.dumps(item, default=str))} twice")
            found.append(item)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class ConvertedValue:
    """A value that a function makes of a text; it raises ValueError with the reason."""

    wants: str
    convert: Callable[[str], Any]
    tells_why: bool = False

    def read(self, value: object) -> Any:  # noqa: ANN401, D102 - as Value
        if not isinstance(value, str):
            raise refused(self.wants, value)
        try:
            return self.convert(value)
        except ValueError as error:
            reason = f": {printable(str(error).rstrip('.'))}" if self.tells_why else ""
            raise ValueError(f"{refused(self.wants, value)}{reason}") from error
