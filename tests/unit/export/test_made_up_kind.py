"""A kind that only its declaration describes: each format shows and compares its profiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ebpfprof.commands.diff import of_one_kind
from ebpfprof.errors import InvalidProfile
from ebpfprof.export import formats, pprof
from ebpfprof.profile.kind import ProfileKind, Table
from ebpfprof.profile.model import Profile, Sample, ValueType
from ebpfprof.profilers import registry
from tests.unit.export.profiles import SLEEPER
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, SMALL, WORK
from tests.unit.made_up_kinds import GOROUTINES, made_up

__all__ = ["made_up"]

WIDGETS = ProfileKind(
    name="widgets",
    title="widget",
    subject="Widgets",
    summary="what makes widgets",
    heading="Widgets of {process} in {length}",
    events="widgets",
    nothing="the program made no widgets",
    headline="of widgets:",
    sample_types=(ValueType("widgets", "count"), ValueType("size", "bytes")),
    table=Table("functions", "Weight", "Pieces", ("Made in",)),
    profiler="no.such.module",
)
OPERATIONS = replace(WIDGETS, table=replace(WIDGETS.table, rows="operations"), is_moment=True)
SAMPLES = (
    Sample((LOCK, WORK), (2, 3 << 20)),
    Sample((RECEIVE, SLEEPER), (3, 1 << 20)),
)


@pytest.fixture(params=[WIDGETS, OPERATIONS], ids=["functions", "operations"])
def kind(request: pytest.FixtureRequest) -> Iterator[ProfileKind]:
    with registry.registered(request.param) as registered:
        yield registered


def profile_of(kind: ProfileKind, *samples: Sample) -> Profile:
    return kind.make_profile(samples, [MAIN], time_ns=1, duration_ns=2_000_000_000)


def lines(data: bytes) -> list[str]:
    return [re.sub(r" +", " ", line).strip() for line in data.decode().splitlines()]


def test_a_file_is_read_as_its_kind(kind: ProfileKind) -> None:
    profile = profile_of(kind, *SAMPLES)
    found = pprof.decode(pprof.encode(profile))
    assert found.kind == "widgets"
    assert found == profile


def test_other_profiles_keep_their_kinds(kind: ProfileKind) -> None:
    assert pprof.decode(pprof.encode(SMALL)).kind == "block"
    swapped = replace(SMALL, sample_types=kind.sample_types[::-1])
    assert pprof.decode(pprof.encode(swapped)).kind == ""


@pytest.mark.parametrize("hide_idle", [False, True])
def test_the_table_has_the_rows_and_headings_of_the_kind(
    kind: ProfileKind, hide_idle: bool
) -> None:
    found = lines(formats.encode(profile_of(kind, *SAMPLES), "text", hide_idle=hide_idle))
    rows = {
        "functions": [
            "Weight Share Cum Share Function",
            "3.00 MiB 75.0% 3.00 MiB 75.0% sync.(*Mutex).Lock",
            "1.00 MiB 25.0% 1.00 MiB 25.0% runtime.chanrecv1",
            "4.00 MiB in all",
        ],
        "operations": [
            "Weight Share Pieces Mean Operation Made in",
            "3.00 MiB 75.0% 2 1.50 MiB RWMutex.Lock main.work",
            "/src/main.go:12",
            "1.00 MiB 25.0% 3 341 KiB chan receive main.(*Pool).worker",
            "/src/main.go:40",
        ],
    }
    assert "75 % of widgets: " in found[0]
    assert found[1:] == ["", "Widgets of api in 2.00 s:", *rows[kind.table.rows]]


def test_a_kind_with_one_value_has_no_count_and_no_mean(made_up: None) -> None:
    goroutines = GOROUTINES.make_profile(
        [Sample((LOCK, WORK), (3,)), Sample((RECEIVE, SLEEPER), (1,))],
        [MAIN],
        time_ns=1,
        duration_ns=0,
    )
    assert lines(formats.encode(goroutines, "text")) == [
        "75 % of goroutines: RWMutex.Lock in main.work (main.go:12), 3.",
        "",
        "Goroutines of api:",
        "Goroutines Share Operation Called from",
        "3 75.0% RWMutex.Lock main.work",
        "/src/main.go:12",
        "1 25.0% chan receive main.(*Pool).worker",
        "/src/main.go:40",
    ]


def test_the_table_of_an_empty_profile_says_so(kind: ProfileKind) -> None:
    found = lines(formats.encode(profile_of(kind), "text"))
    assert found[1:] == ["Nothing was recorded: the program made no widgets."]


def test_a_chosen_sample_type_has_a_table_of_functions(kind: ProfileKind) -> None:
    found = lines(formats.encode(profile_of(kind, *SAMPLES), "text", sample_type="widgets"))
    assert found[1:3] == [
        "Widgets Share Cum Share Function",
        "3 60.0% 3 60.0% runtime.chanrecv1",
    ]


def test_the_json_describes_the_kind(kind: ProfileKind) -> None:
    found = json.loads(formats.encode(profile_of(kind, *SAMPLES), "json"))
    assert (found["kind"], found["title"]) == ("widgets", "Widgets of api")
    assert found.get("moment", False) is kind.is_moment
    names = {"functions": ["", ""], "operations": ["RWMutex.Lock", "chan receive"]}
    assert [found["strings"][n] for n in found["operations"]] == names[kind.table.rows]
    assert found["idle"] == [-1, -1]


@pytest.mark.parametrize("name", ["html", "speedscope"])
def test_files_for_viewers_have_the_title_of_the_kind(kind: ProfileKind, name: str) -> None:
    assert b"Widgets of api" in formats.encode(profile_of(kind, *SAMPLES), name)


def test_a_difference_lists_places_of_the_kind(kind: ProfileKind) -> None:
    base, later = profile_of(kind, *SAMPLES[:1]), profile_of(kind, *SAMPLES)
    found = lines(formats.encode_difference(later, base, "text"))
    rows = {
        "functions": [
            "Change Share Itself Before After Function",
            "+1.00 MiB +33.3% new 0 B 1.00 MiB runtime.chanrecv1",
        ],
        "operations": [
            "Change Share Itself Before After Mean Operation Made in",
            "+1.00 MiB +33.3% new 0 B 1.00 MiB - to 341 KiB chan receive main.(*Pool).worker",
        ],
    }
    assert found == [
        "Widgets of api: 3.00 MiB before, 4.00 MiB after (2.00 s and 2.00 s recorded)",
        "Change: +1.00 MiB (+33.3%)",
        "",
        "More:",
        *rows[kind.table.rows],
    ]


@pytest.mark.parametrize("name", formats.DIFFERENCES)
def test_every_difference_format_writes_the_kind(kind: ProfileKind, name: str) -> None:
    later, base = profile_of(kind, *SAMPLES), profile_of(kind, *SAMPLES[:1])
    assert formats.encode_difference(later, base, name)


def test_profiles_are_compared_only_with_their_own_kind(kind: ProfileKind) -> None:
    widgets = profile_of(kind, *SAMPLES)
    assert of_one_kind(widgets, widgets) == (widgets, widgets)
    with pytest.raises(InvalidProfile, match="only profiles of the same kind can be compared"):
        of_one_kind(SMALL, widgets)
    with pytest.raises(InvalidProfile, match="A is a widgets profile and B is a gadgets profile"):
        of_one_kind(widgets, replace(widgets, kind="gadgets"))


def test_a_kind_is_unregistered_afterwards() -> None:
    with registry.registered(WIDGETS):
        assert registry.kind_named("widgets") is WIDGETS
        data = pprof.encode(profile_of(WIDGETS, *SAMPLES))
    assert registry.find_kind("widgets") is None
    assert pprof.decode(data).kind == ""
    assert WIDGETS not in registry.kinds()


def test_a_profile_of_an_unregistered_kind_is_shown_by_functions() -> None:
    profile = profile_of(OPERATIONS, *SAMPLES)
    found = lines(formats.encode(profile, "text"))
    assert found[:2] == ["Profile of api in 2.00 s:", "Size Share Cum Share Function"]
    assert json.loads(formats.encode(profile, "json"))["operations"] == [0, 0]
