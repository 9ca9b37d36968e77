"""What is known well enough to be shown: the rules for estimated rows, and for releases of locks.

Tables, pages and comparisons all ask these, so that they agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Frame, Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.profile.model import Profile, Sample

MAX_ERROR: Final = 0.5
"""A row with a larger standard error, as a part of its value, may as well be near nothing: two
standard errors reach down to zero. It has no rank and no share."""
MAX_UNKNOWN: Final = 0.1
"""If the releases of a larger part of the delay are not known, shares of releases say nothing:
what was not recorded is not like the rest. Probes miss long holds first."""
UNKNOWN_RELEASE: Final = Location(0x40, None, (Frame("[release not recorded]", "", 0),))
"""In place of the stack of a release that no window recorded. No program has code there."""
FEW_RELEASES: Final = "few releases of locks were recorded"
"""How the comment of a profile begins that says how to record all releases."""


def is_ranked(value: float, variance: float) -> bool:
    """Whether a value is known well enough to have a rank and a share; an exact one always is."""
    return variance <= (MAX_ERROR * value) ** 2


def unranked_line(count: int) -> str:
    """The line below a table that omits this number of rows, with its newline; "" for 0."""
    if not count:
        return ""
    rows = "1 more row was" if count == 1 else f"{count:,} more rows were"
    return f"{rows} seen too few times to rank.\n"


def is_unknown_release(sample: Sample) -> bool:
    """Whether it stands for releases that were not recorded."""
    frames = sample.locations[0].frames if sample.locations else ()
    return bool(frames) and frames[0].function == UNKNOWN_RELEASE.frames[0].function


def are_releases_known(releases: Sequence[Sample]) -> bool:
    """Whether enough of the delay of these releases was charged to recorded ones."""
    unknown_ns = sum(release.values[-1] for release in releases if is_unknown_release(release))
    return unknown_ns <= MAX_UNKNOWN * sum(sample.values[-1] for sample in releases)


def few_releases(profile: Profile) -> str:
    """What to say instead of a table of releases, a sentence; "" if the releases are known."""
    if are_releases_known(profile.samples):
        return ""
    comments = (comment for comment in profile.comments if comment.startswith(FEW_RELEASES))
    said = next(comments, f"{FEW_RELEASES}: --max-overhead 0 records each release")
    return f"{said[:1].upper()}{said[1:]}."
