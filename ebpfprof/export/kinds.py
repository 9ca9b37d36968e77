"""What formats show of a profile's kind, with defaults for profiles of other tools."""

from ebpfprof.console.text import well_formed
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import find_kind

_SUBJECT_OF_OTHERS = "Profile"


def title(profile: Profile) -> str:
    """A few words: what the profile shows, and its program."""
    kind = find_kind(profile.kind)
    subject = kind.subject if kind else _SUBJECT_OF_OTHERS
    program = profile.mappings[0].filename.rpartition("/")[2] if profile.mappings else ""
    return well_formed(f"{subject} of {program}" if program else subject)


def has_operations(profile: Profile) -> bool:
    """Whether its stacks are operations (profile.operations) of goroutines."""
    kind = find_kind(profile.kind)
    return kind is not None and kind.table.rows == "operations"


def place_heading(profile: Profile) -> str:
    """What a column of the places of its operations is called."""
    kind = find_kind(profile.kind)
    return kind.table.place[0] if kind else "Function"


def in_tables(profile: Profile) -> Profile:
    """The profile with no more values than tables of its kind show: how many, and how much."""
    kind = find_kind(profile.kind)
    return kind.in_tables(profile) if kind else profile


def default_index(profile: Profile) -> int:
    """The index of the value to show first."""
    names = [value_type.type for value_type in profile.sample_types]
    default = profile.default_sample_type
    return names.index(default) if default in names else len(names) - 1


def count_index(profile: Profile) -> int:
    """The index of the value that says how many events there were."""
    kind = find_kind(profile.kind)
    return kind.shown[0] if kind else 0


def count_heading(profile: Profile) -> str:
    """What tables call the number of events, "" if they don't show it."""
    kind = find_kind(profile.kind)
    return kind.table.count if kind else ""


def kind_words(profile: Profile) -> dict[str, str]:
    """What pages call the parts of a profile of a known kind; {} for one of another tool."""
    kind = find_kind(profile.kind)
    if kind is None:
        return {}
    return {
        "rows": kind.table.rows,
        "value": kind.table.value,
        "place": kind.table.place[0],
        "headline": kind.headline,
        "events": kind.events,
        "nothing": kind.nothing,
    }


def is_moment(profile: Profile) -> bool:
    """Whether it shows a moment, rather than sums over the recorded time."""
    kind = find_kind(profile.kind)
    return kind is not None and kind.is_moment
