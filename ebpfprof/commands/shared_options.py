"""Options of several verbs, each declared once: how long, how often, what to write and where."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ebpfprof.commands.parameter_types import Decorator, OneOf, duration, with_setting
from ebpfprof.console.text import printable
from ebpfprof.errors import InvalidProfile
from ebpfprof.export.formats import FORMATS, PROFILES, of_name
from ebpfprof.settings.recording import ALLOW_UNKNOWN_GO, RUNTIME

if TYPE_CHECKING:
    from ebpfprof.profile.kind import ProfileKind

_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9_-]*")  # not the ".2" of shop-1.2
_HOUR_S: Final = 3600.0
_MIN_EVERY_S: Final = 0.1
EVERY_S: Final = 10.0


FORCE_OPTION = click.option("--force", is_flag=True, help="Replace an existing file.")
IDLE_OPTION = click.option(
    "--hide-idle/--show-idle",
    "hide_idle",
    default=None,
    help="Hide or show idle waits: workers without work, tickers, listening servers.  [default: "
    "hidden in tables, text and HTML, with their total; shown in other formats]",
)
QUIET_OPTION = click.option(
    "-q",
    "--quiet",
    "is_quiet",
    is_flag=True,
    help="Print only file names and errors: no progress, no tables.",
)


def opening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: how processes are read, passed as `opening: OpenOptions`."""

    @functools.wraps(command)
    def with_opening(
        *args: Any,  # noqa: ANN401 - arguments of the command, of any type
        allow_unknown_go: bool,
        runtime: str | None,
        **values: Any,  # noqa: ANN401 - its other options, of any type
    ) -> Any:  # noqa: ANN401 - what the command returns, of any type
        from ebpfprof.goruntime.open_processes import OpenOptions

        return command(*args, opening=OpenOptions(allow_unknown_go, runtime), **values)

    return with_setting(RUNTIME)(with_setting(ALLOW_UNKNOWN_GO)(with_opening))


def duration_option(*, default: float | None, help: str) -> Decorator:
    """The option -d/--duration, passed as `duration_s`: Go's 10s, 1m30s, or seconds."""
    return click.option(
        "-d",
        "--duration",
        "duration_s",
        type=duration(),
        metavar="TIME",
        default=default,
        show_default=True,
        help=help,
    )


def last_option(*, help: str) -> Decorator:
    """The option --last, passed as `last_s`: how much of a trace is kept."""
    return click.option(
        "--last", "last_s", type=duration(most_s=_HOUR_S), metavar="TIME", help=help
    )


def apart_option(*, default_s: float, may_be_0: bool = False) -> Decorator:
    """The option --apart, passed as `apart_s`; None: the default."""
    least_s = 0.0 if may_be_0 else _MIN_EVERY_S
    return click.option(
        "--apart",
        "apart_s",
        type=duration(least_s, _HOUR_S, may_be_0=may_be_0),
        metavar="TIME",
        help="Time between the first and the last sample, which show what has not moved.  "
        f"[default: {default_s:g}s]",
    )


def watch_options(*, help: str) -> Decorator:
    """The options --watch, --every and --duration, passed as `watch`, `every_s`, `duration_s`.

    Without --every, `every_s` is EVERY_S. Raises click.UsageError for one of the others without
    --watch.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_watch(
            *args: Any,  # noqa: ANN401 - arguments of the command, of any type
            watch: bool,
            every_s: float | None,
            duration_s: float | None,
            **values: Any,  # noqa: ANN401 - its other options, of any type
        ) -> Any:  # noqa: ANN401 - what the command returns, of any type
            if not watch and (every_s is not None or duration_s is not None):
                raise click.UsageError("--every and --duration need --watch.")
            every_s = EVERY_S if every_s is None else every_s
            return command(*args, watch=watch, every_s=every_s, duration_s=duration_s, **values)

        decorated: Callable[..., Any] = with_watch
        for option in (
            duration_option(default=None, help="With --watch: end after TIME, not at Ctrl-C."),
            click.option(
                "--every",
                "every_s",
                type=duration(_MIN_EVERY_S, _HOUR_S),
                metavar="TIME",
                help=f"With --watch: time between two samples.  [default: {EVERY_S:g}s]",
            ),
            click.option("--watch", is_flag=True, help=help),
        ):
            decorated = option(decorated)
        return decorated

    return decorate


def json_option(*, help: str = "Print JSON.") -> Decorator:
    """The option --json, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def config_option(*, help: str) -> Decorator:
    """The option --config, passed as `config`: the agent's file."""
    return click.option(
        "--config",
        type=click.Path(),
        metavar="FILE",
        help=f"{help}  [default: /etc/ebpfprof/agent.toml, if it exists]",
    )


def format_option(formats: Sequence[str], *, default: str, help: str) -> Decorator:
    """The option -f/--format, passed as `format_name`; format_for() replaces None."""
    return click.option(
        "-f",
        "--format",
        "format_name",
        type=OneOf(formats),
        help=f"{help}  [default: from FILE's ending, else {default}]",
    )


def format_for(
    given: str | None, output: Path | None, *, default: str, formats: Sequence[str] = PROFILES
) -> str:
    """The format to write: the given one, else that of the ending of `output`.

    The `default` if the name has no ending. Raises click.UsageError if the ending belongs to none
    of `formats`.
    """
    if given or output is None:
        return given or default
    named = of_name(output.name)
    if named and named in formats:
        return named
    _require_no_ending(output, formats)
    return default


def _require_no_ending(output: Path, formats: Sequence[str]) -> None:
    """Raise click.UsageError if a file name has an ending, which none of the formats has."""
    if _ENDING.fullmatch(output.suffix):
        known = ", ".join(f"{FORMATS[name].suffix} ({name})" for name in formats)
        raise click.UsageError(
            f"{printable(output.name)}: no format has this ending. Use {known}, or choose the "
            "format with -f."
        )


def require_one_for_stdout(output: Path | None, profiles: int) -> None:
    """Raise click.UsageError if `profiles` would be written to stdout, which takes one."""
    if str(output) == "-" and profiles > 1:
        raise click.UsageError(
            f"-o -: standard output takes one profile, not {profiles}. Choose one with --profile, "
            "or use -o NAME."
        )


def require_types_for(format_name: str, kinds: Iterable[ProfileKind]) -> None:
    """Raise click.UsageError if the format can't hold profiles of one of the kinds."""
    for kind in kinds:
        try:
            FORMATS[format_name].require_type(kind.sample_types)
        except InvalidProfile as error:
            raise click.UsageError(str(error)) from error


def output_option(*, default: str) -> Decorator:
    """The option -o/--output, passed as `output: Path | None`."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help="Output file, - for stdout. With several profiles, each file name gets its kind. "
        f"Existing files are kept: see --force.  [default: {default}]",
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

    decorated: Callable[..., Any] = with_writing
    for option in reversed(_WRITING_OPTIONS):
        decorated = option(decorated)
    return decorated


_WRITING_OPTIONS = (
    output_option(default="COMMAND-PID-DATE-TIME.KIND.SUFFIX"),
    FORCE_OPTION,
    format_option(PROFILES, default="pprof", help="Output format."),
    IDLE_OPTION,
    QUIET_OPTION,
    click.option(
        "--long",
        "is_long",
        is_flag=True,
        help="Show more rows than fit the terminal, and details of overhead and errors.",
    ),
)
