"""The registry of formats: what profiles, differences of profiles, and timelines are written as.

Commands read it for their options, so that it imports no more than they need: a writer imports its
module when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.errors import InvalidProfile

if TYPE_CHECKING:
    from ebpfprof.profile.model import Lock, Profile, ValueType
    from ebpfprof.timeline.model import Timeline


@dataclass(frozen=True, slots=True)
class ProfileView:
    """What of a profile to write: the sample type `index`; None: the format's own choice.

    With `hide_idle` without idle waits. `sources` and `locks` are for HTML (flamegraph.encode),
    `by_handler` is for text (tables.report).
    """

    index: int | None = None
    hide_idle: bool = False
    sources: Mapping[str, Any] | None = None
    locks: Sequence[Lock] = ()
    by_handler: bool = False


ProfileWriter = Callable[["Profile", ProfileView], bytes]
DifferenceWriter = Callable[["Profile", "Profile", ProfileView], bytes]
TimelineWriter = Callable[["Timeline"], bytes]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how names of its files end, and what writes a profile, difference or timeline.

    None for a writer: the format does not take that. A difference is from the second profile to the
    first one. Names that we choose for timelines end in `timeline_ending`. A file is of the format
    if its name ends in `suffix` or in one of `other_suffixes`.
    """

    name: str
    suffix: str
    is_text: bool = True
    """Whether a terminal can show it."""
    hides_idle: bool = False
    """Whether people read it, so that idle waits are hidden by default."""
    is_complete: bool = False
    """Whether a file always has all samples and sample types."""
    other_suffixes: tuple[str, ...] = ()
    needs_type: str = ""
    """The sample type that a profile must have; "" if it takes all profiles."""
    timeline_ending: str = ""
    opens_timeline: str = ""
    """What opens a timeline; {} is the name of the file."""
    profile: ProfileWriter | None = None
    difference: DifferenceWriter | None = None
    timeline: TimelineWriter | None = None

    @property
    def endings(self) -> tuple[str, ...]:
        """What the names of its files end in, its own suffix first."""
        return (self.suffix, *self.other_suffixes)

    def require_type(self, sample_types: Sequence[ValueType]) -> None:
        """Raise InvalidProfile if profiles with these sample types can't be written."""
        needed = self.needs_type
        if needed and all(sample_type.type != needed for sample_type in sample_types):
            raise InvalidProfile(
                f"A {self.suffix} file takes {needed} profiles only: choose --profile {needed}, or "
                "another format with -f."
            )

    def encode_timeline(self, timeline: Timeline) -> bytes:
        """The timeline in this format. Raises ValueError if it can't be."""
        if self.timeline is None:
            raise ValueError(f"A timeline cannot be written as {self.name}.")
        return self.timeline(timeline)


def of_name(path: str) -> str | None:
    """The format with the longest suffix that matches the file name; None if none matches."""
    matching = {
        ending: made.name
        for made in FORMATS.values()
        for ending in made.endings
        if path.lower().endswith(ending)
    }
    return matching[max(matching, key=len)] if matching else None


def hides_idle(format_name: str, chosen: bool | None) -> bool:
    """Whether a file of a format leaves out idle waits: as was chosen, else if people read it."""
    made = FORMATS[format_name]
    if made.is_complete:
        return False
    return made.hides_idle if chosen is None else chosen


def encode(
    profile: Profile,
    name: str,
    *,
    hide_idle: bool = False,
    sample_type: str | None = None,
    sources: Mapping[str, Any] | None = None,
    locks: Sequence[Lock] = (),
    by_handler: bool = False,
) -> bytes:
    """The profile in the format `name`.

    `hide_idle` leaves out idle waits (profile.idle); in formats with comments, a comment says how
    much that was. An HTML file holds idle waits, but hides them at first. `sample_type` is the
    sample type to write, or to show first if the format holds all of them; by default the last one.
    An HTML file also holds `sources` and `locks` (flamegraph.encode). With `by_handler`, text has
    the sums of handlers (tables.handlers).
    Raises InvalidProfile if the profile has no such type or the format can't hold it, ValueError
    if the format takes no profiles, or always holds everything.
    """
    made = FORMATS[name]
    if made.profile is None:
        raise ValueError(f"A profile cannot be written as {name}.")
    made.require_type(profile.sample_types)
    index = _index(made, profile, sample_type, hide_idle)
    view = ProfileView(index, hide_idle, sources, locks, by_handler)
    return made.profile(profile, view)


def encode_difference(
    profile: Profile,
    base: Profile,
    name: str,
    *,
    hide_idle: bool = False,
    sample_type: str | None = None,
) -> bytes:
    """The change from `base` to `profile`, in one of DIFFERENCES.

    For `hide_idle` and `sample_type` see encode(). Raises InvalidProfile if the profiles have
    different sample types, or if the format can't hold the change.
    """
    from ebpfprof.profile.delta import require_same_types

    made = FORMATS[name]
    if made.difference is None:
        raise ValueError(f"A difference cannot be written as {name}.")
    require_same_types(profile, base)
    index = _index(made, profile, sample_type, hide_idle)
    return made.difference(profile, base, ProfileView(index, hide_idle))


def index_of(profile: Profile, sample_type: str) -> int:
    """The index of a sample type. Raises InvalidProfile if the profile does not have it."""
    names = [value_type.type for value_type in profile.sample_types]
    if sample_type not in names:
        raise InvalidProfile(
            f"The profile has no sample type {sample_type!r}; it has {', '.join(names)}."
        )
    return names.index(sample_type)


def without_idle(profile: Profile) -> Profile:
    """The profile without idle waits, with a comment about their number and delay."""
    from ebpfprof.export.tables.idle import hidden_line
    from ebpfprof.profile.idle import split

    kept, hidden = split(profile)
    comment = hidden_line(profile, hidden).strip()
    return replace(kept, comments=(*kept.comments, comment)) if comment else kept


def _index(made: Format, profile: Profile, sample_type: str | None, hide_idle: bool) -> int | None:
    if made.is_complete and (hide_idle or sample_type):
        raise ValueError(f"A {made.name} file always holds everything.")
    return None if sample_type is None else index_of(profile, sample_type)


def _shown(profile: Profile, view: ProfileView) -> int:
    """The sample type to write, or to show first."""
    from ebpfprof.export.kinds import default_index

    return default_index(profile) if view.index is None else view.index


def _without_hidden(profile: Profile, view: ProfileView) -> Profile:
    return without_idle(profile) if view.hide_idle else profile


def _pprof(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import pprof

    return pprof.encode(profile)


def _pprof_difference(profile: Profile, base: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import pprof
    from ebpfprof.profile.delta import compared

    return pprof.encode(compared(profile, base))


def _pgo(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import pgo

    return pgo.encode(profile)


def _folded(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import folded

    return folded.encode(_without_hidden(profile, view), index=_shown(profile, view))


def _folded_difference(profile: Profile, base: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import folded

    index = _shown(profile, view)
    profile, base = _without_hidden(profile, view), _without_hidden(base, view)
    return folded.encode_difference(profile, base, index=index)


def _speedscope(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import speedscope

    return speedscope.encode(_without_hidden(profile, view), index=_shown(profile, view))


def _html(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import flamegraph

    return flamegraph.encode(
        profile,
        index=_shown(profile, view),
        hide_idle=view.hide_idle,
        sources=view.sources,
        locks=view.locks,
    )


def _html_difference(profile: Profile, base: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import flamegraph

    index = _shown(profile, view)
    return flamegraph.encode(profile, index=index, base=base, hide_idle=view.hide_idle)


def _html_timeline(timeline: Timeline) -> bytes:
    from ebpfprof.export.timelines import page

    return page.encode(timeline)


def _json(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import json_profile

    return json_profile.encode(_without_hidden(profile, view), default=_shown(profile, view))


def _json_difference(profile: Profile, base: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export import json_profile

    index = _shown(profile, view)
    profile, base = _without_hidden(profile, view), _without_hidden(base, view)
    return json_profile.encode_difference(profile, base, index=index)


def _text(profile: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export.tables import report

    return report.encode(
        profile, index=view.index, hide_idle=view.hide_idle, by_handler=view.by_handler
    )


def _text_difference(profile: Profile, base: Profile, view: ProfileView) -> bytes:
    from ebpfprof.export.tables import diff

    return diff.encode(profile, base, index=_shown(profile, view), hide_idle=view.hide_idle)


def _go_trace(timeline: Timeline) -> bytes:
    from ebpfprof.export.timelines import go_trace

    return go_trace.encode(timeline)


def _perfetto(timeline: Timeline) -> bytes:
    from ebpfprof.export.timelines import perfetto

    return perfetto.encode(timeline)


FORMATS: Final = {
    made.name: made
    for made in (
        Format(
            "pprof",
            ".pb.gz",
            is_text=False,
            is_complete=True,
            other_suffixes=(".pprof", ".prof"),
            profile=_pprof,
            difference=_pprof_difference,
        ),
        Format(
            "pgo",
            ".pgo",
            is_text=False,
            is_complete=True,
            needs_type="cpu",
            profile=_pgo,
        ),
        Format("folded", ".folded", profile=_folded, difference=_folded_difference),
        Format("speedscope", ".speedscope.json", profile=_speedscope),
        Format(
            "go",
            ".trace",
            is_text=False,
            other_suffixes=(".out",),
            timeline_ending="trace",
            opens_timeline="go tool trace {}",
            timeline=_go_trace,
        ),
        Format(
            "perfetto",
            ".perfetto-trace",
            is_text=False,
            other_suffixes=(".pftrace", ".perfetto"),
            timeline_ending="perfetto-trace",
            opens_timeline="https://ui.perfetto.dev, which opens {} and keeps it in the browser",
            timeline=_perfetto,
        ),
        Format(
            "html",
            ".html",
            hides_idle=True,
            timeline_ending="trace.html",
            opens_timeline="a browser, with {}",
            profile=_html,
            difference=_html_difference,
            timeline=_html_timeline,
        ),
        Format("json", ".json", profile=_json, difference=_json_difference),
        Format("text", ".txt", hides_idle=True, profile=_text, difference=_text_difference),
    )
}
PROFILES: Final = tuple(name for name, made in FORMATS.items() if made.profile)
"""The names of the formats of profiles."""
DIFFERENCES: Final = tuple(name for name, made in FORMATS.items() if made.difference)
"""Those of differences."""
TIMELINES: Final = tuple(name for name, made in FORMATS.items() if made.timeline)
"""Those of timelines."""
