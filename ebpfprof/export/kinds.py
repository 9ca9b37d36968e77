"""What formats show of a profile's kind; for a profile of another tool, defaults."""

from ebpfprof.console.text import well_formed
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import find_kind

_SUBJECT_OF_OTHERS = "Profile"


def title(profile: Profile) -> str:
    """What the profile shows, and of which program, in a few words."""
    kind = find_kind(profile.kind)
    subject = kind.subject if kind else _SUBJECT_OF_OTHERS
    program = profile.mappings[0].filename.rpartition("/")[2] if profile.mappings else ""
    return well_formed(f"{subject} of {program}" if program else subject)


def has_operations(profile: Profile) -> bool:
    """Whether its stacks are those of operations (profile.operations) of goroutines."""
    kind = find_kind(profile.kind)
    return kind is not None and kind.table.rows == "operations"


def is_moment(profile: Profile) -> bool:
    """Whether it shows a moment, not a sum over the time that was recorded."""
    kind = find_kind(profile.kind)
    return kind is not None and kind.is_moment
