"""`ebpfprof report`: shows a saved profile as a table, or writes it in another format."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.shared_options import (
    FORCE_OPTION,
    IDLE_OPTION,
    format_for,
    format_option,
    output_option,
)
from ebpfprof.commands.source_option import opened_sources, require_html_for, source_option
from ebpfprof.commands.verb import Verb
from ebpfprof.console.text import printable
from ebpfprof.errors import InvalidProfile
from ebpfprof.export.formats import FORMATS, PROFILES

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile

_MOST_NAMED = 10


@click.command("report", cls=Verb)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
)
@click.option(
    "--merge",
    "merges",
    is_flag=True,
    help="Add up several files of one kind, such as those of several hosts.",
)
@format_option(
    PROFILES,
    default="text",
    help="Output format. html is a flame graph in a self-contained file.",
)
@output_option(default="stdout")
@FORCE_OPTION
@click.option(
    "--sample-type",
    metavar="NAME",
    help="The value to show, such as contentions, delay or inuse_space.  [default: the profile's "
    "last]",
)
@IDLE_OPTION
@click.option(
    "--by-handler",
    is_flag=True,
    help="Show the sums of handlers: of the functions that net/http, gRPC, another router or a "
    "consumer of a queue called. Other formats than text get a label for each sample.",
)
@click.option(
    "--handler",
    "handler",
    metavar="TEXT",
    help='Only what handlers did whose names contain TEXT, such as checkout or "POST /checkout".',
)
@source_option
def command(
    files: tuple[Path, ...],
    merges: bool,
    format_name: str | None,
    output: Path | None,
    force: bool,
    sample_type: str | None,
    hide_idle: bool | None,
    by_handler: bool,
    handler: str | None,
    source: tuple[str, ...],
) -> None:
    """Show a saved profile, or write it in another format.

    FILE is any pprof file: from ebpfprof, from Go itself, or from another tool. - is standard
    input.

    \b
    Examples:
      ebpfprof report waits.block.pb.gz
      ebpfprof report waits.block.pb.gz --show-idle
      ebpfprof report waits.block.pb.gz -o waits.html
      ebpfprof report waits.block.pb.gz --by-handler
      ebpfprof report waits.block.pb.gz --handler checkout -o checkout.html
      ebpfprof report waits.block.pb.gz -o waits.html --source ~/src/shop
      ebpfprof report today.cpu.pb.gz -o today.speedscope.json
      ebpfprof report heap.pb.gz --sample-type alloc_space
      ebpfprof report --merge host1.cpu.pb.gz host2.cpu.pb.gz -o default.pgo
      curl -s localhost:6060/debug/pprof/mutex | ebpfprof report - -f folded | flamegraph.pl
    """
    from ebpfprof.commands.profile_files import read_profile, write
    from ebpfprof.commands.source_option import texts_of
    from ebpfprof.console.terminal import has_color, say, width
    from ebpfprof.export import formats
    from ebpfprof.export.tables import report
    from ebpfprof.export.tables.idle import hidden_line
    from ebpfprof.profile.handlers import with_handlers
    from ebpfprof.profile.idle import split

    _require_merge(files, merges=merges)
    format_name = format_for(format_name, output, default="text")
    refuse_for_pprof(format_name, hide_idle=hide_idle, sample_type=sample_type)
    require_html_for(source, format_name)
    with opened_sources(source) as sources:
        profiles = map(read_profile, files)
        profile = next(profiles) if not merges else _sum(profiles, format_name)
        if by_handler or handler is not None:
            (profile,) = with_handlers([profile])
        if handler is not None:
            profile = _of_handler(profile, handler)
        texts = texts_of(profile, sources) if sources else None
    index = None if sample_type is None else formats.index_of(profile, sample_type)
    hides_idle = formats.hides_idle(format_name, hide_idle)
    if format_name == "text" and output is None:
        out = sys.stdout
        text = report.render(
            profile,
            index=index,
            hide_idle=hides_idle,
            by_handler=by_handler,
            width=width(out),
            color=has_color(out),
        )
        say(text, end="", wraps=True)
        return
    data = formats.encode(
        profile,
        format_name,
        hide_idle=hides_idle,
        sample_type=sample_type,
        sources=texts,
        by_handler=by_handler,
    )
    write(data, format_name, output, force=force)
    is_asked_for = hide_idle or (output is not None and str(output) != "-")
    if hides_idle and is_asked_for and format_name != "text":
        say(hidden_line(profile, split(profile)[1]), err=True, end="")


def _sum(profiles: Iterable[Profile], format_name: str) -> Profile:
    """Their sum; of profiles with lengths of waits, a format with slices has each as a slice.

    Raises InvalidProfile for profiles of different kinds.
    """
    from ebpfprof.profile.delta import summed
    from ebpfprof.profile.wait_slices import WaitSlices

    if not FORMATS[format_name].has_slices:
        return summed(_of_one_kind(profiles))
    by_time = sorted(_of_one_kind(profiles), key=lambda one: one.time_ns)
    whole = summed(by_time)
    if not any(sample.lengths for sample in whole.samples):
        return whole
    slices = WaitSlices()
    for profile in by_time:
        slices.add_file(profile)
    return replace(whole, slices=slices)


def _of_one_kind(profiles: Iterable[Profile]) -> Iterator[Profile]:
    """The profiles. Raises InvalidProfile for one of another kind: some have the same types."""
    kind = ""
    for profile in profiles:
        if profile.samples and profile.kind != (kind := kind or profile.kind):
            raise InvalidProfile(
                f"A {kind} profile and a {profile.kind} profile: only profiles of the same kind "
                "can be added up."
            )
        yield profile


def _require_merge(files: tuple[Path, ...], *, merges: bool) -> None:
    """Raise click.UsageError for several files, unless they are to be added up."""
    if len(files) > 1 and not merges:
        raise click.UsageError("Several files: add them up with --merge, or choose one.")
    if files.count(Path("-")) > 1:
        raise click.UsageError("Only one of the profiles can come from standard input.")


def _of_handler(profile: Profile, text: str) -> Profile:
    """What the handlers with this text in their names did. Raises InvalidProfile without one."""
    from ebpfprof.profile.handlers import handler_names, of_handler

    chosen = of_handler(profile, text)
    if chosen.samples:
        return chosen
    names = ", ".join(map(printable, handler_names(profile)[:_MOST_NAMED]))
    known = f"It has {names}." if names else "It has no handlers."
    raise InvalidProfile(f"No handler of the profile has {printable(text)!r} in its name. {known}")


def refuse_for_pprof(format_name: str, *, hide_idle: bool | None, sample_type: str | None) -> None:
    """Raise click.UsageError for options that would omit something from a complete file."""
    for option, given in (("--hide-idle", hide_idle), ("--sample-type", sample_type)):
        if given and FORMATS[format_name].is_complete:
            raise click.UsageError(
                f"{option} is not for {format_name} files, which always have everything. Omit it, "
                "or choose another format with -f."
            )
