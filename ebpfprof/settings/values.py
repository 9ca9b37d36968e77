"""The types of settings: what each takes, and one error text for each kind of mistake.

They are the same on the command line, in the environment, in config.toml and in agent.toml. A
mistake raises ValueError with the end of a sentence: "must be a time from 1s to 1h, not 5". Its
beginning is the place: a flag, a variable, or a file with a line and a key.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ebpfprof.console.quantities import bytes_of, seconds_of, similar
from ebpfprof.console.text import printable

_MAX_SHOWN: Final = 60
_MAX_TEXT: Final = 4096
_MAX_ITEMS: Final = 1000
_URL: Final = re.compile(r"[!-~]+", re.ASCII)
LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}", re.ASCII)
ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


class Value(ABC):
    """A type of settings."""

    __slots__ = ()
    if TYPE_CHECKING:  # dataclasses would take it for the default of a field

        @property
        def wants(self) -> str:
            """What it takes, in words: "a time from 1s to 1h"."""

    @abstractmethod
    def read(self, value: object) -> Any:  # noqa: ANN401 - depends on the type
        """The setting that a TOML value stands for. Raises ValueError."""

    def parse(self, text: str) -> Any:  # noqa: ANN401 - depends on the type
        """The setting that a text stands for, from the command line or a variable.

        Raises ValueError.
        """
        return self.read(text)


def refused(wants: str, value: object) -> ValueError:
    """The error for a value that is not what is wanted."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # a number of thousands of digits
        text = "a number that is too large"
    shown = printable(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
    return ValueError(f"must be {wants}, not {shown}")


def sentence(place: str, error: ValueError) -> str:
    """The message for a value that was refused; `place` says where the value is."""
    text = f"{place} {error}"
    return text if text.endswith(("?", ".")) else f"{text}."


@dataclass(frozen=True, slots=True)
class SwitchValue(Value):
    """Yes or no."""

    wants: str = "true or false"

    def read(self, value: object) -> bool:  # noqa: D102 - as Value
        if not isinstance(value, bool):
            raise refused(self.wants, value)
        return value


@dataclass(frozen=True, slots=True)
class NumberValue(Value):
    """A number from `least` to `most`; a whole one unless `is_fraction`."""

    least: float = 0
    most: float = (1 << 31) - 1
    is_fraction: bool = False

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        kind = "number" if self.is_fraction else "whole number"
        most = self.most if isinstance(self.most, int) else f"{self.most:g}"
        return f"a {kind} from {self.least:g} to {most}"

    def read(self, value: object) -> float:  # noqa: D102 - as Value
        is_number = isinstance(value, int | float if self.is_fraction else int)
        if not is_number or isinstance(value, bool) or not self.least <= value <= self.most:  # type: ignore[operator]  # a number
            raise refused(self.wants, value)
        return value  # type: ignore[return-value]  # the same

    def parse(self, text: str) -> float:  # noqa: D102 - as Value
        return self.read(_number(text, is_fraction=self.is_fraction))


def _number(text: str, *, is_fraction: bool) -> float | str:
    """The number in a text, as TOML would read it; the text itself if it is not a number."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text) if is_fraction else text
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class TimeValue(Value):
    """A length of time in seconds, from `least` to `most`; 0 only if it `may_be_0`."""

    least: float = 0.0
    most: float = math.inf
    may_be_0: bool = False

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        least, most = time_text(self.least), time_text(self.most)
        has_least, has_most = self.least > 0 or self.may_be_0, self.most < math.inf
        if has_least and has_most:
            bounds = f" from {least} to {most}"
        elif has_most:
            bounds = f" of more than 0 and at most {most}"
        else:
            bounds = f" of at least {least}" if has_least else " of more than 0"
        return f'a time{bounds}, such as "{least if self.least else "10s"}"'

    def read(self, value: object) -> float:  # noqa: D102 - as Value
        is_time = isinstance(value, str | int | float) and not isinstance(value, bool)
        seconds = _seconds(value) if is_time else None
        if seconds is None or not self.least <= seconds <= self.most:
            raise refused(self.wants, value)
        if seconds == 0 and not self.may_be_0:
            raise refused(self.wants, value)
        return seconds


def _seconds(value: object) -> float | None:
    try:
        return seconds_of(str(value).strip()[:_MAX_SHOWN], has_days=True)
    except ValueError:  # Python writes no number of thousands of digits
        return None


def time_text(seconds: float) -> str:
    """A length of time as a user may write it: 1h, 90s, 7d, 500ms."""
    if seconds == math.inf:
        return "inf"
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{digits(seconds / unit_s)}{unit}"
    milliseconds = round(seconds * 1000)
    if 0 < seconds < 1 and milliseconds * 1e-3 == seconds:
        return f"{milliseconds}ms"
    return f"{digits(seconds)}s"


def digits(number: float) -> str:
    """All digits of a number, without an exponent, which a time can't have."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def size_text(size: int) -> str:
    """A size as a user may write it: 512MiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


@dataclass(frozen=True, slots=True)
class SizeValue(Value):
    """A number of bytes."""

    least: int
    most: int

    @property
    def wants(self) -> str:  # noqa: D102 - as Value
        least, most = size_text(self.least), size_text(self.most)
        return f'a size from {least} to {most}, such as "{least}"'

    def read(self, value: object) -> int:  # noqa: D102 - as Value
        is_size = isinstance(value, str | int) and not isinstance(value, bool)
        size = _bytes(value) if is_size else None
        if size is None or not self.least <= size <= self.most:
            raise refused(self.wants, value)
        return size


def _bytes(value: object) -> int | None:
    try:
        return bytes_of(str(value).strip()[:_MAX_SHOWN])
    except ValueError:  # Python writes no number of thousands of digits
        return None


@dataclass(frozen=True, slots=True)
class TextValue(Value):
    """A text; it matches `form`. Without `form`, it has no control characters."""

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
class PathValue(Value):
    """An absolute path."""

    wants: str = 'an absolute path, such as "/var/lib/ebpfprof"'

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        is_path = isinstance(value, str) and value.startswith("/") and len(value) <= _MAX_TEXT
        if not is_path or "\0" in str(value):
            raise refused(self.wants, value)
        return str(value)


@dataclass(frozen=True, slots=True)
class UrlValue(Value):
    """The URL of a server. A URL with a user or a password is refused.

    It takes one of `words`, too. `login` names the settings for the user and the password.
    """

    wants: str = 'an address, such as "https://pyroscope.example:4040"'
    words: tuple[str, ...] = ()
    login: str = "username and password_file"

    def read(self, value: object) -> str:  # noqa: D102 - as Value
        if isinstance(value, str) and value in self.words:
            return value
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise refused(self.wants, value)
        try:
            parts = urlsplit(value)
            is_server = parts.scheme in ("http", "https") and bool(parts.hostname)
            has_more = bool(parts.query or parts.fragment or parts.port == 0)
        except ValueError:
            raise refused(self.wants, value) from None
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"must have no user and password: use {self.login}")
        if not is_server or has_more or not value.isascii() or not _URL.fullmatch(value):
            raise refused(self.wants, value)
        return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class WordValue(Value):
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
class ListValue(Value):
    """A list without duplicates. With `may_be_text`, a single item needs no list around it."""

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
            raise refused(f"{self.wants} with at least one item", value)
        items: list[Any] = []
        for one in values:
            try:
                item = self.item.read(one)
            except ValueError as error:
                raise ValueError(f"is a list of {self.name}: each item {error}") from error
            if item in items:
                raise ValueError(
                    f"has {printable(json.dumps(item, default=str, ensure_ascii=False))} twice"
                )
            items.append(item)
        return tuple(items)

    def parse(self, text: str) -> tuple[Any, ...]:
        """The items between commas; duplicates are ignored. Raises ValueError."""
        return tuple(dict.fromkeys(self.item.parse(part.strip()) for part in text.split(",")))


@dataclass(frozen=True, slots=True)
class ConvertedValue(Value):
    """A text that `convert` turns into something else. `convert` raises ValueError.

    With `shows_reason`, the message has the reason that `convert` gave.
    """

    wants: str
    convert: Callable[[str], Any]
    shows_reason: bool = False

    def read(self, value: object) -> Any:  # noqa: ANN401, D102 - as Value
        if not isinstance(value, str):
            raise refused(self.wants, value)
        try:
            return self.convert(value)
        except ValueError as error:
            reason = f": {printable(str(error).rstrip('.'))}" if self.shows_reason else ""
            raise ValueError(f"{refused(self.wants, value)}{reason}") from error
