"""Settings on the command line: click reads them by the types of ebpfprof.settings.values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import (
    ConvertedValue,
    SwitchValue,
    TimeValue,
    Value,
    WordValue,
    sentence,
)

_MAX_PID: Final = (1 << 31) - 1
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class WrongValue(click.BadParameter):
    """A value that was refused: `message` is the end of a sentence, as of Value.read()."""

    def format_message(self) -> str:
        """The sentence, which begins with the option."""
        name = ""
        if isinstance(self.param, click.Option):
            name = max(self.param.opts, key=len)
        elif self.param is not None:
            name = self.param.human_readable_name.strip("[].")
        return sentence(name, ValueError(self.message))


class Typed(click.ParamType[Any]):
    """A type of settings, as click wants it."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self.name = type(value).__name__

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # noqa: ANN401 - depends on the type
        """The setting. Raises WrongValue."""
        try:
            if isinstance(value, str):
                return self._value.parse(value)
            return self._value.read(value)
        except ValueError as error:
            raise WrongValue(str(error), ctx, param) from error


class OneOf(click.Choice[str]):
    """One of some words, which help and completion show."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The word. Raises WrongValue."""
        word: str = Typed(one_of([str(word) for word in self.choices])).convert(value, param, ctx)
        return word


def one_of(words: Collection[str]) -> WordValue:
    """The type of settings that are one of these words."""
    return WordValue(lambda: words)


def duration(least_s: float = 0.0, most_s: float = math.inf, *, may_be_0: bool = False) -> Typed:
    """A length of time, in seconds; see TimeValue."""
    return Typed(TimeValue(least_s, most_s, may_be_0))


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= _MAX_PID):
        raise ValueError
    return int(text)


PID: Final = ConvertedValue(
    f"a process id, a number from 1 to {_MAX_PID} (--name selects processes by name)", _pid
)


def list_of(value: Value) -> Callable[..., list[Any]]:
    """A callback that makes a flat list of an option that may be given several times.

    Each text may have several items between commas. Raises WrongValue.
    """

    def convert(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[Any]:
        parts = (part.strip() for text in values for part in text.split(","))
        one = Typed(value)
        return list(dict.fromkeys(one.convert(part, param, ctx) for part in parts))

    return convert


def option_of(setting: Setting) -> click.Option:
    """The option of a setting, which is passed by the setting's name."""
    names, attributes = _option(setting)
    return click.Option(names, **attributes)


def with_setting(setting: Setting, **changes: Any) -> Decorator:  # noqa: ANN401 - fields of Setting
    """A decorator for the option of a setting; `changes` of the setting are for this verb."""
    names, attributes = _option(replace(setting, **changes))
    return click.option(*names, **attributes)


def _option(setting: Setting) -> tuple[list[str], dict[str, Any]]:
    """The names and the other arguments of click.Option."""
    common = {"default": setting.default, "help": setting.help}
    names = [setting.flags, setting.name]
    if isinstance(setting.value, SwitchValue):
        return names, {**common, "is_flag": True, "show_default": "/" in setting.flags}
    typed = {"type": Typed(setting.value), "metavar": setting.metavar or None}
    return names, {**common, **typed, "show_default": True}
