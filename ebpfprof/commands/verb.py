"""What all verbs have in common: their help, and where the values of options come from.

The command line beats the environment, that the user's configuration file, and that the one in
/etc. A verb's own table beats what a file says for all verbs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import click

from ebpfprof.commands.config_file import ConfigFile, config_files
from ebpfprof.commands.short_help import fits, short_help
from ebpfprof.console.quantities import similar
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig

VERBS = (
    *("attach", "run", "trace", "list", "dump", "memory", "top", "serve"),
    *("agent", "history", "report", "diff", "doctor", "completion"),
)
"""In the order in which the help shows them; each is `command` in ebpfprof.commands.VERB."""

INTERNAL_VERBS: Final = ("served-trace",)
"""What ebpfprof starts itself, which no help shows."""

_ALTERNATIVES: Final = (
    frozenset({"pid_arguments", "pids", "names", "containers", "all_go"}),
    frozenset({"batches", "once"}),
    frozenset({"normalize", "per_second"}),
    frozenset({"token_file", "token_mode"}),
    frozenset({"since", "until", "at"}),
    frozenset({"compare_s", "compare_with"}),
)
"""Parameters of which one on the command line replaces what files and environment say of all."""

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
        """What fits the screen; all of it for --help-all."""
        text = super().get_help(ctx)
        return text if fits(text) or ctx.meta.get(_SHOWS_ALL) else short_help(self, ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with these defaults. Raises BadConfig for a wrong one."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        typed = self._typed(ctx, args)
        is_for_help = any(each.is_eager and each.name in typed for each in _options(self, ctx))
        defaults = {} if is_for_help else self._defaults(ctx)
        for group in (*_ALTERNATIVES, *self.alternatives()):
            if group & typed:
                defaults = {name: each for name, each in defaults.items() if name not in group}
        ctx.default_map = {name: value for name, (value, _) in defaults.items()}
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = (error.param and error.param.name) or ""
            if name in typed or name not in defaults:
                raise
            raise BadConfig(f"{defaults[name][1]}: {error.message}") from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the verb, once its output file can be written. Raises OutputError if it can't."""
        if output := ctx.params.get("output"):
            from ebpfprof.console.output_file import require_free_place

            require_free_place(output, replaces=bool(ctx.params.get("force")))
        return super().invoke(ctx)

    def alternatives(self) -> Iterable[frozenset[str]]:
        """Further groups of parameters of which the command line chooses."""
        return ()

    def _typed(self, ctx: click.Context, args: list[str]) -> set[str]:
        """The names of the parameters on the command line."""
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        arguments = {each.name for each in self.get_params(ctx) if isinstance(each, click.Argument)}
        return {
            name
            for name, value in values.items()
            if name not in arguments or (isinstance(value, str | tuple | list) and value)
        }

    def _defaults(self, ctx: click.Context) -> dict[str, tuple[Any, str]]:
        """By parameter: the value that replaces the default, and where it stands."""
        options = settable(_options(self, ctx))
        found: dict[str, tuple[Any, str]] = {}
        for file in config_files():
            for key, where, value in _settings(file, self.name or "", options):
                found[options[key].name or ""] = (_value(value, options[key], where), where)
        for key, option in options.items():
            if text := os.environ.get(variable(key)):
                if option.is_flag and text.lower() not in _SWITCH:
                    raise BadConfig(f"{variable(key)}: The value must be 1 or 0.")
                found[option.name or ""] = ((text,) if option.multiple else text, variable(key))
        return found


def variable(key: str) -> str:
    """The environment variable of an option: EBPFPROF_MAX_OVERHEAD of max-overhead."""
    return "EBPFPROF_" + key.upper().replace("-", "_")


def _options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    return [each for each in command.get_params(ctx) if isinstance(each, click.Option)]


def settable(options: Iterable[click.Option]) -> dict[str, click.Option]:
    """The options that can have a default in a file, by their long names without dashes."""
    return {
        next(each for each in option.opts if each.startswith("--"))[2:]: option
        for option in options
        if not option.is_eager
    }


def _settings(
    file: ConfigFile, verb: str, options: dict[str, click.Option]
) -> list[tuple[str, str, Any]]:
    """What a file says for a verb, the verb's own table last: keys, places, values."""
    general, own = [], []
    for key, value in file.tables.items():
        where = file.where(key)
        if key in VERBS:
            if not isinstance(value, dict):
                raise BadConfig(f"{where}: {key} must be a table, [{key}].")
            if key == verb:
                for name in value:
                    _require_known(name, options, file.where(name, key), f"{verb} has no option")
                own = [(name, file.where(name, key), each) for name, each in value.items()]
        elif key in options:
            general.append((key, where, value))
        else:
            known = {*VERBS, *(name for each in VERBS for name in _options_of(each))}
            _require_known(key, known, where, "There is no verb or option")
    return general + own


def _require_known(name: str, known: Iterable[str], where: str, reason: str) -> None:
    if name not in known:
        raise BadConfig(f"{where}: {reason} '{printable(name)}'.{similar(name, known)}")


def _options_of(verb: str) -> dict[str, click.Option]:
    command = import_module(f"ebpfprof.commands.{verb}").command
    # Without the option for help, which click would keep as this context has it.
    return settable(_options(command, click.Context(command, help_option_names=[])))


def _value(value: object, option: click.Option, where: str) -> Any:  # noqa: ANN401 - click's
    """A TOML value as the command line would have it. Raises BadConfig."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise BadConfig(f"{where}: The value must be true or false.")
        return value
    values = value if option.multiple and isinstance(value, list) else [value]
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in values):
        raise BadConfig(f"{where}: The value must be a text or a number.")
    try:
        texts = tuple(map(str, values))
    except ValueError as error:  # Python writes no number of thousands of digits
        raise BadConfig(f"{where}: The number is too large.") from error
    return texts if option.multiple else texts[0]
