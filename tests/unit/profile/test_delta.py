"""Differences and sums of profiles: net/http/pprof's rules for a window, pprof's for the rest."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.profile import delta
from ebpfprof.profile.model import (
    Frame,
    Label,
    Location,
    Mapping,
    Profile,
    Sample,
)
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.unit.export.small_profile import LIBC, LOCK, MAIN, RECEIVE, SMALL, WORK

FIRST_NS = 1_700_000_000_000_000_000
S = 1_000_000_000


def snapshot(samples: list[Sample], length_s: int, **changes: object) -> Profile:
    profile = BLOCK.make_profile(
        samples, [MAIN], time_ns=FIRST_NS, duration_ns=length_s * S, comments=["a"]
    )
    return replace(profile, **changes)  # type: ignore[arg-type]  # mypy can't know the fields


def values(profile: Profile) -> dict[tuple[str, ...], tuple[int, ...]]:
    """The values by the names of the stack, leaf first, with the labels behind."""
    found = {}
    for sample in profile.samples:
        names = [frame.function for location in sample.locations for frame in location.frames]
        key = (*names, *(f"{label.key}={label.value}" for label in sample.labels))
        assert key not in found
        found[key] = sample.values
    return found


def copied(location: Location) -> Location:
    """An equal object, as another file gives it."""
    copy = replace(location, frames=tuple(replace(frame) for frame in location.frames))
    assert copy is not location
    return copy


def test_a_window_is_the_difference_of_two_snapshots() -> None:
    earlier = snapshot([Sample((LOCK, WORK), (1, 100)), Sample((RECEIVE,), (5, 50))], 10)
    later = snapshot(
        [Sample((LOCK, WORK), (3, 400)), Sample((RECEIVE,), (5, 50)), Sample((WORK,), (1, 7))],
        25,
        comments=("b",),
    )
    window = delta.difference(later, earlier)
    assert values(window) == {
        ("sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "main.work"): (2, 300),
        ("main.work",): (1, 7),
    }
    assert (window.time_ns, window.duration_ns) == (FIRST_NS + 10 * S, 15 * S)
    assert (window.kind, window.sample_types) == ("block", later.sample_types)
    assert window.comments == ("b",)


def test_lengths_of_waits_add_up_as_their_counts_do() -> None:
    short, long = WaitHistogram.of([100, 100]), WaitHistogram.of([9000])
    earlier = snapshot([Sample((WORK,), (2, 200), lengths=short)], 10)
    later = snapshot([Sample((WORK,), (3, 9200), lengths=short + long)], 25)
    assert [each.lengths for each in delta.difference(later, earlier).samples] == [long]
    (together,) = delta.merged([later, earlier]).samples
    assert together.lengths == short + short + long
    (scaled,) = delta.of_same_length(snapshot([later.samples[0]], 25), earlier).samples
    assert scaled.lengths.total == pytest.approx(3 * 10 / 25)


def test_values_that_decreased_are_negative_as_in_gos_own_deltas() -> None:
    earlier = snapshot([Sample((WORK,), (5, 0)), Sample((LOCK,), (2, 2))], 1)
    later = snapshot([Sample((WORK,), (4, 0))], 2)
    assert list(values(delta.difference(later, earlier)).values()) == [(-1, 0), (-2, -2)]


def test_a_window_between_profiles_without_a_duration() -> None:
    """Go's own block profiles have no duration, and the time when they were written."""
    earlier = snapshot([], 0)
    later = snapshot([], 0, time_ns=FIRST_NS + 3 * S)
    window = delta.difference(later, earlier)
    assert (window.time_ns, window.duration_ns) == (FIRST_NS, 3 * S)
    assert delta.difference(earlier, later).duration_ns == 0


@pytest.mark.parametrize("copy", [lambda x: x, copied], ids=["shared", "equal"])
def test_locations_are_compared_by_value(copy: Callable[[Location], Location]) -> None:
    other = replace(WORK, address=WORK.address + 1)
    earlier = snapshot([Sample((WORK,), (1, 1)), Sample((other,), (1, 1))], 1)
    later = snapshot([Sample((copy(WORK),), (4, 4)), Sample((copy(other),), (1, 1))], 2)
    assert values(delta.difference(later, earlier)) == {("main.work",): (3, 3)}


def test_samples_with_different_labels_are_distinct() -> None:
    def labelled(value: str, count: int) -> Sample:
        return Sample((WORK,), (count, count), (Label("tenant", value),))

    earlier = snapshot([labelled("a", 1), labelled("b", 1)], 1)
    later = snapshot([labelled("a", 1), labelled("b", 3)], 2)
    assert values(delta.difference(later, earlier)) == {("main.work", "tenant=b"): (2, 2)}


def test_equal_stacks_of_a_profile_are_added_up() -> None:
    twice = snapshot([Sample((WORK,), (1, 1)), Sample((WORK,), (2, 2))], 1)
    assert values(delta.merged([twice])) == {("main.work",): (3, 3)}


def test_a_sum_has_the_first_start_and_the_total_duration() -> None:
    one = snapshot([Sample((WORK,), (1, 10))], 5, time_ns=FIRST_NS + 60 * S)
    two = snapshot([Sample((WORK,), (2, 20)), Sample((LOCK,), (0, 0))], 7, comments=("a", "b"))
    both = delta.merged([one, replace(two, mappings=(MAIN, LIBC), period=3)])
    assert values(both) == {("main.work",): (3, 30)}
    assert (both.time_ns, both.duration_ns) == (FIRST_NS, 12 * S)
    assert both.comments == ("a", "b")
    assert both.mappings == (MAIN, LIBC)
    assert both.period == 3


def test_merging_no_profiles_is_an_error() -> None:
    with pytest.raises(ValueError, match="no profile"):
        delta.merged([])


def test_a_comparison_keeps_both_sides_apart() -> None:
    base = snapshot([Sample((WORK,), (1, 10)), Sample((LOCK,), (1, 1))], 5)
    profile = snapshot([Sample((WORK,), (1, 10))], 5)
    found = delta.compared(profile, base)
    assert (found.time_ns, found.duration_ns) == (FIRST_NS, 10 * S)
    assert values(found) == {
        ("main.work",): (1, 10),
        ("main.work", "pprof::base=true"): (-1, -10),
        ("sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "pprof::base=true"): (-1, -1),
    }


def test_normalizing_gives_each_column_the_total_of_the_base() -> None:
    base = snapshot([Sample((LOCK,), (10, 1000))], 5)
    profile = snapshot([Sample((WORK,), (15, 30)), Sample((RECEIVE,), (5, 10))], 50)
    assert list(values(delta.normalized(profile, base)).values()) == [(8, 750), (2, 250)]
    empty = snapshot([], 5)
    assert delta.normalized(profile, empty).samples == ()
    assert delta.normalized(empty, base).samples == ()


def test_a_profile_is_scaled_to_the_length_of_the_base() -> None:
    base = snapshot([Sample((LOCK,), (10, 1000))], 5)
    profile = snapshot([Sample((WORK,), (15, 30)), Sample((RECEIVE,), (5, 10))], 50)
    base, profile = replace(base, duration_ns=10), replace(profile, duration_ns=50)
    scaled = delta.of_same_length(profile, base)
    assert list(values(scaled).values()) == [(3, 6), (1, 2)]
    assert scaled.duration_ns == 10
    for one, other in (
        (profile, replace(base, duration_ns=0)),
        (replace(profile, duration_ns=0), base),
    ):
        with pytest.raises(InvalidProfile, match="no duration"):
            delta.of_same_length(one, other)


@pytest.mark.parametrize(
    "combine",
    [
        delta.difference,
        delta.compared,
        delta.normalized,
        delta.of_same_length,
        lambda one, two: delta.merged([one, two]),
    ],
    ids=["difference", "compared", "normalized", "per_second", "merged"],
)
def test_other_sample_types_are_refused(combine: Callable[[Profile, Profile], Profile]) -> None:
    samples = tuple(replace(sample, values=sample.values[1:]) for sample in SMALL.samples)
    one_column = replace(SMALL, sample_types=SMALL.sample_types[1:], samples=samples)
    with pytest.raises(InvalidProfile, match="contentions/count, delay/nanoseconds"):
        combine(SMALL, one_column)


def test_sums_beyond_64_bits_are_refused() -> None:
    huge = snapshot([Sample((WORK,), (1, (1 << 63) - 1))], 1)
    least = snapshot([Sample((WORK,), (1, -(1 << 63)))], 1)
    with pytest.raises(InvalidProfile, match="64 bits"):
        delta.merged([huge, huge])
    with pytest.raises(InvalidProfile, match="64 bits"):
        delta.difference(snapshot([], 1), least)


MANY = tuple(
    Location(0x401000 + n, Mapping(0x400000, 0x500000, 0, "x", ""), (Frame(f"f{n}", "x.go", n),))
    for n in range(4)
)
SAMPLES = st.lists(
    st.builds(
        Sample,
        st.lists(st.sampled_from(MANY), max_size=3).map(tuple),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.sampled_from(((), (Label("k", "v"),), (Label("k", 1),))),
    ),
    max_size=8,
)


@given(SAMPLES, SAMPLES)
def test_a_difference_and_the_earlier_profile_add_up_to_the_later_one(
    some: list[Sample], more: list[Sample]
) -> None:
    earlier, later = snapshot(some, 1), snapshot([*some, *more], 2)
    window = delta.difference(later, earlier)
    assert set(window.samples) == set(delta.merged([snapshot(more, 1)]).samples)
    assert set(delta.merged([earlier, window]).samples) == set(delta.merged([later]).samples)


@pytest.mark.parametrize("time_ns", [(1 << 63) - 1, -(1 << 63) + 1])
def test_times_beyond_64_bits_are_cut(time_ns: int) -> None:
    one = snapshot([Sample((LOCK, WORK), (1, 100))], 10, time_ns=time_ns, duration_ns=time_ns)
    other = snapshot([Sample((LOCK, WORK), (2, 300))], 10, time_ns=time_ns, duration_ns=time_ns)
    for made in (delta.merged([one, other]), delta.compared(other, one)):
        assert pprof.decode(pprof.encode(made)).duration_ns == time_ns
    assert pprof.decode(pprof.encode(delta.difference(other, one))).time_ns == time_ns
