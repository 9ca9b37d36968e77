"""Options that several verbs share: those of recording, and how to write what was recorded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ebpfprof.commands.parameter_types import Duration, Number, OneOf
from ebpfprof.commands.verb import Verb
from ebpfprof.console.text import printable
from ebpfprof.export.formats import FORMATS, PROFILES, of_name

if TYPE_CHECKING:
    from ebpfprof.profile.kind import Option, ProfileKind
    from ebpfprof.profilers.options import Options

_TAKES_ALL = "ebpfprof.takes_all_kinds"
_ALL = "all"
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9_-]*")  # not the ".2" of shop-1.2


def list_of(inner: click.ParamType[Any]) -> Callable[..., list[Any]]:
    """A callback that makes a flat list of an option that may be given several times."""

    def convert(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[Any]:
        parts = (part.strip() for value in values for part in value.split(","))
        return list(dict.fromkeys(inner.convert(part, param, ctx) for part in parts))

    return convert


def _label_keys(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[str, ...] | None:
    """The keys named; none of them, (), for the word "none", and None for "all"."""
    keys = list_of(click.STRING)(ctx, param, values)
    if keys == ["all"]:
        return None
    if keys == ["none"]:
        return ()
    if "" in keys or {"all", "none"} & set(keys):
        raise click.BadParameter("Say all, none, or which keys.", ctx, param)
    return tuple(keys)


def duration_option(*, default: float | None, help: str) -> Callable[..., Any]:
    """The option -d/--duration, passed as `duration_s`: Go's 10s, 1m30s, or seconds."""
    return click.option(
        "-d",
        "--duration",
        "duration_s",
        type=Duration(),
        metavar="TIME",
        default=default,
        show_default=True,
        help=help,
    )


def writing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: what to write and where, passed as `writing: Writing` and `output`."""

    @functools.wraps(command)
    def with_writing(*args: Any, **values: Any) -> Any:  # noqa: ANN401 - click's
        from ebpfprof.commands.results import Writing

        name = format_for(values.pop("format_name"), values["output"], default="pprof")
        chosen = {
            field: values.pop(field) for field in ("hide_idle", "force", "is_quiet", "is_long")
        }
        writing = Writing(name, **chosen)
        return command(*args, writing=writing, **values)

    for option in reversed(_WRITING_OPTIONS):
        with_writing = option(with_writing)
    return with_writing


def require_one_for_stdout(output: Path | None, profiles: int) -> None:
    """Raise click.UsageError if so many profiles would go to stdout, which holds one."""
    if str(output) == "-" and profiles > 1:
        raise click.UsageError(
            f"-o -: standard output holds one profile, and there are {profiles} to write. Choose "
            "one with --profile, or give -o a name."
        )


def format_option(formats: Sequence[str], *, default: str, help: str) -> Callable[..., Any]:
    """The option -f/--format, passed as `format_name`; None stands for what format_for() says."""
    return click.option(
        "-f",
        "--format",
        "format_name",
        type=OneOf(formats),
        help=f"{help}  [default: as FILE's name ends, else {default}]",
    )


def format_for(
    given: str | None, output: Path | None, *, default: str, formats: Sequence[str] = PROFILES
) -> str:
    """The format to write: the one that was given, else as the name of `output` ends.

    The `default` where the name has no ending. Raises click.UsageError if the ending is of none of
    `formats`.
    """
    if given or output is None:
        return given or default
    named = of_name(output.name)
    if named and named in formats:
        return named
    _require_no_ending(output, formats)
    return default


def _require_no_ending(output: Path, formats: Sequence[str]) -> None:
    """Raise click.UsageError if a file name ends as that of a format: it is none of these."""
    if _ENDING.fullmatch(output.suffix):
        known = ", ".join(f"{FORMATS[name].suffix} ({name})" for name in formats)
        raise click.UsageError(
            f"{printable(output.name)}: there is no format for names that end like this. Known "
            f"are {known}. Or choose the format with -f."
        )


def output_option(*, default: str) -> Callable[..., Any]:
    """The option -o/--output, passed as `output: Path | None`."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help="Where to write, - for stdout. With several profiles, the name of each gets its "
        f"kind. A file that is there is not replaced: see --force.  [default: {default}]",
    )


FORCE_OPTION = click.option(
    "--force", is_flag=True, help="Replace the file that -o names, if it is there."
)
IDLE_OPTION = click.option(
    "--hide-idle/--show-idle",
    "hide_idle",
    default=None,
    help="Hide or show idle waits: workers without work, tickers, servers that listen.  [default: "
    "hidden in tables, text and HTML, with a line that says how much; other formats have all]",
)
ALLOW_UNKNOWN_GO_OPTION = click.option(
    "--allow-unknown-go",
    is_flag=True,
    help="Also read programs of an unknown Go version, as the nearest known one.",
)


class RecordingCommand(Verb):
    """A verb that records. Its function gets all recording options as one `options: Options`.

    They are those that the profile kinds declare, and what all kinds have in common; but for
    `without`, fields that make no sense for this verb and keep their defaults. They are made when
    they are asked for: `ebpfprof --help` does not import the kinds.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
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
            made = {name: each for name, each in _made().items() if name not in self._without}
            self._kinds, self._fields = kinds(), tuple(made)
            self.params = [*self._own, *made.values()]
        return super().get_params(ctx)

    def alternatives(self) -> list[frozenset[str]]:
        """The options that say which events to record exclude the bound for the cost."""
        from ebpfprof.profilers.registry import options_of_kinds

        options = [option for option, _ in options_of_kinds().values()]
        choosing = {option.field for option in options if option.chooses_events}
        return [frozenset({"max_overhead", *choosing})]

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Call the verb's function. Raises click.UsageError if options contradict each other."""
        given = {name: ctx.params.pop(name) for name in self._fields}
        ctx.params["options"] = _options(ctx, given)
        return super().invoke(ctx)


def _options(ctx: click.Context, given: dict[str, Any]) -> Options:
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.registry import options_of_kinds

    offered = [each for name, each in options_of_kinds().items() if name in given]
    given["kinds"] = [*given["kinds"]]
    for option, kind in offered:
        is_added = option.field == kind.added_by and given[option.field]
        if is_added and kind.name not in given["kinds"]:
            given["kinds"].append(kind.name)
    for option, kind in offered:
        is_typed = ctx.get_parameter_source(option.field) is ParameterSource.COMMANDLINE
        is_about_a_choice = (
            is_typed
            and kind.is_chosen_by_name
            and option.field != kind.added_by
            and given[option.field] != option.default
        )
        if is_about_a_choice and kind.name not in given["kinds"]:
            asked_for = ",".join((*given["kinds"], kind.name))
            raise click.UsageError(
                f"{_typed(option)} is about the {kind.name} profile, which is not recorded: add "
                f"it, with --profile {asked_for}.",
                ctx,
            )

    def is_given(name: str) -> bool:
        return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT

    for option, kind in offered:
        if option.chooses_events and is_given(option.field) and given["max_overhead"]:
            if is_given("max_overhead"):
                raise click.UsageError(
                    f"{_typed(option)} and --max-overhead both say which {kind.events} to record: "
                    "choose one.",
                    ctx,
                )
            given["max_overhead"] = 0.0
    return Options(**given, kinds_given=is_given("kinds") and not ctx.meta.get(_TAKES_ALL))


def _typed(option: Option) -> str:
    """What the user types for another value than the default."""
    on, *off = option.flags.split("/")
    return off[0] if off and option.default else on


def _complete_kinds(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """For a shell: the kinds that the last of a list may be."""
    from ebpfprof.profilers.registry import kinds_to_choose

    before, comma, last = begun.rpartition(",")
    others = [kind.name for kind in kinds_to_choose() if kind.name not in before.split(",")]
    others += [] if comma else [_ALL]
    return [CompletionItem(before + comma + kind) for kind in others if kind.startswith(last)]


def _kinds(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """The kinds named; for the word "all" every one that --profile offers."""
    from ebpfprof.profilers.registry import kinds_to_choose

    names = [kind.name for kind in kinds_to_choose()]
    chosen: list[str] = list_of(OneOf([*names, _ALL]))(ctx, param, values)
    ctx.meta[_TAKES_ALL] = _ALL in chosen  # a program that is not Go's then gets those it can have
    return names if _ALL in chosen else chosen


def _made() -> dict[str, click.Option]:
    """The recording options by their fields in Options, in the order in which help shows them."""
    from ebpfprof.profilers.registry import kinds_to_choose, options_of_kinds

    names = [kind.name for kind in kinds_to_choose()]
    default = [kind.name for kind in kinds_to_choose() if kind.is_default]
    of_kinds = {name: _of_kind(option) for name, (option, _) in options_of_kinds().items()}
    return {
        "kinds": click.Option(
            ["--profile", "kinds"],
            callback=_kinds,
            metavar="KIND[,KIND...]|all",
            multiple=True,
            default=default,
            shell_complete=_complete_kinds,
            help=f"What to record: {', '.join(names)}. all: every one of them that the program can "
            f"have.  [default: {','.join(default)}]",
        ),
        **of_kinds,
        "max_overhead": click.Option(
            ["--max-overhead"],
            type=Number(0, 100, is_fraction=True),
            metavar="PERCENT",
            default=1,
            show_default=True,
            help="Allowed overhead, of the program's CPU time. If recording every wait takes more, "
            "ebpfprof records short windows and scales them up. 0: every wait.",
        ),
        "labels": click.Option(
            ["--labels"],
            callback=_label_keys,
            metavar="all|none|KEY[,KEY...]",
            multiple=True,
            default=("all",),
            show_default=True,
            help="Which of the labels that the program gave its goroutines (runtime/pprof) to "
            "show.",
        ),
        "allow_unknown_go": click.Option(
            ["--allow-unknown-go"],
            is_flag=True,
            help="Try a Go version that is not known, with the layout of the nearest one that is.",
        ),
    }


def _of_kind(option: Option) -> click.Option:
    """An option that a kind declares."""
    if isinstance(option.default, bool):
        return click.Option(
            [option.flags, option.field],
            is_flag=True,
            default=option.default,
            show_default="/" in option.flags,
            help=option.help,
        )
    return click.Option(
        [option.flags, option.field],
        type=Number(option.least, option.most),
        metavar=option.metavar or None,
        default=option.default,
        show_default=True,
        help=option.help,
    )


_WRITING_OPTIONS = (
    output_option(default="COMMAND-PID-DATE-TIME.KIND.SUFFIX"),
    FORCE_OPTION,
    format_option(PROFILES, default="pprof", help="What to write."),
    IDLE_OPTION,
    click.option(
        "-q",
        "--quiet",
        "is_quiet",
        is_flag=True,
        help="Say only where the files are, and what is wrong: no progress, no tables.",
    ),
    click.option(
        "--long",
        "is_long",
        is_flag=True,
        help="Show more rows than fit the terminal, and all about cost and errors.",
    ),
)
