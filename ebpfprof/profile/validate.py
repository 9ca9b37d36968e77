"""Checks that all readers of pprof files accept a profile."""

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Location, Mapping, Profile, Sample

_INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1


def check(profile: Profile) -> None:
    """Check what every exporter relies on.

    Stricter than pprof's own CheckValid: it also refuses what other readers (Parca, Pyroscope,
    Alloy) refuse or misread. Raises InvalidProfile, which names the first fault.
    """
    _check_header(profile)
    for mapping in profile.mappings:
        _check_mapping(mapping)
    if len(set(profile.mappings)) != len(profile.mappings):
        raise InvalidProfile("The table has the same mapping twice.")
    known = set(profile.mappings)
    seen: set[Location] = set()
    for sample in profile.samples:
        if len(sample.values) != len(profile.sample_types):
            raise InvalidProfile(
                f"A sample has {len(sample.values)} values for "
                f"{len(profile.sample_types)} sample types."
            )
        if any(not -_INT64_MAX <= value <= _INT64_MAX for value in sample.values):
            raise InvalidProfile(f"A sample's values {sample.values} do not fit 64 bits.")
        _check_labels(sample)
        for location in sample.locations:
            if location not in seen:
                _check_location(location, known)
                seen.add(location)


def _check_header(profile: Profile) -> None:
    if not profile.sample_types:
        raise InvalidProfile("The profile has no sample types.")
    names = [value_type.type for value_type in profile.sample_types]
    if len(set(names)) != len(names):
        raise InvalidProfile(f"Two sample types have the same name: {', '.join(names)}.")
    for value_type in (*profile.sample_types, profile.period_type):
        if not value_type.type or not value_type.unit:
            raise InvalidProfile("A sample type or the period type lacks its name or unit.")
        if "-" in value_type.type:
            raise InvalidProfile(f"The type {value_type.type!r} holds a hyphen.")
    for name in ("period", "time_ns", "duration_ns"):
        if not 0 <= getattr(profile, name) <= _INT64_MAX:
            raise InvalidProfile(f"{name} is {getattr(profile, name)}.")


def _check_mapping(mapping: Mapping) -> None:
    if not 0 <= mapping.start < mapping.limit <= _UINT64_MAX:
        raise InvalidProfile(
            f"The mapping {mapping.start:#x}-{mapping.limit:#x} is empty, or its end is below its "
            "start."
        )
    if not 0 <= mapping.offset <= _UINT64_MAX:
        raise InvalidProfile(f"The mapping's file offset {mapping.offset:#x} is out of range.")


def _check_labels(sample: Sample) -> None:
    for label in sample.labels:
        if not label.key:
            raise InvalidProfile("A label has no key.")
        if label.value in ("", 0) and not label.unit:
            raise InvalidProfile(f"pprof would drop the empty label {label.key!r}.")
        if isinstance(label.value, str) and label.unit:
            raise InvalidProfile(f"The label {label.key!r} is a string and has a unit.")
        if isinstance(label.value, int) and not -_INT64_MAX <= label.value <= _INT64_MAX:
            raise InvalidProfile(f"The label {label.key!r} does not fit 64 bits.")


def _check_location(location: Location, mappings: set[Mapping]) -> None:
    address, mapping = location.address, location.mapping
    if not 0 < address <= _UINT64_MAX:
        raise InvalidProfile(f"A location has the address {address:#x}.")
    if mapping is not None:
        if mapping not in mappings:
            raise InvalidProfile(f"The mapping of the address {address:#x} is not in the table.")
        if not mapping.start <= address < mapping.limit:
            raise InvalidProfile(f"The address {address:#x} lies outside its mapping.")
    for frame in location.frames:
        if not frame.function:
            raise InvalidProfile(f"A frame at {address:#x} has no function name.")
        if not (0 <= frame.line <= _INT64_MAX and 0 <= frame.start_line <= _INT64_MAX):
            raise InvalidProfile(f"A frame at {address:#x} has a line out of range.")
