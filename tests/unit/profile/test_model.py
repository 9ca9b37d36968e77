"""The model's invariants: a sound profile passes, every single fault is found."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import (
    Frame,
    Label,
    Location,
    Mapping,
    Profile,
    Sample,
    ValueType,
)
from ebpfprof.profile.validate import check
from ebpfprof.profilers.waits.kinds import BLOCK

MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "c0ffee")
FRAME = Frame("main.work", "/src/main.go", 12, 10)
LOCATION = Location(0x401000, MAIN, (FRAME,))
SAMPLE = Sample((LOCATION,), (3, 4500))
SOUND = BLOCK.make_profile([SAMPLE], [MAIN], time_ns=1, duration_ns=2, comments=["hello"])


def with_sample(**changes: object) -> Profile:
    return replace(SOUND, samples=(replace(SAMPLE, **changes),))  # type: ignore[arg-type]  # mypy can't know the fields


def with_location(**changes: object) -> Profile:
    return with_sample(locations=(replace(LOCATION, **changes),))  # type: ignore[arg-type]  # mypy can't know the fields


def with_frame(**changes: object) -> Profile:
    return with_location(frames=(FRAME, replace(FRAME, **changes)))  # type: ignore[arg-type]  # mypy can't know the fields


def with_mapping(**changes: object) -> Profile:
    return replace(SOUND, samples=(), mappings=(replace(MAIN, **changes),))  # type: ignore[arg-type]  # mypy can't know the fields


def test_a_block_profile_has_the_types_of_gos_own() -> None:
    assert SOUND.kind == "block"
    assert SOUND.sample_types == (
        ValueType("contentions", "count"),
        ValueType("delay", "nanoseconds"),
    )
    assert SOUND.period_type == ValueType("contentions", "count")
    assert SOUND.period == 1
    assert SOUND.comments == ("hello",)
    assert (SOUND.time_ns, SOUND.duration_ns) == (1, 2)


@pytest.mark.parametrize(
    "profile",
    [
        SOUND,
        BLOCK.make_profile([], [], time_ns=0, duration_ns=0),
        with_sample(locations=()),
        with_sample(values=(-3, -4500)),
        with_sample(labels=(Label("thread", "GC"), Label("size", 0, "bytes"))),
        with_location(frames=()),
        with_location(mapping=None),
        with_location(address=MAIN.start),
        with_location(address=MAIN.limit - 1),
        with_frame(line=0, start_line=0),
        # An equal mapping is the same mapping.
        with_location(mapping=replace(MAIN)),
    ],
)
def test_sound_profiles_pass(profile: Profile) -> None:
    check(profile)


BROKEN: dict[str, tuple[Callable[[], Profile], str]] = {
    "no sample types": (lambda: replace(SOUND, sample_types=()), "no sample types"),
    "two types of one name": (
        lambda: replace(SOUND, sample_types=(SOUND.sample_types[0],) * 2),
        "same name",
    ),
    "type without name": (
        lambda: replace(SOUND, sample_types=(ValueType("", "count"), SOUND.sample_types[1])),
        "lacks its name",
    ),
    "period type without unit": (
        lambda: replace(SOUND, period_type=ValueType("contentions", "")),
        "lacks its name",
    ),
    "hyphen in a type": (
        lambda: replace(SOUND, sample_types=(ValueType("in-use", "count"), SOUND.sample_types[1])),
        "hyphen",
    ),
    "negative period": (lambda: replace(SOUND, period=-1), "period is -1"),
    "negative time": (lambda: replace(SOUND, time_ns=-1), "time_ns is -1"),
    "duration too large": (lambda: replace(SOUND, duration_ns=1 << 63), "duration_ns is"),
    "mapping upside down": (lambda: with_mapping(limit=MAIN.start), "end is below its start"),
    "mapping below 0": (lambda: with_mapping(start=-1), "end is below its start"),
    "mapping above 64 bits": (lambda: with_mapping(limit=1 << 64), "end is below its start"),
    "file offset below 0": (lambda: with_mapping(offset=-4096), "file offset"),
    "mapping twice": (lambda: replace(SOUND, mappings=(MAIN, replace(MAIN))), "twice"),
    "too few values": (lambda: with_sample(values=(1,)), "1 values for 2"),
    "too many values": (lambda: with_sample(values=(1, 2, 3)), "3 values for 2"),
    "value above 64 bits": (lambda: with_sample(values=(1, 1 << 63)), "64 bits"),
    "label without key": (lambda: with_sample(labels=(Label("", "x"),)), "no key"),
    "empty text label": (lambda: with_sample(labels=(Label("k", ""),)), "would drop"),
    "zero label without unit": (lambda: with_sample(labels=(Label("k", 0),)), "would drop"),
    "text label with unit": (lambda: with_sample(labels=(Label("k", "x", "s"),)), "has a unit"),
    "label above 64 bits": (lambda: with_sample(labels=(Label("k", 1 << 63),)), "64 bits"),
    "address 0": (lambda: with_location(address=0, mapping=None), "address 0x0"),
    "address above 64 bits": (lambda: with_location(address=1 << 64, mapping=None), "address 0x1"),
    "address before its mapping": (lambda: with_location(address=MAIN.start - 1), "outside"),
    "address behind its mapping": (lambda: with_location(address=MAIN.limit), "outside"),
    "mapping not in the table": (
        lambda: with_location(mapping=replace(MAIN, build_id="other")),
        "not in the table",
    ),
    "frame without name": (lambda: with_frame(function=""), "no function name"),
    "negative line": (lambda: with_frame(line=-1), "line out of range"),
    "negative start line": (lambda: with_frame(start_line=-1), "line out of range"),
}


@pytest.mark.parametrize(("broken", "fault"), BROKEN.values(), ids=BROKEN.keys())
def test_each_fault_of_a_profile_is_named(broken: Callable[[], Profile], fault: str) -> None:
    with pytest.raises(InvalidProfile, match=fault):
        check(broken())


def test_equal_locations_are_equal_dictionary_keys() -> None:
    def locations() -> list[Location]:
        frames = (Frame("main.f", "/f.go", 3), Frame("main.g", "/g.go", 5))
        mapping = Mapping(0, 9, 0, "/bin/x", "")
        return [
            Location(7, mapping, frames),
            Location(7, mapping, frames[1:]),
            Location(7, None, frames),
            Location(7, mapping, (frames[0], frames[0])),
            Location(8, mapping, frames),
            Location(7, mapping, ()),
        ]

    numbers = {location: number for number, location in enumerate(locations())}
    assert [numbers[location] for location in locations()] == list(range(6))
