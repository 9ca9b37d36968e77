"""Options that several verbs share, and what is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.profile.model import Kind
    from ebpfprof.profilers.options import Options

KINDS = ("block", "mutex", "cpu")
FORMATS = ("pprof", "folded", "speedscope", "html", "json", "text")  # ebpfprof.export.formats
MAX_PID = (1 << 31) - 1


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


def finite(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """A callback that refuses a number of seconds that is none."""
    if not math.isfinite(value):
        raise click.BadParameter("This is no number of seconds.", ctx, param)
    return value


def duration_option(*, default: float | None, help: str) -> Callable[..., Any]:
    """The option -d/--duration, passed as `duration_s`."""
    return click.option(
        "-d",
        "--duration",
        "duration_s",
        type=click.FloatRange(min=0, min_open=True),
        callback=finite if default is not None else None,
        metavar="SECONDS",
        default=default,
        show_default=True,
        help=help,
    )


def writing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: what to write and where, passed as `writing: Writing` and `output`."""

    @functools.wraps(command)
    def with_writing(*args: Any, **values: Any) -> Any:  # noqa: ANN401
        from ebpfprof.commands.results import Writing

        name = format_for(values.pop("format_name"), values["output"], default="pprof")
        writing = Writing(name, hide_idle=values.pop("hide_idle"), force=values.pop("force"))
        return command(*args, writing=writing, **values)

    for option in reversed(_WRITING_OPTIONS):
        with_writing = option(with_writing)
    return with_writing


def format_option(formats: Sequence[str], *, default: str, help: str) -> Callable[..., Any]:
    """The option -f/--format, passed as `format_name`; None stands for what format_for() says."""
    return click.option(
        "-f",
        "--format",
        "format_name",
        type=click.Choice(formats),
        help=f"{help}  [default: as FILE's name ends, else {default}]",
    )


def format_for(
    given: str | None, output: Path | None, *, default: str, formats: Sequence[str] = FORMATS
) -> str:
    """The format to write: the one that was given, else as the name of `output` ends.

    Raises click.UsageError if that is none of `formats`.
    """
    if given or output is None:
        return given or default
    from ebpfprof.export.formats import of_name

    found = of_name(output.name) or default
    if found not in formats:
        raise click.UsageError(
            f"A file that is called {printable(output.name)} would be {found}, which can't be "
            f"written here: choose another name, or say with -f which of {', '.join(formats)} it "
            "is to be."
        )
    return found


def output_option(*, default: str) -> Callable[..., Any]:
    """The option -o/--output, passed as `output: Path | None`."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help=f"Where to write, - for stdout. A file that is there is not replaced: see --force.  "
        f"[default: {default}]",
    )


FORCE_OPTION = click.option(
    "--force", is_flag=True, help="Replace the file that -o names, if it is there."
)


def recording_options(
    *, without: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the options that say how to record, passed as one `options: Options`.

    `without` are fields of Options that make no sense for this verb; they keep their defaults.
    """
    offered = {name: each for name, each in _RECORDING_OPTIONS.items() if name not in without}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_options(*args: Any, **values: Any) -> Any:  # noqa: ANN401 - click's own
            given = {name: values.pop(name) for name in offered}
            return command(*args, options=_options(given), **values)

        for option in reversed(offered.values()):
            with_options = option(with_options)
        return with_options

    return decorate


def _options(given: Mapping[str, Any]) -> Options:
    from ebpfprof.profilers.options import Options

    kinds: list[Kind] = given["kinds"]
    _require_kind(kinds, "block", {"--block-rate": given["block_rate_ns"] != 1})
    of_mutex = {
        "--mutex-fraction": given["mutex_fraction"] != 1,
        "--by-lock": given.get("by_lock", False),
        "--lock-labels": given["lock_labels"],
        "--runtime-locks": given["runtime_locks"],
    }
    _require_kind(kinds, "mutex", of_mutex)
    _require_kind(kinds, "cpu", {"--hz": given["hz"] != 99, "--no-kernel": not given["kernel"]})
    source = click.get_current_context().get_parameter_source
    if source("block_rate_ns") is not ParameterSource.DEFAULT and given["max_overhead"]:
        if source("max_overhead") is not ParameterSource.DEFAULT:
            raise click.UsageError(
                "--block-rate and --max-overhead both say which waits to take: choose one."
            )
        given = {**given, "max_overhead": 0.0}
    return Options(
        **{**given, "kinds": tuple(kinds)},
        kinds_given=source("kinds") is not ParameterSource.DEFAULT,
    )


def _require_kind(kinds: Sequence[Kind], kind: Kind, given: Mapping[str, bool]) -> None:
    """Refuse options that say something of a profile that is not asked for."""
    for option, is_given in given.items():
        if is_given and kind not in kinds:
            asked_for = ",".join((*kinds, kind))
            raise click.UsageError(
                f"{option} is about the {kind} profile, which is not recorded: add it, with "
                f"--profile {asked_for}."
            )


def _complete_kinds(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """For a shell: the kinds that the last of a list may be."""
    before, comma, last = begun.rpartition(",")
    others = [kind for kind in KINDS if kind not in before.split(",")]
    return [CompletionItem(before + comma + kind) for kind in others if kind.startswith(last)]


_RECORDING_OPTIONS = {
    "kinds": click.option(
        "--profile",
        "kinds",
        callback=list_of(click.Choice(KINDS)),
        metavar="KIND[,KIND...]",
        multiple=True,
        default=KINDS,
        shell_complete=_complete_kinds,
        help=f"What to record: {', '.join(KINDS)}.  [default: all]",
    ),
    "hz": click.option(
        "--hz",
        type=click.IntRange(min=1, max=999),
        metavar="HZ",
        default=99,
        show_default=True,
        help="How many CPU samples to take per second of CPU time.",
    ),
    "kernel": click.option(
        "--kernel/--no-kernel",
        default=True,
        show_default=True,
        help="Show the kernel's functions in the CPU profile; Go's own profile does not.",
    ),
    "block_rate_ns": click.option(
        "--block-rate",
        "block_rate_ns",
        type=click.IntRange(min=1, max=(1 << 47) - 1),
        metavar="NS",
        default=1,
        show_default=True,
        help="Sample as Go's SetBlockProfileRate: all waits of NS nanoseconds and more, "
        "shorter ones in proportion. 1 takes every wait.",
    ),
    "mutex_fraction": click.option(
        "--mutex-fraction",
        type=click.IntRange(min=1, max=(1 << 31) - 1),
        metavar="N",
        default=1,
        show_default=True,
        help="Sample as Go's SetMutexProfileFraction: one release in N, scaled. 1 takes every one.",
    ),
    "max_overhead": click.option(
        "--max-overhead",
        type=click.FloatRange(min=0, max=100),
        metavar="PERCENT",
        default=1,
        show_default=True,
        help="How much of its CPU time the program may lose. Where recording every wait takes "
        "more, it is watched in short windows, and what they hold is scaled up. 0: every wait.",
    ),
    "by_lock": click.option(
        "--by-lock",
        is_flag=True,
        help="Also show which locks were waited for: their names, who held them, who waited.",
    ),
    "lock_labels": click.option(
        "--lock-labels",
        is_flag=True,
        help="Put the lock into the profile files, as labels of the samples.",
    ),
    "runtime_locks": click.option(
        "--runtime-locks",
        is_flag=True,
        help="Put the Go runtime's own locks into the mutex profile, too (Go 1.25 and newer).",
    ),
    "labels": click.option(
        "--labels",
        callback=_label_keys,
        metavar="all|none|KEY[,KEY...]",
        multiple=True,
        default=("all",),
        show_default=True,
        help="Which of the labels that the program gave its goroutines (runtime/pprof) to show.",
    ),
    "open_waits": click.option(
        "--open",
        "open_waits",
        is_flag=True,
        help="Also show who still waits at the end, and write a file of them.",
    ),
    "allow_unknown_go": click.option(
        "--allow-unknown-go",
        is_flag=True,
        help="Try a Go version that is not known, with the layout of the nearest one that is.",
    ),
}
_WRITING_OPTIONS = (
    output_option(default="COMMAND-PID-DATE-TIME.KIND.SUFFIX"),
    FORCE_OPTION,
    format_option(FORMATS, default="pprof", help="What to write."),
    click.option(
        "--hide-idle",
        is_flag=True,
        help="Leave waits for work (idle workers, tickers, servers that listen) out of what people "
        "read, and say how much that was. A pprof file always has them.",
    ),
)
