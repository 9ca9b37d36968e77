"""The recording options: those of the profile kinds, and those that all kinds share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ebpfprof.commands.parameter_types import WrongValue, list_of, one_of, option_of
from ebpfprof.commands.verb import Verb
from ebpfprof.settings.recording import ALLOW_UNKNOWN_GO, BY_HANDLER, MAX_OVERHEAD, RUNTIME
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import TextValue, refused

if TYPE_CHECKING:
    from ebpfprof.profile.kind import ProfileKind
    from ebpfprof.profilers.options import Options

_TAKES_ALL = "ebpfprof.takes_all_kinds"
_ALL = "all"


class RecordingCommand(Verb):
    """A verb that records. Its function gets all recording options as one `options: Options`.

    They are the options that profile kinds declare, and those that all kinds share. Those in
    `without` make no sense for this verb and keep their defaults. They are made on demand:
    `ebpfprof --help` does not import the kinds.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - what click.Option takes
        without: Collection[str] = (),
        **settings: Any,  # noqa: ANN401 - click's
    ) -> None:
        super().__init__(*args, **settings)
        self._own, self._without = self.params, without
        self._kinds: tuple[ProfileKind, ...] = ()
        self._fields: tuple[str, ...] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, the recording options after the verb's own."""
        from ebpfprof.profilers.registry import kinds

        if self._kinds != kinds():
            made = {name: one for name, one in _made().items() if name not in self._without}
            self._kinds, self._fields = kinds(), tuple(made)
            self.params = [*self._own, *made.values()]
        return super().get_params(ctx)

    def alternatives(self) -> list[frozenset[str]]:
        """Options of kinds, and the settings that they exclude."""
        from ebpfprof.profilers.registry import options_of_kinds

        options = [option for option, _ in options_of_kinds().values()]
        excluded = {option.excludes for option in options if option.excludes}
        return [
            frozenset({name, *(option.name for option in options if option.excludes == name)})
            for name in excluded
        ]

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Call the verb's function. Raises click.UsageError if options contradict each other."""
        given = {name: ctx.params.pop(name) for name in self._fields}
        ctx.params["options"] = _options(ctx, given)
        return super().invoke(ctx)


def _options(ctx: click.Context, given: dict[str, Any]) -> Options:
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.registry import options_of_kinds

    offered = [one for name, one in options_of_kinds().items() if name in given]
    given["kinds"] = [*given["kinds"]]
    for option, kind in offered:
        is_added = option.name == kind.added_by and given[option.name]
        if is_added and kind.name not in given["kinds"]:
            given["kinds"].append(kind.name)
    for option, kind in offered:
        is_typed = ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        is_about_a_choice = (
            is_typed
            and kind.is_chosen_by_name
            and option.name != kind.added_by
            and given[option.name] != option.default
        )
        if is_about_a_choice and kind.name not in given["kinds"]:
            asked_for = ",".join((*given["kinds"], kind.name))
            raise click.UsageError(
                f"{_typed(option)} needs the {kind.name} profile, which is not recorded: add "
                f"--profile {asked_for}.",
                ctx,
            )

    def is_given(name: str) -> bool:
        return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT

    for option, kind in offered:
        other = option.excludes
        if other and is_given(option.name) and given[other]:
            if is_given(other):
                raise click.UsageError(
                    f"{_typed(option)} and --{other.replace('_', '-')} both say which "
                    f"{kind.events} to record: choose one.",
                    ctx,
                )
            given[other] = 0.0
    return Options(**given, kinds_given=is_given("kinds") and not ctx.meta.get(_TAKES_ALL))


def _typed(option: Setting) -> str:
    """What the user types for another value than the default."""
    on, *off = option.flags.split("/")
    return off[0] if off and option.default else on


def _complete_kinds(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The completions for the last kind of a list."""
    from ebpfprof.profilers.registry import kinds_to_choose

    before, comma, last = begun.rpartition(",")
    others = [kind.name for kind in kinds_to_choose() if kind.name not in before.split(",")]
    others += [] if comma else [_ALL]
    return [CompletionItem(before + comma + kind) for kind in others if kind.startswith(last)]


def _kinds(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """The kinds named; for the word "all" every one that --profile offers."""
    from ebpfprof.profilers.registry import kinds_to_choose

    names = [kind.name for kind in kinds_to_choose()]
    chosen: list[str] = list_of(one_of([*names, _ALL]))(ctx, param, values)
    ctx.meta[_TAKES_ALL] = _ALL in chosen  # other programs than Go's then get those they can have
    return names if _ALL in chosen else chosen


def _label_keys(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[str, ...] | None:
    """The keys; none of them, (), for the word "none", and None for "all"."""
    keys = list_of(TextValue(may_be_empty=True))(ctx, param, values)
    if keys == ["all"]:
        return None
    if keys == ["none"]:
        return ()
    if "" in keys or {"all", "none"} & set(keys):
        raise WrongValue(str(refused("all, none, or a list of keys", ",".join(keys))))
    return tuple(keys)


def _made() -> dict[str, click.Option]:
    """The recording options by their fields in Options, in the order of the help."""
    from ebpfprof.profilers.registry import kinds_to_choose, options_of_kinds

    names = [kind.name for kind in kinds_to_choose()]
    default = [kind.name for kind in kinds_to_choose() if kind.is_default]
    of_kinds = {name: option_of(option) for name, (option, _) in options_of_kinds().items()}
    return {
        "kinds": click.Option(
            ["--profile", "kinds"],
            callback=_kinds,
            metavar="KIND[,KIND...]|all",
            multiple=True,
            default=default,
            shell_complete=_complete_kinds,
            help=f"Profiles to record: {', '.join(names)}. all: all that the program can have.  "
            f"[default: {','.join(default)}]",
        ),
        **of_kinds,
        MAX_OVERHEAD.name: option_of(MAX_OVERHEAD),
        "labels": click.Option(
            ["--labels"],
            callback=_label_keys,
            metavar="all|none|KEY[,KEY...]",
            multiple=True,
            default=("all",),
            show_default=True,
            help="Goroutine labels (runtime/pprof) to show.",
        ),
        BY_HANDLER.name: option_of(BY_HANDLER),
        RUNTIME.name: option_of(RUNTIME),
        ALLOW_UNKNOWN_GO.name: option_of(ALLOW_UNKNOWN_GO),
    }
