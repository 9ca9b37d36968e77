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
from ebpfprof.commands.history_text import coverage_lines, kinds_in, why_nothing
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
from ebpfprof.ring.coverage import coverage
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
    """How to show or write merged profiles: as a file of a format, or as tables ("")."""

    format: str
    output: Path | None
    force: bool
    hide_idle: bool | None
    """As chosen; None: hidden where people read (formats.hides_idle)."""

    @property
    def hides_idle(self) -> bool:
        """Whether what is shown or written leaves out idle waits."""
        return formats.hides_idle(self.format or "text", self.hide_idle)


@dataclass(frozen=True, slots=True)
class FoundTime:
    """What the ring has of the selected processes in a time."""

    time: RecordedTime
    processes: Sequence[IndexedProcess]
    kinds: Sequence[str]

    @property
    def who(self) -> str:
        """The services in words, printable."""
        return named(self.processes)


def find(
    reader: RingArchive, span: Span, selection: Selection, wanted: Sequence[str] = ()
) -> FoundTime:
    """The selected processes, and which of the `wanted` kinds there are of them, or all.

    Raises RingError with the reason if there is nothing.
    """
    time = reader.between(*span)
    processes = in_time(time, selection)
    names = kinds_in(time, processes)
    chosen = [name for name in names if not wanted or name in wanted]
    if chosen:
        return FoundTime(time, processes, chosen)
    where = f"from {span_shown(span)}"
    if names:
        raise RingError(
            f"No {' or '.join(wanted)} profile was recorded of {named(processes)} {where}; there "
            f"is {', '.join(names)}."
        )
    if processes:
        gaps = " ".join(coverage_lines(time, processes))
        raise RingError(f"Nothing was recorded of {named(processes)} {where}. {gaps}")
    of = "" if selection.is_all else f" of {selection}"
    reason = why_nothing(time, coverage(time, []))
    raise RingError(f"Nothing was recorded{of} {where}: {reason}.{_hint(reader, time)}")


def show(reader: RingArchive, found: FoundTime, showing: Showing) -> None:
    """Print the tables of the merged profiles, or write them. Raises EbpfprofError."""
    if showing.format:
        for line in coverage_lines(found.time, found.processes):
            say(f"ebpfprof: {line}", err=True)
        for kind in found.kinds:
            profile = _merged(reader, found, kind).profile
            data = formats.encode(
                profile,
                showing.format,
                hide_idle=showing.hides_idle,
            )
            write(data, showing.format, _path(showing, found, kind), force=showing.force)
        return
    span = found.time.begun_ns, found.time.until_ns
    lines = [f"{found.who}, {span_shown(span)}", *coverage_lines(*_of(found))]
    say("\n".join(lines), wraps=True)
    out = sys.stdout
    for kind in found.kinds:
        merged = _merged(reader, found, kind)
        sentence = finding(merged.profile) or summary(merged.profile)
        table = largest.render(
            merged.profile, hide_idle=showing.hides_idle, width=width(out), color=has_color(out)
        )
        comments = [printable(each[:_MAX_COMMENT]) for each in merged.profile.comments]
        lines = [f"\n{sentence}" if sentence else "", f"{_heading(found, merged)}:\n{table}"]
        say("\n".join([*lines, *comments[:_MAX_COMMENTS]]), wraps=True)


def compare(reader: RingArchive, before: FoundTime, after: FoundTime, showing: Showing) -> None:
    """Print what changed from one time to another, or write it. Raises EbpfprofError."""
    kinds = [kind for kind in after.kinds if kind in before.kinds]
    if not kinds:
        raise EbpfprofError(
            f"The times have no profile in common: there is {', '.join(before.kinds)} of the one, "
            f"{', '.join(after.kinds)} of the other."
        )
    to_stderr = bool(showing.format)
    for name, found in (("Before", before), ("After", after)):
        span = found.time.begun_ns, found.time.until_ns
        say(f"{name}: {found.who}, {span_shown(span)}", err=to_stderr, wraps=True)
        for line in coverage_lines(*_of(found)):
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
        return profile, "Both are of the last moment of their time that was recorded."
    lengths = duration(base.duration_ns), duration(profile.duration_ns)
    sentence = (
        f"Rates are compared, by the time that processes were watched: {lengths[0]} before, "
        f"{lengths[1]} after, whose values are scaled to {lengths[0]}."
    )
    return of_same_length(profile, base), sentence


def _merged(reader: RingArchive, found: FoundTime, kind: str) -> Merged:
    """The merged profile; says what is missing in it."""
    span = found.time.begun_ns, found.time.until_ns
    numbers = {each.number for each in found.processes}
    files = sum(each.kind == kind and each.process in numbers for each in found.time.files)
    title = (
        f"ebpfprof {ebpfprof.__version__}: {kind_named(kind).title} profile of {found.who}, "
        f"{counted(files, 'window')} from {iso(span[0])} to {iso(span[1])}"
    )
    with working(f"Reading {counted(files, 'file')} ..."):
        merged = merged_windows(reader, found.time, kind, found.processes, title)
    if merged is None:
        raise RingError(
            "The files of that time have just been removed, to make room for newer ones."
        )
    for fault in merged.faults:
        say(f"ebpfprof: {printable(fault)}", err=True)
    if merged.gone:
        gone = counted(merged.gone, "file")
        say(f"ebpfprof: {gone} of that time went just now, to make room for newer ones.", err=True)
    return replace(merged, profile=replace(merged.profile, kind=kind))


def _heading(found: FoundTime, merged: Merged) -> str:
    profile = merged.profile
    kind = kind_named(profile.kind)
    if kind.is_moment:
        span = found.time.begun_ns, found.time.until_ns
        last = max(each.end_ns for each in merged.files)
        return f"{kind.subject} of {found.who} at {of_day(last, (min(span[0], last), span[1]))}"
    length = duration(profile.duration_ns)
    processes = {found.time.processes[each.process].process.key for each in merged.files}
    if len(processes) > 1:
        length += f" of {len(processes)} processes together"
    return kind.heading.format(process=found.who, length=length)


def _path(showing: Showing, found: FoundTime, kind: str) -> Path:
    """Where to write: -o, with the kind if there are several, or SERVICE-DATE-TIME.KIND.SUFFIX."""
    made = formats.FORMATS[showing.format]
    if showing.output is not None:
        is_one = len(found.kinds) == 1
        return (
            showing.output if is_one else named_for(showing.output, kind, made.suffix, made.endings)
        )
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", found.who).lstrip(".-")[:64] or "history"
    at = clock.strftime("%Y%m%d-%H%M%S", clock.localtime(found.time.begun_ns // 1_000_000_000))
    return Path(f"{safe}-{at}.{kind}{made.suffix}")


def _of(found: FoundTime) -> tuple[RecordedTime, Sequence[IndexedProcess]]:
    return found.time, found.processes


def _hint(reader: RingArchive, time: RecordedTime) -> str:
    """What there is instead, a sentence."""
    others = in_time(time, Selection())
    if others:
        return f" Recorded then: {named(others)}."
    times = reader.times()
    if times is None:
        return " There is nothing of any other time either: is the agent running?"
    return f" What there is reaches from {span_shown(times)}."
