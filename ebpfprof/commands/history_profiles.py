"""The merged profiles that `history` shows, writes and compares."""

from __future__ import annotations

import re
import sys
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ebpfprof
from ebpfprof.commands.history_selection import Selection, in_time, named
from ebpfprof.commands.history_text import coverage_lines, finding_lines, kinds_in, why_nothing
from ebpfprof.commands.profile_files import write
from ebpfprof.commands.times import Span, iso, of_day, span_shown
from ebpfprof.console.output_file import named_for
from ebpfprof.console.terminal import has_color, say, width, working
from ebpfprof.console.text import counted, duration, printable
from ebpfprof.errors import EbpfprofError, RingError
from ebpfprof.export import formats
from ebpfprof.export.tables import diff, largest
from ebpfprof.export.tables.finding import finding, summary
from ebpfprof.profile.delta import of_same_length
from ebpfprof.profilers.registry import kind_named
from ebpfprof.ring.merge import Merged, merged_windows

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile
    from ebpfprof.ring.index import IndexedProcess
    from ebpfprof.ring.reader import RecordedTime, RingArchive

_MAX_COMMENTS: Final = 32
_MAX_COMMENT: Final = 1024
_MOST_SERVICES: Final = 6


@dataclass(frozen=True, slots=True)
class Showing:
    """How to show merged profiles: as a file of a format, or as tables ("")."""

    format: str
    output: Path | None
    force: bool
    hide_idle: bool | None
    """As chosen; None: see formats.hides_idle."""

    @property
    def hides_idle(self) -> bool:
        """Whether idle waits are omitted."""
        return formats.hides_idle(self.format or "text", self.hide_idle)


@dataclass(frozen=True, slots=True)
class ChosenTime:
    """The selected processes of a time in the ring, and the kinds that they have."""

    time: RecordedTime
    processes: Sequence[IndexedProcess]
    kinds: Sequence[str]

    @property
    def who(self) -> str:
        """The services in words, printable."""
        return named(self.processes)


def find(
    reader: RingArchive, span: Span, selection: Selection, wanted: Sequence[str] = ()
) -> ChosenTime:
    """The selected processes, and those of the `wanted` kinds that they have, or all.

    Raises RingError with the reason if there are none.
    """
    time = reader.between(*span)
    processes = in_time(time, selection)
    names = kinds_in(time, processes)
    chosen = [name for name in names if not wanted or name in wanted]
    if chosen:
        return ChosenTime(time, processes, chosen)
    where = f"from {span_shown(span)}"
    if names:
        raise RingError(
            f"No {' or '.join(wanted)} profile of {named(processes)} was recorded {where}, only "
            f"{', '.join(names)}."
        )
    if processes:
        gaps = " ".join(coverage_lines(time, processes))
        raise RingError(f"Nothing was recorded of {named(processes)} {where}. {gaps}")
    of = "" if selection.is_all else f" of {selection}"
    reason = why_nothing(time)
    raise RingError(f"Nothing was recorded{of} {where}: {reason}.{_hint(reader, time)}")


def show(reader: RingArchive, chosen: ChosenTime, showing: Showing) -> None:
    """Print the tables of the merged profiles, or write them. Raises EbpfprofError."""
    if showing.format:
        for line in coverage_lines(chosen.time, chosen.processes):
            say(f"ebpfprof: {line}", err=True)
        for kind in chosen.kinds:
            has_slices = formats.FORMATS[showing.format].has_slices
            profile = _merged(reader, chosen, kind, has_slices=has_slices).profile
            data = formats.encode(
                profile,
                showing.format,
                hide_idle=showing.hides_idle,
            )
            write(data, showing.format, _path(showing, chosen, kind), force=showing.force)
        return
    span = chosen.time.begun_ns, chosen.time.until_ns
    lines = [
        f"{chosen.who}, {span_shown(span)}",
        *coverage_lines(*_of(chosen)),
        *finding_lines(*_of(chosen), is_named=False),
    ]
    say("\n".join(lines), wraps=True)
    out = sys.stdout
    for kind in chosen.kinds:
        merged = _merged(reader, chosen, kind)
        sentence = finding(merged.profile) or summary(merged.profile)
        table = largest.render(
            merged.profile, hide_idle=showing.hides_idle, width=width(out), color=has_color(out)
        )
        comments = [printable(comment[:_MAX_COMMENT]) for comment in merged.profile.comments]
        lines = [f"\n{sentence}" if sentence else "", f"{_heading(chosen, merged)}:\n{table}"]
        say("\n".join([*lines, *comments[:_MAX_COMMENTS]]), wraps=True)


def compare(reader: RingArchive, before: ChosenTime, after: ChosenTime, showing: Showing) -> None:
    """Print what changed from one time to another, or write it. Raises EbpfprofError."""
    kinds = [kind for kind in after.kinds if kind in before.kinds]
    if not kinds:
        raise EbpfprofError(
            f"The times have no profile in common: {', '.join(before.kinds)} before, "
            f"{', '.join(after.kinds)} after."
        )
    to_stderr = bool(showing.format)
    for name, one in (("Before", before), ("After", after)):
        span = one.time.begun_ns, one.time.until_ns
        say(f"{name}: {one.who}, {span_shown(span)}", err=to_stderr, wraps=True)
        for line in coverage_lines(*_of(one)):
            say(f"  {line}", err=to_stderr)
    for kind in kinds:
        base = _merged(reader, before, kind).profile
        profile = _merged(reader, after, kind).profile
        scaled, sentence = _at_same_length(profile, base)
        if showing.format:
            data = formats.encode_difference(
                scaled,
                base,
                showing.format,
                hide_idle=showing.hides_idle,
            )
            say(f"ebpfprof: {sentence}", err=True)
            write(data, showing.format, _path(showing, after, kind), force=showing.force)
            continue
        out = sys.stdout
        text = diff.render(
            scaled, base, hide_idle=showing.hides_idle, width=width(out), color=has_color(out)
        )
        say(f"\n{text}{sentence}", wraps=True)


def _at_same_length(profile: Profile, base: Profile) -> tuple[Profile, str]:
    """`profile` scaled to the length of `base`, and a sentence about it."""
    kind = kind_named(profile.kind)
    if kind.is_moment:
        return profile, "Both show the last recorded moment of their time."
    lengths = duration(base.duration_ns), duration(profile.duration_ns)
    sentence = (
        f"Rates are compared, by watched time: {lengths[0]} before, {lengths[1]} after. Values "
        f"after are scaled to {lengths[0]}."
    )
    return of_same_length(profile, base), sentence


def _merged(
    reader: RingArchive, chosen: ChosenTime, kind: str, *, has_slices: bool = False
) -> Merged:
    """The merged profile; prints what is missing in it."""
    span = chosen.time.begun_ns, chosen.time.until_ns
    numbers = {process.number for process in chosen.processes}
    files = sum(file.kind == kind and file.process in numbers for file in chosen.time.files)
    title = (
        f"ebpfprof {ebpfprof.__version__}: {kind_named(kind).title} profile of {chosen.who}, "
        f"{counted(files, 'window')} from {iso(span[0])} to {iso(span[1])}"
    )
    with working(f"Reading {counted(files, 'file')} ..."):
        merged = merged_windows(
            reader, chosen.time, kind, chosen.processes, title, has_slices=has_slices
        )
    if merged is None:
        raise RingError("The files of that time have just been removed to free space.")
    for fault in merged.faults:
        say(f"ebpfprof: {printable(fault)}", err=True)
    if merged.gone:
        gone = counted(merged.gone, "file")
        say(f"ebpfprof: {gone} of that time were just removed to free space.", err=True)
    return replace(merged, profile=replace(merged.profile, kind=kind))


def _heading(chosen: ChosenTime, merged: Merged) -> str:
    profile = merged.profile
    kind = kind_named(profile.kind)
    if kind.is_moment:
        span = chosen.time.begun_ns, chosen.time.until_ns
        last = max(file.end_ns for file in merged.files)
        return f"{kind.subject} of {chosen.who} at {of_day(last, (min(span[0], last), span[1]))}"
    length = duration(profile.duration_ns)
    processes = {chosen.time.processes[file.process].process.key for file in merged.files}
    if len(processes) > 1:
        length += f" of {len(processes)} processes together"
    return kind.heading.format(process=chosen.who, length=length)


def _path(showing: Showing, chosen: ChosenTime, kind: str) -> Path:
    """The path: -o, with the kind if there are several, or SERVICE-DATE-TIME.KIND.SUFFIX."""
    made = formats.FORMATS[showing.format]
    if showing.output is not None:
        is_one = len(chosen.kinds) == 1
        return (
            showing.output if is_one else named_for(showing.output, kind, made.suffix, made.endings)
        )
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", chosen.who).lstrip(".-")[:64] or "history"
    when = clock.strftime("%Y%m%d-%H%M%S", clock.localtime(chosen.time.begun_ns // 1_000_000_000))
    return Path(f"{safe}-{when}.{kind}{made.suffix}")


def _of(chosen: ChosenTime) -> tuple[RecordedTime, Sequence[IndexedProcess]]:
    return chosen.time, chosen.processes


def _hint(reader: RingArchive, time: RecordedTime) -> str:
    """A sentence about what was recorded instead."""
    others = in_time(time, Selection())
    if others:
        return f" Recorded in that time: {named(others)}."
    times = reader.times()
    if times is None:
        return " Nothing was recorded at any other time either: is the agent running?"
    return f" Recorded times: {span_shown(times)}."
