"""`ebpfprof diff`: the changes from one saved profile to another."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.report import refuse_for_pprof
from ebpfprof.commands.shared_options import (
    FORCE_OPTION,
    IDLE_OPTION,
    format_for,
    format_option,
    output_option,
)
from ebpfprof.commands.verb import Verb
from ebpfprof.console.text import duration
from ebpfprof.errors import InvalidProfile
from ebpfprof.export.formats import DIFFERENCES

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile

_SAME_LENGTH = 0.05


@click.command("diff", cls=Verb)
@click.argument("before", metavar="A", type=click.Path(path_type=Path, allow_dash=True))
@click.argument("after", metavar="B", type=click.Path(path_type=Path, allow_dash=True))
@format_option(
    DIFFERENCES,
    default="text",
    help="text: the largest changes. html: a flame graph of B, coloured by change. folded: lines "
    "`stack A B`, like difffolded.pl. pprof: B minus A, like `go tool pprof -diff_base=A B`.",
)
@output_option(default="stdout")
@FORCE_OPTION
@click.option(
    "--normalize",
    is_flag=True,
    help="Scale B to the totals of A: for profiles of different length or load.",
)
@click.option(
    "--per-second",
    is_flag=True,
    help="Scale B to the length of A, to compare rates: for recordings of different length.",
)
@click.option(
    "--sample-type",
    metavar="NAME",
    help="The value to compare, such as contentions or delay.  [default: the profiles' last]",
)
@IDLE_OPTION
def command(
    before: Path,
    after: Path,
    format_name: str | None,
    output: Path | None,
    force: bool,
    normalize: bool,
    per_second: bool,
    sample_type: str | None,
    hide_idle: bool | None,
) -> None:
    """Compare two saved profiles: what grew and what shrank from A to B.

    A and B are pprof files of the same kind, from any tool; - is standard input.

    \b
    Examples:
      ebpfprof diff before.block.pb.gz after.block.pb.gz
      ebpfprof diff monday.cpu.pb.gz today.cpu.pb.gz --per-second
      ebpfprof diff monday.cpu.pb.gz today.cpu.pb.gz --normalize
      ebpfprof diff before.block.pb.gz after.block.pb.gz -o changes.html
      ebpfprof diff before.mutex.pb.gz after.mutex.pb.gz -f folded | flamegraph.pl
      ebpfprof diff before.pb.gz after.pb.gz -o diff.pb.gz
    """
    from ebpfprof.commands.profile_files import STDIN, read_profile, write
    from ebpfprof.console.terminal import has_color, say, width
    from ebpfprof.export import formats
    from ebpfprof.export.tables import diff
    from ebpfprof.profile.delta import normalized, of_same_length

    format_name = format_for(format_name, output, default="text", formats=DIFFERENCES)
    refuse_for_pprof(format_name, hide_idle=hide_idle, sample_type=sample_type)
    if before == after == STDIN:
        raise click.UsageError("Only one of the profiles can come from standard input.")
    if normalize and per_second:
        raise click.UsageError("--normalize and --per-second exclude each other: choose one.")
    base, profile = of_one_kind(read_profile(before), read_profile(after))
    index = None if sample_type is None else formats.index_of(profile, sample_type)
    hides_idle = formats.hides_idle(format_name, hide_idle)
    if normalize:
        profile = normalized(profile, base, hides_idle=hides_idle)
    elif per_second:
        _refuse_moments(base)
        lengths = _lengths(base, profile)
        profile = of_same_length(profile, base)
        say(f"ebpfprof: {lengths}: B is scaled to the length of A.", err=True)
    elif hint := length_hint(base, profile, scales=format_name in ("text", "html")):
        say(f"ebpfprof: {hint}", err=True)
    if format_name == "text" and output is None:
        out = sys.stdout
        text = diff.render(
            profile,
            base,
            index=index,
            hide_idle=hides_idle,
            width=width(out),
            color=has_color(out),
        )
        say(text, end="", wraps=True)
        return
    data = formats.encode_difference(
        profile, base, format_name, sample_type=sample_type, hide_idle=hides_idle
    )
    write(data, format_name, output, force=force)


def of_one_kind(base: Profile, profile: Profile) -> tuple[Profile, Profile]:
    """Both profiles, with the same kind. Raises InvalidProfile if they have different kinds.

    Kinds with the same sample types can only be distinguished by samples: an empty profile gets the
    kind of the other one.
    """
    from ebpfprof.profile.delta import require_same_types

    require_same_types(base, profile)
    if base.kind != profile.kind and base.samples and profile.samples:
        raise InvalidProfile(
            f"A is a {base.kind} profile and B is a {profile.kind} profile: only profiles of the "
            "same kind can be compared."
        )
    kind = profile.kind if profile.samples else base.kind
    return replace(base, kind=kind), replace(profile, kind=kind)


def length_hint(base: Profile, profile: Profile, *, scales: bool) -> str:
    """A hint if one profile was recorded for much longer than the other; else "".

    `scales`: the format compares sums per second anyway.
    """
    lengths = (base.duration_ns, profile.duration_ns)
    if min(lengths) <= 0 or max(lengths) <= min(lengths) * (1 + _SAME_LENGTH):
        return ""
    rates = ": --per-second compares their rates, "
    if _is_moment(base):
        rates = ": "
    elif scales:
        rates = ": rates are compared; "
    return f"{_lengths(base, profile)}{rates}--normalize compares shares of the total."


def _lengths(base: Profile, profile: Profile) -> str:
    return f"A was recorded for {duration(base.duration_ns)}, B for {duration(profile.duration_ns)}"


def _is_moment(profile: Profile) -> bool:
    from ebpfprof.profilers.registry import find_kind

    kind = find_kind(profile.kind)
    return kind is not None and kind.is_moment


def _refuse_moments(profile: Profile) -> None:
    """Raise click.UsageError for a profile of a moment, which has no rate."""
    if _is_moment(profile):
        raise click.UsageError(
            f"A {profile.kind} profile shows a moment and has no rate: omit --per-second."
        )
