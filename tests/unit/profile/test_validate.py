"""The limits of what a profile may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Frame, Label, Location, Mapping, Profile, Sample
from ebpfprof.profile.validate import check
from tests.unit.export.small_profile import MAIN, SMALL

INT64_MAX, UINT64_MAX = (1 << 63) - 1, (1 << 64) - 1
WORK = Frame("main.work", "/src/main.go", 12)


def of(location: Location, *labels: Label, values: tuple[int, ...] = (1, 2)) -> Profile:
    return replace(SMALL, samples=(Sample((location,), values, labels),))


def at(address: int, mapping: Mapping | None = None, frame: Frame = WORK) -> Location:
    return Location(address, mapping, (frame,))


@pytest.mark.parametrize(
    "profile",
    [
        of(at(1)),
        of(at(UINT64_MAX)),
        of(at(MAIN.start, MAIN)),
        of(at(MAIN.limit - 1, MAIN)),
        of(at(1, frame=replace(WORK, line=0, start_line=0))),
        of(at(1, frame=replace(WORK, line=INT64_MAX, start_line=INT64_MAX))),
        of(at(1), Label("bytes", INT64_MAX), Label("delay", -INT64_MAX)),
        of(at(1), Label("bytes", 0, "bytes"), Label("user", "anna")),
    ],
)
def test_what_fits_is_accepted(profile: Profile) -> None:
    check(profile)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (of(at(0)), "has the address 0x0"),
        (of(at(UINT64_MAX + 1)), "has the address 0x10000000000000000"),
        (of(at(MAIN.start - 1, MAIN)), "lies outside its mapping"),
        (of(at(MAIN.limit, MAIN)), "lies outside its mapping"),
        (of(at(MAIN.start, replace(MAIN, build_id="x"))), "is not in the table"),
        (of(at(1, frame=replace(WORK, function=""))), "has no function name"),
        (of(at(1, frame=replace(WORK, line=-1))), "line out of range"),
        (of(at(1, frame=replace(WORK, start_line=INT64_MAX + 1))), "line out of range"),
        (of(at(1), Label("", "x")), "has no key"),
        (of(at(1), Label("user", "")), "would drop the empty label"),
        (of(at(1), Label("user", "anna", "bytes")), "is a string and has a unit"),
        (of(at(1), Label("bytes", INT64_MAX + 1)), "does not fit 64 bits"),
        (of(at(1), Label("bytes", -INT64_MAX - 1)), "does not fit 64 bits"),
    ],
)
def test_what_does_not_fit_is_refused(profile: Profile, message: str) -> None:
    with pytest.raises(InvalidProfile, match=message):
        check(profile)
