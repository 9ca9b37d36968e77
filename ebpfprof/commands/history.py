"""`ebpfprof history`: what the agent recorded, of any time, also of processes that have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebpfprof.commands.parameter_types import PID, duration, list_of, one_of
from ebpfprof.commands.shared_options import (
    FORCE_OPTION,
    IDLE_OPTION,
    config_option,
    format_for,
    format_option,
    json_option,
    output_option,
    require_one_for_stdout,
)
from ebpfprof.commands.target_options import name_option
from ebpfprof.commands.times import Span, span_of, time_of
from ebpfprof.commands.verb import Verb
from ebpfprof.console.text import printable
from ebpfprof.export.formats import DIFFERENCES, PROFILES

if TYPE_CHECKING:
    from ebpfprof.commands.history_selection import Selection
    from ebpfprof.ring.reader import RingArchive

_FOLDER = "/var/lib/ebpfprof"  # ebpfprof.ring.folder
_DEFAULT_S = 3600.0
_AROUND_S = 300.0
_NS = 1_000_000_000


def _kinds(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    from ebpfprof.profilers.registry import kinds_to_choose

    names = [kind.name for kind in kinds_to_choose()]
    chosen: list[str] = list_of(one_of(names))(ctx, param, values)
    return chosen


def _pattern_option(name: str, field: str, what: str) -> Callable[..., Any]:
    return click.option(
        name,
        field,
        metavar="NAME",
        multiple=True,
        help=f"Only processes in {what} that matches NAME (shell patterns allowed).",
    )


@click.command("history", cls=Verb)
@click.option(
    "--since",
    metavar="TIME",
    help="Begin: 03:00, '2026-11-25 03:00', 'yesterday 03:00', 2h (ago).  [default: an hour before "
    "the end]",
)
@click.option("--until", metavar="TIME", help="End, in the same formats.  [default: now]")
@click.option("--at", metavar="TIME", help="From five minutes before TIME to five minutes after.")
@name_option(
    help="Services or commands that match NAME (shell patterns allowed); may be repeated. Without "
    "any selection: a list of all."
)
@click.option(
    "-p",
    "--pid",
    "pids",
    callback=list_of(PID),
    metavar="PID[,PID...]",
    multiple=True,
    help="Processes that had this pid.",
)
@_pattern_option("--namespace", "namespaces", "a namespace")
@_pattern_option("--pod", "pods", "a pod")
@_pattern_option("--container", "containers", "a container")
@click.option(
    "--profile",
    "kinds",
    callback=_kinds,
    metavar="KIND[,KIND...]",
    multiple=True,
    help="Profiles to show.  [default: all]",
)
@format_option(PROFILES, default="tables on the terminal", help="Write the merged profiles.")
@output_option(default="SERVICE-DATE-TIME.KIND.SUFFIX")
@FORCE_OPTION
@IDLE_OPTION
@click.option(
    "--compare",
    "compare_s",
    type=duration(),
    metavar="TIME",
    help="Compare with the same span, TIME earlier: 1h, 24h.",
)
@click.option(
    "--compare-with",
    metavar="TIME",
    help="Compare with a span of the same length that begins at TIME.",
)
@json_option(help="Print the list as JSON, with all files.")
@config_option(help="The agent's settings, which have the folder.")
@click.option(
    "--path",
    type=click.Path(path_type=Path, readable=False),
    metavar="DIR",
    help=f"The folder: path in [ring] of the settings.  [default: {_FOLDER}]",
)
def command(
    since: str | None,
    until: str | None,
    at: str | None,
    names: list[str],
    pids: list[int],
    namespaces: tuple[str, ...],
    pods: tuple[str, ...],
    containers: tuple[str, ...],
    kinds: list[str],
    format_name: str | None,
    output: Path | None,
    force: bool,
    hide_idle: bool | None,
    compare_s: float | None,
    compare_with: str | None,
    as_json: bool,
    config: str | None,
    path: Path | None,
) -> None:
    """Show what the agent recorded, of any time, also of processes that have ended.

    Without a selection it lists the processes of that time. With one, it merges their profiles and
    shows them as `attach` does, writes them, or compares them with another time. It reports what
    was not recorded, and why. Times are local.

    \b
    Examples:
      sudo ebpfprof history --since 03:00 --until 03:20
      sudo ebpfprof history --at 03:12 --name shop
      sudo ebpfprof history --at 03:12 --name shop --compare 1h
      sudo ebpfprof history --since 2h --name shop --profile block -o shop.html
      sudo ebpfprof history --since 03:00 --until 04:00 --pod 'shop-*' -f pprof
      sudo ebpfprof history --since '2026-11-25 03:00' --until 03:20 --json
      sudo ebpfprof history --config ./agent.toml
    """
    from ebpfprof.commands.history_profiles import Showing, compare, find, show
    from ebpfprof.commands.history_selection import Selection
    from ebpfprof.console.terminal import say
    from ebpfprof.ring.reader import RingArchive

    if compare_s is not None and compare_with is not None:
        raise click.UsageError("--compare and --compare-with exclude each other: choose one.")
    is_compared = compare_s is not None or compare_with is not None
    chosen = Selection(names, pids, namespaces, pods, containers)
    writes = bool(format_name or output)
    if as_json and (writes or is_compared):
        raise click.UsageError("--json prints the list: omit -o, -f and the comparison.")
    if chosen.is_all and (writes or is_compared):
        raise click.UsageError("Choose a service: --name NAME.")
    formats = DIFFERENCES if is_compared else PROFILES
    made = format_for(format_name, output, default="pprof", formats=formats) if writes else ""
    if made not in ("", *formats):
        raise click.UsageError(f"A comparison can't be written as {made}.")
    if hide_idle and made == "pprof":
        raise click.UsageError("A pprof file always has all samples: omit --hide-idle.")
    span, base = _spans(since, until, at, compare_s, compare_with)
    with RingArchive(_folder(config, path)) as reader:
        if reader.warning:
            say(f"ebpfprof: {reader.warning}", err=True)
        if as_json or chosen.is_all:
            _list(reader, span, chosen, kinds, as_json=as_json)
            return
        is_shown = made == "text" and output is None
        showing = Showing("" if is_shown else made, output, force, hide_idle)
        selected = find(reader, span, chosen, kinds)
        require_one_for_stdout(output, len(selected.kinds))
        if base is None:
            show(reader, selected, showing)
        else:
            compare(reader, find(reader, base, chosen, kinds), selected, showing)


def _folder(config: str | None, path: Path | None) -> Path:
    """The folder of the local ring. Raises BadConfig, click.UsageError."""
    if path is not None:
        if config is not None:
            raise click.UsageError("--config and --path exclude each other: choose one.")
        return path
    from ebpfprof.agent.settings_file import load

    return Path(load(config).ring.path)


def _spans(
    since: str | None,
    until: str | None,
    at: str | None,
    compare_s: float | None,
    compare_with: str | None,
) -> tuple[Span, Span | None]:
    """The time span, and the one to compare with. Raises click.UsageError."""
    now_s = time.time()
    if at is not None and (since is not None or until is not None):
        raise click.UsageError("--at replaces --since and --until: omit them.")
    try:
        if at is not None:
            at_ns = time_of(at, now_s)
            around_ns = round(_AROUND_S * _NS)
            span = max(0, at_ns - around_ns), min(round(now_s * _NS), at_ns + around_ns)
            if span[0] >= span[1]:
                raise ValueError(f"--at {printable(at)} is in the future.")
        else:
            span = span_of(since, until, now_s, default_s=_DEFAULT_S)
        before_ns = None
        if compare_s is not None:
            before_ns = span[0] - round(compare_s * _NS)
        elif compare_with is not None:
            before_ns = time_of(compare_with, now_s)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if before_ns is None:
        return span, None
    return span, (max(0, before_ns), max(0, before_ns) + span[1] - span[0])


def _list(
    reader: RingArchive, span: Span, chosen: Selection, wanted: Sequence[str], *, as_json: bool
) -> None:
    """Print the processes of a time. Raises RingError if there is none, but for JSON."""
    from ebpfprof.commands.history_json import as_json as json_of
    from ebpfprof.commands.history_profiles import find
    from ebpfprof.commands.history_selection import in_time
    from ebpfprof.commands.history_text import kinds_in, list_text
    from ebpfprof.console.terminal import has_color, say, width

    if as_json:
        recorded = reader.between(*span)
        processes = in_time(recorded, chosen)
        names = [n for n in kinds_in(recorded, processes) if not wanted or n in wanted]
        say(json_of(recorded, processes, names, str(reader.path)))
        return
    listed = find(reader, span, chosen, wanted)
    out = sys.stdout
    text = list_text(
        listed.time, listed.processes, listed.kinds, width=width(out), color=has_color(out)
    )
    say(text, end="", wraps=True)
