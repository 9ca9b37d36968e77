"""The formats of profiles, by their names in -f/--format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import flamegraph, folded, json_profile, pprof, speedscope
from ebpfprof.export.kinds import default_index
from ebpfprof.export.tables import diff, report
from ebpfprof.export.tables.idle import hidden_line
from ebpfprof.profile.delta import compared, require_same_types
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Lock, Profile


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the suffix of its files, and whether a terminal can show it.

    Files that end in one of `other_suffixes` are of the format, too. If it `hides_idle`, people
    read it, so that idle waits are hidden unless they ask for them.
    """

    name: str
    suffix: str
    is_text: bool
    hides_idle: bool = False
    other_suffixes: tuple[str, ...] = ()

    @property
    def endings(self) -> tuple[str, ...]:
        """What the names of its files end in, its own suffix first."""
        return (self.suffix, *self.other_suffixes)


FORMATS = {
    each.name: each
    for each in (
        Format("pprof", ".pb.gz", is_text=False, other_suffixes=(".pprof", ".prof")),
        Format("folded", ".folded", is_text=True),
        Format("speedscope", ".speedscope.json", is_text=True),
        Format("html", ".html", is_text=True, hides_idle=True),
        Format("json", ".json", is_text=True),
        Format("text", ".txt", is_text=True, hides_idle=True),
    )
}


def of_name(path: str) -> str | None:
    """The format with the longest suffix that matches the file name; None if none matches."""
    found = {
        ending: each.name
        for each in FORMATS.values()
        for ending in each.endings
        if path.lower().endswith(ending)
    }
    return found[max(found, key=len)] if found else None


def hides_idle(format_name: str, chosen: bool | None) -> bool:
    """Whether a file of a format leaves out idle waits: as was chosen, else if people read it.

    A pprof file is always complete.
    """
    if format_name == "pprof":
        return False
    return FORMATS[format_name].hides_idle if chosen is None else chosen


DIFFERENCE_FORMATS = ("text", "html", "folded", "json", "pprof")


def encode(
    profile: Profile,
    name: str,
    *,
    hide_idle: bool = False,
    sample_type: str | None = None,
    sources: Mapping[str, Any] | None = None,
    locks: Sequence[Lock] = (),
) -> bytes:
    """The profile in the format `name`.

    `hide_idle` leaves out idle waits (profile.idle); in formats with comments, a comment says how
    much that was. An HTML file holds idle waits, but hides them at first. `sample_type` is the
    sample type to write, or to show first if the format holds all of them; by default the last one.
    An HTML file also holds `sources` and `locks` (flamegraph.encode).
    Raises InvalidProfile if the profile has no such type or the format can't hold it, ValueError
    for a pprof file with `hide_idle` or `sample_type`.
    """
    if name == "pprof":
        if hide_idle or sample_type:
            raise ValueError("A pprof file always holds everything.")
        return pprof.encode(profile)
    index = None if sample_type is None else index_of(profile, sample_type)
    if name == "text":
        return report.encode(profile, index=index, hide_idle=hide_idle)
    shown = default_index(profile) if index is None else index
    if name == "html":
        return flamegraph.encode(
            profile, index=shown, hide_idle=hide_idle, sources=sources, locks=locks
        )
    if hide_idle:
        profile = without_idle(profile)
    return _ENCODERS[name](profile, shown)


def encode_difference(
    profile: Profile,
    base: Profile,
    name: str,
    *,
    hide_idle: bool = False,
    sample_type: str | None = None,
) -> bytes:
    """The change from `base` to `profile`, in one of DIFFERENCE_FORMATS.

    For `hide_idle` and `sample_type` see encode(). Raises InvalidProfile if the profiles have
    different sample types, or if the format can't hold the change.
    """
    if name == "pprof" and (hide_idle or sample_type):
        raise ValueError("A pprof file always holds everything.")
    require_same_types(profile, base)
    if name == "pprof":
        return pprof.encode(compared(profile, base))
    index = default_index(profile) if sample_type is None else index_of(profile, sample_type)
    if name == "html":
        return flamegraph.encode(profile, index=index, base=base, hide_idle=hide_idle)
    if name == "text":
        return diff.encode(profile, base, index=index, hide_idle=hide_idle)
    if hide_idle:
        profile, base = without_idle(profile), without_idle(base)
    if name == "folded":
        return folded.encode_difference(profile, base, index=index)
    if name == "json":
        return json_profile.encode_difference(profile, base, index=index)
    raise ValueError(f"A difference cannot be written as {name}.")


def index_of(profile: Profile, sample_type: str) -> int:
    """The index of a sample type. Raises InvalidProfile if the profile does not have it."""
    names = [each.type for each in profile.sample_types]
    if sample_type not in names:
        raise InvalidProfile(
            f"The profile has no sample type {sample_type!r}; it has {', '.join(names)}."
        )
    return names.index(sample_type)


def without_idle(profile: Profile) -> Profile:
    """The profile without idle waits, with a comment about their number and delay."""
    kept, hidden = split(profile)
    comment = hidden_line(profile, hidden).strip()
    return replace(kept, comments=(*kept.comments, comment)) if comment else kept


_ENCODERS: dict[str, Callable[[Profile, int], bytes]] = {
    "folded": lambda profile, index: folded.encode(profile, index=index),
    "speedscope": lambda profile, index: speedscope.encode(profile, index=index),
    "json": lambda profile, index: json_profile.encode(profile, default=index),
}
