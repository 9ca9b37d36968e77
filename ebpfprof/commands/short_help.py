"""The help of a verb for a terminal of 80x24: examples first, then the usual options."""

from __future__ import annotations

import inspect
import re
from typing import Final

import click

_MOST_LINES: Final = 23  # the prompt takes one
_COLUMNS: Final = 80
_EXAMPLES: Final = 4
_USUAL: Final = (
    "duration_s",
    "since",
    "until",
    "at",
    "compare_s",
    "kinds",
    "names",
    "address",
    "continuous",
    "token_mode",
    "once",
    "interval_s",
    "watch",
    "all_goroutines",
    "output",
    "format_name",
    "max_overhead",
    "hide_idle",
    "by_lock",
    "all_go",
    "per_second",
    "as_json",
    "pids",
)
"""The options that most users need, the most important first."""


_CHOICES: Final = re.compile(r"\[\w+(\|\w+)+\]")  # the words that an option takes


def fits(text: str) -> bool:
    """Whether a text fits the screen, with the prompt below it."""
    return sum(max(-(-len(line) // _COLUMNS), 1) for line in text.splitlines()) <= _MOST_LINES


def short_help(command: click.Command, ctx: click.Context) -> str:
    """The help with as many of the usual options as fit."""
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    usual = [option for name in _USUAL for option in options if option.name == name]
    chosen: list[click.Option] = []
    for option in usual:
        if fits(_with(command, ctx, options, [*chosen, option])):
            chosen.append(option)
    return _with(command, ctx, options, chosen)


def _with(
    command: click.Command,
    ctx: click.Context,
    options: list[click.Option],
    shown: list[click.Option],
) -> str:
    formatter = ctx.make_formatter()
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    first, *passages = inspect.cleandoc(command.help or "").split("\n\n")
    with formatter.indentation():
        formatter.write_text(" ".join(first.split()))
        for passage in passages:
            if passage.startswith("\b\n"):
                formatter.write_paragraph()
                heading, *lines = passage.splitlines()[1:]
                lines = [heading, *[line for line in lines if len(line) < _COLUMNS - 4][:_EXAMPLES]]
                formatter.write_text("\n".join(["\b", *lines]))
    records = [option.get_help_record(ctx) for option in options if option in shown]
    rows = [(_typed(typed), _first_words(text)) for typed, text in filter(None, records)]
    if rows:
        with formatter.section("Options"):
            formatter.write_dl(rows)
    formatter.write_paragraph()
    formatter.write_text(f"{ctx.command_path} --help-all shows all options.")
    return formatter.getvalue().rstrip("\n")


def _typed(text: str) -> str:
    """An option with its value, without the list of words that it takes."""
    name = re.search(r"--([a-z-]+)", text)
    return _CHOICES.sub(name[1].upper(), text) if name else text


def _first_words(text: str) -> str:
    """The first sentence, up to a semicolon or a colon."""
    return re.split(r"[.;:]\s|\s\s\[", text)[0].rstrip(".")
