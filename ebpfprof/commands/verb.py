"""What all verbs have in common: their help, and the sources of their options.

The command line beats the environment, the environment beats the user's configuration file, and
that beats the file in /etc. In a file, a verb's own table beats what is set for all verbs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import click

from ebpfprof.commands.config_file import config_files
from ebpfprof.commands.parameter_types import WrongValue
from ebpfprof.commands.short_help import fits, short_help
from ebpfprof.errors import BadConfig
from ebpfprof.settings.toml_file import TomlFile
from ebpfprof.settings.values import SwitchValue, refused, sentence

VERBS = (
    *("explain", "attach", "run", "trace", "list", "dump", "memory", "top", "serve"),
    *("agent", "history", "report", "diff", "doctor", "completion"),
)
"""In the order of the help. The code of each is `command` in ebpfprof.commands.VERB."""

INTERNAL_VERBS: Final = ("served-references", "served-trace")
"""Verbs that ebpfprof itself starts; no help shows them."""

_ALTERNATIVES: Final = (
    frozenset({"pid_arguments", "pids", "names", "containers", "all_go"}),
    frozenset({"batches", "once"}),
    frozenset({"normalize", "per_second"}),
    frozenset({"token_file", "token_mode"}),
    frozenset({"since", "until", "at"}),
    frozenset({"compare_s", "compare_with"}),
)
"""Groups of parameters. One on the command line replaces the defaults of its whole group."""

_SWITCH: Final = ("1", "true", "yes", "on", "0", "false", "no", "off")  # all known to click

_SHOWS_ALL: Final = "ebpfprof.shows_all_help"


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL: Final = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and exit.",
)


class Verb(click.Command):
    """A verb whose options have defaults in the environment and in configuration files."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, with --help-all."""
        return [*super().get_params(ctx), _HELP_ALL]

    def get_help(self, ctx: click.Context) -> str:
        """The help that fits the screen; all of it for --help-all."""
        text = super().get_help(ctx)
        return text if fits(text) or ctx.meta.get(_SHOWS_ALL) else short_help(self, ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with these defaults. Raises BadConfig for a wrong one."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        typed = self._typed(ctx, args)
        is_for_help = any(one.is_eager and one.name in typed for one in _options(self, ctx))
        defaults = {} if is_for_help else self._defaults(ctx)
        for group in (*_ALTERNATIVES, *self.alternatives()):
            if group & typed:
                defaults = {name: one for name, one in defaults.items() if name not in group}
        ctx.default_map = {name: default.value for name, default in defaults.items()}
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = (error.param and error.param.name) or ""
            if name in typed or name not in defaults:
                raise
            place = defaults[name].place()
            if isinstance(error, WrongValue):
                raise BadConfig(sentence(place, ValueError(error.message))) from error
            raise BadConfig(f"{place}: {error.message}") from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the verb after a check of its output file. Raises OutputError if that exists."""
        if output := ctx.params.get("output"):
            from ebpfprof.console.output_file import require_free_place

            require_free_place(output, replaces=bool(ctx.params.get("force")))
        return super().invoke(ctx)

    def alternatives(self) -> Iterable[frozenset[str]]:
        """Further groups of parameters that exclude each other, as _ALTERNATIVES has them."""
        return ()

    def _typed(self, ctx: click.Context, args: list[str]) -> set[str]:
        """The names of the parameters on the command line."""
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        arguments = {one.name for one in self.get_params(ctx) if isinstance(one, click.Argument)}
        return {
            name
            for name, value in values.items()
            if name not in arguments or (isinstance(value, str | tuple | list) and value)
        }

    def _defaults(self, ctx: click.Context) -> dict[str, _Default]:
        """The values that replace the declared defaults, by parameter. Raises BadConfig."""
        options = settable(_options(self, ctx))
        defaults: dict[str, _Default] = {}
        for file in config_files():
            for path, value in _values(file, self.name or "", options):
                option, place = options[path[-1]], partial(_place, file, path)
                defaults[option.name or ""] = _Default(_for_click(value, option, place), place)
        for key, option in options.items():
            name = variable(key)
            if text := os.environ.get(name):
                if option.is_flag and text.lower() not in _SWITCH:
                    raise BadConfig(sentence(name, refused("1 or 0", text)))
                value = (text,) if option.multiple else text
                defaults[option.name or ""] = _Default(value, partial(str, name))
        return defaults


@dataclass(frozen=True, slots=True)
class _Default:
    """A value from a file or the environment; `place` is how messages about it begin."""

    value: Any
    place: Callable[[], str]


def variable(key: str) -> str:
    """The environment variable of an option: EBPFPROF_MAX_OVERHEAD of max-overhead."""
    return "EBPFPROF_" + key.upper().replace("-", "_")


def _options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    return [one for one in command.get_params(ctx) if isinstance(one, click.Option)]


def settable(options: Iterable[click.Option]) -> dict[str, click.Option]:
    """The options that can have a default in a file, by their long names without dashes."""
    return {
        next(name for name in option.opts if name.startswith("--"))[2:]: option
        for option in options
        if not option.is_eager
    }


def _values(
    file: TomlFile, verb: str, options: dict[str, click.Option]
) -> list[tuple[tuple[str, ...], Any]]:
    """The values in a file for a verb, by their paths; the verb's own table comes last."""
    general: list[tuple[tuple[str, ...], Any]] = []
    own: list[tuple[tuple[str, ...], Any]] = []
    for key, value in file.tables.items():
        if key in VERBS:
            table = file.table(key)
            if key == verb:
                file.require_known(table, options, (key,), f"{verb} has no option")
                own = [((key, name), value) for name, value in table.items()]
        elif key in options:
            general.append(((key,), value))
        else:
            known = {*VERBS, *(name for one in VERBS for name in _options_of(one))}
            file.require_known([key], known, (), "There is no verb or option")
    return general + own


def _options_of(verb: str) -> dict[str, click.Option]:
    command = import_module(f"ebpfprof.commands.{verb}").command
    # Without the option for help, which click would keep as this context has it.
    return settable(_options(command, click.Context(command, help_option_names=[])))


def _place(file: TomlFile, path: tuple[str, ...]) -> str:
    return f"{file.place(path)}: {path[-1]}"


def _for_click(value: object, option: click.Option, place: Callable[[], str]) -> Any:  # noqa: ANN401 - click's
    """A TOML value as click wants it. Raises BadConfig."""
    if option.is_flag:
        try:
            return SwitchValue().read(value)
        except ValueError as error:
            raise BadConfig(sentence(place(), error)) from error
    values = value if option.multiple and isinstance(value, list) else [value]
    try:
        if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in values):
            raise ValueError
        texts = tuple(map(str, values))  # ValueError: a number of thousands of digits
    except ValueError as error:
        raise BadConfig(sentence(place(), refused("a text or a number", value))) from error
    return texts if option.multiple else texts[0]
